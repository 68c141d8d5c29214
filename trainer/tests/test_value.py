"""The value model as it is published: torch, ONNX, and what an engine would load."""

import hashlib
import json
import random

import numpy as np
import onnxruntime
import torch
from batches import trainer_config, write_batch
from transformers import AutoModelForSequenceClassification

from orchard_trainer.train import main


def rows_of(count):
    """Rows whose label can be told from their first token."""
    draw = random.Random(2)
    rows = []
    for number in range(count):
        label = number % 2
        ids = [40 if label else 50, *(draw.randrange(60, 300) for _ in range(draw.randint(4, 60)))]
        last = [0] * (len(ids) - 1) + [1]
        rows.append({"ids": ids, "mask": last, "weight": [float(m) for m in last], "label": label})
    return rows


def train(folder, model_dir, **changes):
    write_batch(folder / "batches/step_000000", rows_of(96), loss={"name": "value", "params": {}}, kind="value")
    config = trainer_config(folder, model=str(model_dir), task="value", epochs=4, learningRate=3e-3, onnx=True, **changes)
    (folder / "trainer.json").write_text(json.dumps(config))
    return main(["--dir", str(folder)])


def test_torch_and_onnx_say_the_same_about_rows_of_any_length_and_it_learns(model_dir, tmp_path):
    assert train(tmp_path, model_dir) == 0
    folder = tmp_path / "weights/v_000001"
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["accuracy"] > 0.9 > lines[0]["accuracy"]

    about = json.loads((folder / "value.json").read_text())
    assert about["onnxSha256"] == hashlib.sha256((folder / "value.onnx").read_bytes()).hexdigest()
    session = onnxruntime.InferenceSession(folder / "value.onnx", providers=["CPUExecutionProvider"])
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert model.config.num_labels == 1 and model.config.pad_token_id is not None
    rows = [row["ids"] for row in rows_of(13)] + [[45], list(range(60, 200))]
    longest = max(map(len, rows))
    for fill in (0, 7):  # what stands behind a row makes no difference
        ids = np.array([row + [fill] * (longest - len(row)) for row in rows])
        (scores,) = session.run(["score"], {"ids": ids, "lengths": np.array([len(row) for row in rows])})
        with torch.no_grad():
            theirs = [model.score(model.model(torch.tensor([row])).last_hidden_state[0, -1])[0].item() for row in rows]
        np.testing.assert_allclose(scores, theirs, atol=1e-3)


def test_a_batch_for_a_policy_is_refused_by_a_value_job(model_dir, tmp_path, capsys):
    write_batch(tmp_path / "batches/step_000000", [{"ids": [5, 6], "mask": [0, 1], "weight": [0.0, 1.0]}])
    (tmp_path / "trainer.json").write_text(json.dumps(trainer_config(tmp_path, model=str(model_dir), task="value")))
    assert main(["--dir", str(tmp_path)]) == 42
    assert "kind: sft does not fit trainer.json: task: value" in capsys.readouterr().err
