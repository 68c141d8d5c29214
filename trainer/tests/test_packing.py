import random

import torch
from batches import write_batch

from orchard_trainer.contract import Batch
from orchard_trainer.packing import collate, split_rows


def test_every_row_is_in_one_forward_pass_of_one_process():
    draw = random.Random(2)
    for _ in range(200):
        lengths = [draw.randint(1, 400) for _ in range(draw.randint(1, 40))]
        rows = draw.sample(range(len(lengths)), draw.randint(1, len(lengths)))
        processes = draw.randint(1, 5)
        split = split_rows(rows, lengths, 1000, processes)
        assert sorted(row for mine in split for micro in mine for row in micro) == sorted(rows)
        assert len(split) == processes and len({len(mine) for mine in split}) == 1
        for micro in (micro for mine in split for micro in mine if len(micro) > 1):
            assert len(micro) * max(lengths[row] for row in micro) <= 1000


def test_rows_of_like_length_share_a_pass():
    lengths = [10, 500, 11, 490, 12, 505]
    split = split_rows(list(range(6)), lengths, 4096, 1)
    assert sorted(map(sorted, split[0])) == [[0, 2, 4], [1, 3, 5]]


def test_a_trained_token_is_predicted_at_the_place_before_it(tmp_path):
    rows = [
        {"ids": [5, 6, 7], "mask": [1, 0, 1], "weight": [1.0, 1.0, 0.5], "advantage": [0, 0, 2.0], "sampler_logprob": [0, 0, -1.0]},
        {"ids": [8, 9, 10, 11], "mask": [0, 1, 1, 1], "weight": [0, 1.0, 0, 0.25], "advantage": [0, 3.0, 0, 4.0], "sampler_logprob": [0, -2.0, 0, -3.0]},
    ]
    batch = Batch(write_batch(tmp_path / "b", rows, shards=2))
    micro = collate(batch, [0, 1], ("advantage",), torch.device("cpu"))
    assert micro.ids.tolist() == [[5, 6, 7, 0], [8, 9, 10, 11]]
    assert micro.select.tolist() == [1, 4, 6]  # the first token of a row has no prediction
    assert micro.labels.tolist() == [7, 9, 11]
    assert micro.weight.tolist() == [0.5, 1.0, 0.25]
    assert micro.streams["advantage"].tolist() == [2.0, 3.0, 4.0]
