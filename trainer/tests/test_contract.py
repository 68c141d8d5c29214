import json

import numpy as np
import pytest
from batches import trainer_config, write_batch

from orchard_trainer.contract import Batch, Refused, load_config
from orchard_trainer.losses import loss_of

ROWS = [{"ids": [5, 6, 7, 8], "mask": [0, 1, 1, 1], "weight": [0, 1.0, 0.5, 1.0]} for _ in range(4)]

POLICY = {"ratio": "token", "clip_low": 0.2, "clip_high": 0.28}


def change(folder, edit):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


def test_rows_come_back_as_they_were_written(tmp_path):
    batch = Batch(write_batch(tmp_path / "b", ROWS, shards=2))
    assert batch.lengths == [4, 4, 4, 4] and batch.trained(3) == 3
    assert batch.row(3, "ids").tolist() == [5, 6, 7, 8] and batch.row(2, "weight").dtype == np.float32


def test_a_changed_byte_names_the_shard(tmp_path):
    folder = write_batch(tmp_path / "b", ROWS, shards=2)
    shard = folder / "shard_00001.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(Refused, match=r"manifest.json: shards\[1\].sha256: .*shard_00001.safetensors has other bytes"):
        Batch(folder)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda m: m.update(v="orchard.batch/2"), "v: expected orchard.batch/1"),
        (lambda m: m.update(rows=5), "rows: 5 declared, 4 in the shards"),
        (lambda m: m["tokens"].update(total=17), "tokens.total: 17 declared, 16 in the shards"),
        (lambda m: m["tokens"].update(total="16"), 'tokens.total: expected int, got "16"'),
        (lambda m: m["shards"][0].update(rows=3), r"shards\[0\].rows: 3 rows do not fit"),
        (lambda m: m["shards"][0].update(name="gone"), r"shards\[0\].name: .*gone is not there"),
        (lambda m: m["streams"].append("label"), "shard_00000.safetensors: label: the stream is missing"),
        (lambda m: m["streams"].append("ranks"), "streams: unknown stream ranks"),
        (lambda m: m["loss"].update(name="hinge"), "loss.name: unknown loss hinge; known are sft, policy, value"),
        (lambda m: (m.update(kind="rl"), m["loss"].update(name="policy", params=POLICY)), "streams: loss policy needs advantage"),
        (lambda m: m["loss"].update(name="policy", params=POLICY), "kind: loss policy is for batches of kind rl, got sft"),
        (lambda m: (m.update(kind="rl"), m["loss"].update(name="policy", params={**POLICY, "beta": 1})), "loss.params.divergence: missing"),
        (lambda m: (m.update(kind="rl"), m["loss"].update(name="policy", params={**POLICY, "ratio": "word"})), "loss.params.ratio: expected one of"),
        (lambda m: m["loss"].update(params={"beta": 1}), "loss.params.beta: unknown for loss sft"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused_by_field(tmp_path, edit, sentence):
    folder = write_batch(tmp_path / "b", ROWS)
    change(folder, edit)
    with pytest.raises(Refused, match=sentence):
        loss_of(Batch(folder))


def test_a_wrong_setting_is_refused_by_name(tmp_path):
    path = tmp_path / "trainer.json"
    for changes, sentence in [
        ({"lr": 1}, "lr: unknown key"),
        ({"precision": "fp8"}, "precision: expected one of fp32, bf16"),
        ({"batchRows": 0}, "batchRows: out of range"),
        ({"learningRate": "1"}, "learningRate: expected float"),
    ]:
        path.write_text(json.dumps(trainer_config(tmp_path, **changes)))
        with pytest.raises(Refused, match=sentence):
            load_config(path)
