import random

import torch
from batches import write_batch
from transformers import AutoConfig, AutoModelForCausalLM

from orchard_trainer.contract import Batch
from orchard_trainer.packing import collate, pack_attention, split_rows


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
            assert sum(lengths[row] for row in micro) <= 1000


def test_processes_get_about_the_same_number_of_tokens():
    draw = random.Random(3)
    lengths = [draw.randint(50, 800) for _ in range(64)]
    loads = [sum(lengths[row] for micro in mine for row in micro) for mine in split_rows(list(range(64)), lengths, 4096, 4)]
    assert max(loads) - min(loads) <= 100


def test_packed_rows_do_not_see_one_another(model_dir):
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    rows = [[5, 6, 7, 8, 9], [10, 11, 12], [13]]
    alone = [model(torch.tensor([row])).logits[0] for row in rows]
    assert pack_attention(model)
    ids, positions = (torch.tensor([sum(parts, [])]) for parts in (rows, [list(range(len(row))) for row in rows]))
    packed = model(input_ids=ids, position_ids=positions, lengths=[5, 3, 1], use_cache=False).logits[0]
    torch.testing.assert_close(packed, torch.cat(alone), atol=1e-6, rtol=0)


def test_rows_of_a_model_with_other_layers_travel_alone(model_dir):
    config = AutoConfig.from_pretrained(model_dir)
    config.sliding_window = 16
    assert not pack_attention(AutoModelForCausalLM.from_config(config))
    assert split_rows([0, 1, 2], [5, 3, 4], 0, 1) == [[[0], [2], [1]]]


def test_a_trained_token_is_predicted_at_the_place_before_it(tmp_path):
    rows = [
        {"ids": [5, 6, 7], "mask": [1, 0, 1], "weight": [1.0, 1.0, 0.5], "advantage": [0, 0, 2.0], "sampler_logprob": [0, 0, -1.0]},
        {
            "ids": [8, 9, 10, 11],
            "mask": [0, 1, 1, 1],
            "weight": [0, 1.0, 0, 0.25],
            "advantage": [0, 3.0, 0, 4.0],
            "sampler_logprob": [0, -2.0, 0, -3.0],
        },
    ]
    batch = Batch(write_batch(tmp_path / "b", rows, shards=2))
    micro = collate(batch, [0, 1], ("advantage",), torch.device("cpu"))
    assert micro.ids.tolist() == [[5, 6, 7, 8, 9, 10, 11]] and micro.positions.tolist() == [[0, 1, 2, 0, 1, 2, 3]]
    assert micro.select.tolist() == [1, 3, 5]  # the first token of a row has no prediction
    assert micro.labels.tolist() == [7, 9, 11]
    assert micro.weight.tolist() == [0.5, 1.0, 0.25]
    assert micro.streams["advantage"].tolist() == [2.0, 3.0, 4.0]
