"""The losses and their gradients against TRL and against sums written out by hand."""

import json
import random

import pytest
import torch
from batches import trainer_config, write_batch
from transformers import AutoModelForCausalLM, AutoTokenizer

from orchard_trainer.contract import Batch, load_config
from orchard_trainer.feed import Position, Step
from orchard_trainer.trainer import OrchardTrainer

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def rows_of(lengths, *, fractional=False, policy=False):
    """Random rows whose last two thirds are trained."""
    draw = random.Random(4)
    rows = []
    for length in lengths:
        mask = [int(place >= length // 3) for place in range(length)]
        rows.append(
            {
                "ids": [draw.randrange(3, 300) for _ in range(length)],
                "mask": mask,
                "weight": [m * (draw.choice([0.0, 0.25, 1.0]) if fractional else 1.0) for m in mask],
            }
        )
        if policy:
            rows[-1] |= {
                "advantage": [m * draw.uniform(-2, 2) for m in mask],
                "sampler_logprob": [m * draw.uniform(-6.5, -5) for m in mask],
            }
    return rows


def ours(folder, model_dir, rows, *, micro_tokens=4096, loss=None, temperature=None):
    """Loss and gradients of one optimizer step of the trainer."""
    batch = Batch(write_batch(folder / "batches/step_000000", rows, loss=loss, temperature=temperature))
    (folder / "trainer.json").write_text(json.dumps(trainer_config(folder, model=str(model_dir), microTokens=micro_tokens)))
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    trainer = OrchardTrainer(folder, load_config(folder / "trainer.json"), model, lambda: False)
    trainer.create_optimizer()
    step = Step(batch, list(range(len(rows))), epoch=0, of=1, after=Position(step=1), ends_batch=True, last=True)
    return trainer.training_step(model, step).item(), gradients(model)


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(one, two):
    assert one[0] == pytest.approx(two[0], abs=2e-6)
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, two[1][name], atol=2e-6, rtol=1e-4)


def padded(rows, name, fill):
    longest = max(len(row["ids"]) for row in rows)
    return torch.tensor([row[name] + [fill] * (longest - len(row["ids"])) for row in rows])


def test_sft_equals_trl_on_the_same_tensors(model_dir, tmp_path):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    rows = rows_of([40, 7, 90, 33])
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    config = SFTConfig(output_dir=str(tmp_path / "trl"), use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False)
    data = Dataset.from_dict({"input_ids": [row["ids"] for row in rows]})
    trainer = SFTTrainer(model=model, args=config, train_dataset=data, processing_class=AutoTokenizer.from_pretrained(model_dir))
    ids, mask = padded(rows, "ids", 0), padded(rows, "mask", 0)
    attention = torch.tensor([[int(place < len(row["ids"])) for place in range(ids.shape[1])] for row in rows])
    loss = trainer.compute_loss(model, {"input_ids": ids, "attention_mask": attention, "labels": torch.where(mask == 1, ids, -100)})
    loss.backward()
    assert_same(ours(tmp_path, model_dir, rows), (loss.item(), gradients(model)))


def test_sft_with_fractional_weights_equals_the_sum_by_hand(model_dir, tmp_path):
    rows = rows_of([40, 7, 90, 33], fractional=True)
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    total, weights = torch.zeros(()), 0.0
    for row in rows:
        logprobs = model(torch.tensor([row["ids"]])).logits[0].log_softmax(-1)
        for place in range(1, len(row["ids"])):
            total = total - row["weight"][place] * logprobs[place - 1, row["ids"][place]]
            weights += row["weight"][place]
    loss = total / weights
    loss.backward()
    assert_same(ours(tmp_path, model_dir, rows), (loss.item(), gradients(model)))


def test_the_size_of_a_forward_pass_changes_nothing(model_dir, tmp_path):
    rows = rows_of([40, 7, 90, 33, 60, 61], fractional=True)
    assert_same(ours(tmp_path / "a", model_dir, rows), ours(tmp_path / "b", model_dir, rows, micro_tokens=95))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_clipped_equals_trl_on_the_same_tensors(model_dir, tmp_path, temperature):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rows = rows_of([40, 7, 90, 33], policy=True)
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    config = GRPOConfig(
        output_dir=str(tmp_path / "trl"), use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False, loss_type="bnpo",
        beta=0.0, epsilon=CLIP["clip_low"], epsilon_high=CLIP["clip_high"], temperature=temperature, per_device_train_batch_size=8,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["x"] * 8}),
        processing_class=AutoTokenizer.from_pretrained(model_dir),
    )
    trainer.current_gradient_accumulation_steps = 1
    model.train()
    ids = padded(rows, "ids", 0)
    real = torch.tensor([[int(place < len(row["ids"])) for place in range(ids.shape[1])] for row in rows])
    loss = trainer._compute_loss(
        model,
        {
            # The first token is the prompt; prompt tokens behind it are masked like a tool's output.
            "prompt_ids": ids[:, :1], "prompt_mask": real[:, :1], "completion_ids": ids[:, 1:], "completion_mask": real[:, 1:],
            "tool_mask": padded(rows, "mask", 0)[:, 1:], "advantages": padded(rows, "advantage", 0.0)[:, 1:],
            "old_per_token_logps": padded(rows, "sampler_logprob", 0.0)[:, 1:],
        },
    )  # fmt: skip
    loss.backward()
    result = ours(tmp_path, model_dir, rows, loss={"name": "clipped", "params": CLIP}, temperature=temperature)
    assert_same(result, (loss.item(), gradients(model)))
