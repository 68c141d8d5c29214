"""Whole jobs: as processes where signals, kills and exit codes matter, in this process otherwise."""

import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from batches import trainer_config, write_batch
from conftest import command
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from orchard_trainer.contract import Preempted, Refused, load_config
from orchard_trainer.train import main
from orchard_trainer.trainer import run

CLIPPED = {"name": "policy", "params": {"ratio": "token", "clip_low": 0.2, "clip_high": 0.28}}


def sft_rows(count, seed=0):
    draw = random.Random(seed)
    lengths = [draw.randint(8, 120) for _ in range(count)]
    return [
        {
            "ids": [draw.randrange(3, 300) for _ in range(n)],
            "mask": [int(p >= n // 2) for p in range(n)],
            "weight": [float(p >= n // 2) for p in range(n)],
        }
        for n in lengths
    ]


def rl_rows(count, seed=0):
    draw = random.Random(seed)
    return [
        {**row, "advantage": [draw.uniform(-1, 1)] * len(row["ids"]), "sampler_logprob": [-5.8 * m for m in row["mask"]]}
        for row in sft_rows(count, seed)
    ]


def make_job(folder, model_dir, rows=None, **changes):
    """A job of 2 epochs over 32 rows, 8 a step, as orchard leaves it for the trainer."""
    write_batch(folder / "batches/step_000000", rows or sft_rows(32))
    write_config(folder, model_dir, **changes)
    return folder


def write_config(folder, model_dir, **changes):
    (folder / "trainer.json").write_text(
        json.dumps(trainer_config(folder, model=str(model_dir), **{"epochs": 2, "microTokens": 500, **changes}))
    )


def start(folder, *launcher):
    words = command(*launcher, *(["-m", "orchard_trainer"] if launcher else []), "train", "--dir", folder, "--threads", 1)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(process, **wanted):
    """The first line on standard output with these values."""
    for text in process.stdout:
        line = json.loads(text)
        if wanted.items() <= line.items():
            return line
    raise AssertionError(f"no {wanted} before the end: {process.stderr.read()}")


def ended(process):
    """Exit code, lines on standard output, standard error."""
    out, err = process.communicate(timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err


def lines(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def weights(folder, version="v_000001"):
    return load_file(folder / "weights" / version / "model.safetensors")


def assert_close(one, two, tolerance):
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], atol=tolerance, rtol=0)


def run_here(folder, stopping=lambda: False):
    run(folder, load_config(folder / "trainer.json"), stopping)


def test_a_killed_job_goes_on_and_ends_with_the_same_weights(model_dir, tmp_path):
    whole, killed = (make_job(tmp_path / name, model_dir, checkpointEverySteps=3) for name in ("whole", "killed"))
    processes = start(whole), start(killed)
    until(processes[1], event="step", step=5)
    processes[1].kill()
    processes[1].wait()
    (killed / "checkpoints/checkpoint-99").mkdir()  # torn: it lacks what is written last
    with (killed / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"event": "step", "st')
    code, said, _ = ended(processes[0])
    assert code == 0 and said[-1]["version"] == "sft@v_000001"
    again = start(killed)
    assert until(again, event="started")["step"] >= 3
    assert ended(again)[0] == 0
    assert (whole / "weights/v_000001/model.safetensors").read_bytes() == (killed / "weights/v_000001/model.safetensors").read_bytes()
    one, two = (lines(folder / "metrics.jsonl") for folder in (whole, killed))
    assert [line["step"] for line in two] == list(range(1, 9))
    assert [line["loss"] for line in one] == [line["loss"] for line in two]
    # Once more: nothing is left to do, and the weights are named again.
    code, said, _ = ended(start(killed))
    assert code == 0 and [line["event"] for line in said] == ["published"] and Path(said[0]["path"]) == killed / "weights/v_000001"


def test_two_processes_train_like_one_and_keep_their_exit_code(model_dir, tmp_path):
    one, two, wrong = (make_job(tmp_path / name, model_dir) for name in ("one", "two", "wrong"))
    write_config(wrong, model_dir, precision="fp64")
    launcher = ("launch", "--standalone", "--nproc-per-node", "2")
    jobs = start(two, *launcher), start(wrong, *launcher)
    run_here(one)
    code, _, err = ended(jobs[0])
    assert code == 0, err
    assert_close(weights(one), weights(two), 1e-6)
    assert [line["loss"] for line in lines(one / "metrics.jsonl")] == pytest.approx(
        [line["loss"] for line in lines(two / "metrics.jsonl")], abs=1e-5
    )
    code, _, err = ended(jobs[1])
    assert code == 42 and "trainer.json: precision: expected one of fp32, bf16" in err.splitlines()[-1]


def test_a_loss_that_is_no_number_stops_and_publishes_nothing(model_dir, tmp_path):
    folder = make_job(tmp_path, model_dir, learningRate=1e30, minLearningRate=1e30)
    code, _, err = ended(start(folder))
    assert code == 1 and "a lower learning rate may help" in err.splitlines()[-1]
    assert not (folder / "weights").exists() and all(line["loss"] == line["loss"] for line in lines(folder / "metrics.jsonl"))


def test_a_torn_shard_exits_42_and_is_named(model_dir, tmp_path, capsys):
    folder = make_job(tmp_path, model_dir)
    shard = folder / "batches/step_000000/shard_00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-9])
    assert main(["--dir", str(folder)]) == 42
    assert f"manifest.json: shards[0].sha256: {shard} has other bytes" in capsys.readouterr().err


def test_sigterm_writes_a_checkpoint_and_exits_143(model_dir, tmp_path):
    folder = make_job(tmp_path, model_dir, rows=rl_rows(32), epochs=1, steps=2, versionPrefix="rl")
    manifest = folder / "batches/step_000000/manifest.json"
    manifest.write_text(
        json.dumps({**json.loads(manifest.read_text()), "kind": "rl", "loss": CLIPPED, "sampling": {"temperature": 1.0, "top_p": 1.0}})
    )
    job = start(folder)
    waiting = until(job, event="waiting")  # for the second batch folder
    assert waiting["path"].endswith("step_000001/READY")
    job.send_signal(signal.SIGTERM)
    code, said, err = ended(job)
    assert code == 143 and said[-1]["event"] == "checkpoint" and "goes on from the last checkpoint" in err
    assert (folder / "checkpoints/checkpoint-4/position.json").exists() and (folder / "weights/v_000001/STABLE").exists()
    write_batch(folder / "batches/step_000001", rl_rows(16, seed=1), loss=CLIPPED, temperature=1.0)
    run_here(folder)
    assert [(line["step"], line["batch"]) for line in lines(folder / "metrics.jsonl")] == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (6, 1)]
    assert {"ratio", "clipped", "mismatch"} <= lines(folder / "metrics.jsonl")[-1].keys()
    assert (folder / "weights/v_000002/orchard_version.txt").read_text() == "rl@v_000002\n"


def test_a_stop_between_steps_keeps_the_step_that_ended(model_dir, tmp_path):
    folder = make_job(tmp_path, model_dir)
    with pytest.raises(Preempted):
        run_here(folder, stopping=lambda: (folder / "metrics.jsonl").exists())
    assert json.loads((folder / "state.json").read_text())["step"] == 1
    assert os.listdir(folder / "checkpoints/checkpoint-1")
    run_here(folder)
    assert [line["step"] for line in lines(folder / "metrics.jsonl")] == list(range(1, 9))


def test_published_weights_are_a_complete_model_in_the_precision_asked_for(model_dir, tmp_path):
    folder = make_job(tmp_path, model_dir, precision="bf16", epochs=1)
    run_here(folder)
    published = folder / "weights/v_000001"
    assert AutoModelForCausalLM.from_pretrained(published).dtype == torch.bfloat16
    assert AutoTokenizer.from_pretrained(published).chat_template == AutoTokenizer.from_pretrained(model_dir).chat_template
    assert weights(folder).keys() == load_file(model_dir / "model.safetensors").keys()


def test_the_budget_of_trained_tokens_cuts_the_last_epoch_short(model_dir, tmp_path):
    folder = make_job(tmp_path / "whole", model_dir, epochs=3)
    run_here(folder)
    whole = lines(folder / "metrics.jsonl")
    cut = make_job(tmp_path / "cut", model_dir, epochs=3, trainedTokens=whole[5]["trained_tokens"] - 100)
    run_here(cut)
    steps = lines(cut / "metrics.jsonl")
    assert len(steps) == steps[-1]["of"] == 6
    assert 0 <= steps[-1]["trained_tokens"] - (whole[5]["trained_tokens"] - 100) < 60  # to the row
    assert [step["learning_rate"] for step in steps[:2]] == [5e-4, 1e-3] and 1e-4 < steps[-1]["learning_rate"] < 3e-4
    # Resumed inside, the same plan.
    shutil.rmtree(cut / "weights")
    (cut / "state.json").unlink()
    run_here(cut)
    assert [step["trained_tokens"] for step in lines(cut / "metrics.jsonl")] == [step["trained_tokens"] for step in steps]


def test_checkpoints_beyond_those_kept_are_removed(model_dir, tmp_path):
    folder = make_job(tmp_path, model_dir, checkpointEverySteps=1, keepCheckpoints=2)
    run_here(folder)
    assert sorted(path.name for path in (folder / "checkpoints").glob("checkpoint-*")) == ["checkpoint-7", "checkpoint-8"]


def test_a_batch_that_never_comes_is_named(model_dir, tmp_path):
    write_config(tmp_path, model_dir, waitTimeoutS=0.3)
    with pytest.raises(TimeoutError, match="step_000000/READY"):
        run_here(tmp_path)


@pytest.mark.parametrize(
    ("rows", "changes", "sentence"),
    [
        ([{"ids": [5] * 300, "mask": [1] * 300, "weight": [1.0] * 300}], {}, "row 0 has 300 tokens, the model's context is 256"),
        ([{"ids": [5, 400], "mask": [0, 1], "weight": [0, 1.0]}], {}, "ids of row 0 are empty or outside the model's vocabulary of 320"),
        (None, {"model": "/nowhere/model"}, "model: /nowhere/model"),
    ],
)
def test_what_the_model_cannot_take_is_refused(model_dir, tmp_path, rows, changes, sentence):
    folder = make_job(tmp_path, model_dir, rows=rows)
    write_config(folder, changes.pop("model", model_dir), **changes)
    with pytest.raises(Refused, match=sentence):
        run_here(folder)


def test_killed_at_every_boundary_a_job_of_many_batches_publishes_each_version_once(model_dir, tmp_path):
    def make(folder):
        for number in range(4):
            write_batch(folder / f"batches/step_{number:06d}", rl_rows(8, seed=number), loss=CLIPPED, temperature=1.0)
        write_config(folder, model_dir, epochs=1, steps=4, updates=2, checkpointEverySteps=1, versionPrefix="rl", learningRate=1e-4)
        return folder

    quiet, killed = make(tmp_path / "quiet"), make(tmp_path / "killed")
    assert ended(start(quiet))[0] == 0
    # The line is said after the thing is done: the next one is what a kill then loses.
    moments = [
        {"event": "checkpoint", "step": 1},
        {"event": "checkpoint", "step": 2},
        {"event": "published", "version": "rl@v_000002"},
        {"event": "step", "step": 6},
        {"event": "checkpoint", "step": 8},
    ]
    for moment in moments:
        job = start(killed)
        until(job, **moment)
        job.kill()
        job.communicate()
    code, said, _ = ended(start(killed))
    assert code == 0 and said[-1]["version"] == "rl@v_000004"
    assert [(line["step"], line["batch"]) for line in lines(killed / "metrics.jsonl")] == [(step, (step - 1) // 2) for step in range(1, 9)]
    published = [line["version"] for line in lines(killed / "events.jsonl") if line["event"] == "published"]
    assert published == sorted(published) and set(published) == {f"rl@v_{number:06d}" for number in range(1, 5)}
    for number in range(1, 5):
        same = [load_file(folder / f"weights/v_{number:06d}/model.safetensors") for folder in (quiet, killed)]
        for name, tensor in same[0].items():
            torch.testing.assert_close(tensor, same[1][name], rtol=0, atol=0)
