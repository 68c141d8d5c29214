"""The losses and their gradients against TRL and against sums written out by hand."""

import json
import random

import pytest
import torch
from batches import trainer_config, write_batch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from orchard_trainer.contract import Batch, load_config
from orchard_trainer.distill import estimate
from orchard_trainer.feed import Position, Step
from orchard_trainer.trainer import OrchardTrainer
from orchard_trainer.value import load_value_model

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
TOKEN = {"ratio": "token", **CLIP}


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


OBJECTIVES = {
    "DAPO": ({"loss_type": "bnpo"}, TOKEN),
    "Dr.GRPO": ({"loss_type": "dr_grpo", "max_completion_length": 64}, {**TOKEN, "row_tokens": 64}),
    "GSPO": ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, {**TOKEN, "ratio": "sequence"}),
}


@pytest.mark.parametrize(("objective", "temperature"), [("DAPO", 1.0), ("DAPO", 0.7), ("Dr.GRPO", 1.0), ("GSPO", 1.0)])
def test_the_policy_loss_equals_trl_on_the_same_tensors(model_dir, tmp_path, objective, temperature):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    theirs, params = OBJECTIVES[objective]
    rows = rows_of([40, 7, 90, 33], policy=True)
    if objective == "GSPO":
        for row in rows:  # GSPO knows one advantage a sequence, and counts sequences
            row["advantage"] = [m * row["advantage"][-1] for m in row["mask"]]
            row["weight"] = [m / sum(row["mask"]) for m in row["mask"]]
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    config = GRPOConfig(
        output_dir=str(tmp_path / "trl"), use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False, beta=0.0,
        **theirs, epsilon=CLIP["clip_low"], epsilon_high=CLIP["clip_high"], temperature=temperature, per_device_train_batch_size=8,
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
    result = ours(tmp_path, model_dir, rows, loss={"name": "policy", "params": params}, temperature=temperature)
    assert_same(result, (loss.item(), gradients(model)))


def logprobs_of(model, row):
    """Log-probabilities of a row's trained tokens."""
    logits = model(torch.tensor([row["ids"]])).logits[0].log_softmax(-1)
    places = [place for place in range(1, len(row["ids"])) if row["mask"][place]]
    return torch.stack([logits[place - 1, row["ids"][place]] for place in places]), places


def at(row, name, places):
    return torch.tensor([float(row[name][place]) for place in places])


def near_rows(model_dir, lengths, *, teacher=False):
    """Rows whose sampler was close to the model, so that ratios lie on both sides of every bound."""
    model, draw = AutoModelForCausalLM.from_pretrained(model_dir), random.Random(8)
    rows = rows_of(lengths, policy=True)
    for number, row in enumerate(rows):
        with torch.no_grad():
            logprobs, places = logprobs_of(model, row)
        for place, logprob in zip(places, logprobs.tolist(), strict=True):
            row["sampler_logprob"][place] = logprob + draw.uniform(-0.9, 0.9) + 0.4 * (number % 2)
        if teacher:
            row["reference_logprob"] = [m * draw.uniform(-7, -4) for m in row["mask"]]
            row["reference_mask"] = [m * (number != 1) for m in row["mask"]]
    return rows


def test_truncation_and_the_geometric_mask_equal_sums_by_hand(model_dir, tmp_path):
    rows = near_rows(model_dir, [40, 12, 90, 33])
    params = {**TOKEN, "truncate": 1.5, "geometric_low": 0.8, "geometric_high": 1.2}
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    total, count, masked = torch.zeros(()), 0, 0
    for row in rows:
        logprobs, places = logprobs_of(model, row)
        ratio = (logprobs - at(row, "sampler_logprob", places)).exp()
        advantage = at(row, "advantage", places)
        count += len(places)
        if not 0.8 <= ratio.detach().log().mean().exp() <= 1.2:
            masked += len(places)
            continue
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
        total = total - (gain * (ratio.clamp(max=1.5) / ratio).detach()).sum()
    assert 0 < masked < count  # both kinds of rows are there
    loss = total / count
    loss.backward()
    assert_same(ours(tmp_path, model_dir, rows, loss={"name": "policy", "params": params}, temperature=1.0), (loss.item(), gradients(model)))


def divergence_by_hand(kind, student, teacher, share):
    gap = teacher - student
    if kind == "k1":
        return (student - teacher).detach() * student
    if kind == "k2":
        return gap**2 / 2
    if kind == "k3":
        return gap.exp() - 1 - gap
    ratio = gap.exp()
    mixture = torch.log((1 - share) + share * ratio)
    return -(1 - share) * mixture + share * ratio * (ratio.log() - mixture)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "js_skew"])
def test_distillation_has_its_own_denominator_and_leaves_out_rows_the_teacher_failed_on(model_dir, tmp_path, kind):
    rows = near_rows(model_dir, [40, 12, 90, 33], teacher=True)
    params = {**TOKEN, "divergence": kind, "beta": 0.7, **({"lambda": 0.3} if kind == "js_skew" else {})}
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    policy, distill, count, known = torch.zeros(()), torch.zeros(()), 0, 0
    for number, row in enumerate(rows):
        logprobs, places = logprobs_of(model, row)
        ratio = (logprobs - at(row, "sampler_logprob", places)).exp()
        advantage = at(row, "advantage", places)
        policy = policy - torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage).sum()
        count += len(places)
        if number != 1:
            distill = distill + divergence_by_hand(kind, logprobs, at(row, "reference_logprob", places), 0.3).sum()
            known += len(places)
    loss = policy / count + 0.7 * distill / known
    loss.backward()
    for micro_tokens in (4096, 95):
        folder = tmp_path / str(micro_tokens)
        result = ours(folder, model_dir, rows, micro_tokens=micro_tokens, loss={"name": "policy", "params": params}, temperature=1.0)
        assert_same(result, (loss.item(), gradients(model)))


def expected(student, teacher, params):
    """Expectation of an estimator over all tokens of a small vocabulary, and the gradient of its values."""
    logits = student.clone().requires_grad_()
    logprobs = logits.log_softmax(-1)
    values, measured = estimate(logprobs, teacher.log_softmax(-1), params)
    chances = logprobs.exp().detach()
    (chances * values).sum().backward()
    return (chances * measured).sum(), logits.grad


def exact(student, teacher, divergence):
    logits = student.clone().requires_grad_()
    value = divergence(logits.softmax(-1), teacher.softmax(-1))
    value.backward()
    return value.detach(), logits.grad


def kl(one, other):
    return (one * (one.log() - other.log())).sum()


def test_the_estimators_equal_the_exact_divergences_on_a_small_vocabulary():
    torch.manual_seed(3)
    student, teacher = torch.randn(11), torch.randn(11)
    value, gradient = exact(student, teacher, kl)
    for kind in ("k1", "k3"):
        torch.testing.assert_close(expected(student, teacher, {"divergence": kind})[0], value)
    # As losses, k1 and k2 have the gradient of KL(student | teacher) (k3's is that of the other direction).
    for kind in ("k1", "k2"):
        torch.testing.assert_close(expected(student, teacher, {"divergence": kind})[1], gradient)
    for share in (0.2, 0.5, 0.9):
        skewed, _ = exact(student, teacher, lambda p, q, s=share: (1 - s) * kl(p, (1 - s) * p + s * q) + s * kl(q, (1 - s) * p + s * q))
        torch.testing.assert_close(expected(student, teacher, {"divergence": "js_skew", "lambda": share})[0], skewed)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "js_skew"])
def test_a_token_that_the_teacher_finds_impossible_stays_finite(kind):
    student = torch.tensor([-0.1, -200.0], requires_grad=True)
    values, measured = estimate(student, torch.tensor([-300.0, -0.1]), {"divergence": kind, "lambda": 0.5})
    values.sum().backward()
    assert torch.isfinite(values).all() and torch.isfinite(measured).all() and torch.isfinite(student.grad).all()


def test_the_value_head_equals_the_librarys_classifier(model_dir, tmp_path):
    rows = [{"ids": row["ids"], "mask": [0] * (len(row["ids"]) - 1) + [1], "label": number % 2} for number, row in enumerate(rows_of([40, 7, 90, 33]))]
    for number, row in enumerate(rows):
        row["weight"] = [m * (1.0 + number) for m in row["mask"]]
    batch = Batch(write_batch(tmp_path / "batches/step_000000", rows, loss={"name": "value", "params": {}}, kind="value"))
    (tmp_path / "trainer.json").write_text(json.dumps(trainer_config(tmp_path, model=str(model_dir), task="value", seed=5)))
    model = load_value_model(str(model_dir), seed=5)
    trainer = OrchardTrainer(tmp_path, load_config(tmp_path / "trainer.json"), model, lambda: False)
    trainer.create_optimizer()
    loss = trainer.training_step(model, Step(batch, [0, 1, 2, 3], epoch=0, of=1, after=Position(step=1), ends_batch=True, last=True)).item()

    torch.manual_seed(5)
    theirs = AutoModelForSequenceClassification.from_pretrained(model_dir, num_labels=1)
    total = torch.zeros(())
    for number, row in enumerate(rows):
        logit = theirs.score(theirs.model(torch.tensor([row["ids"]])).last_hidden_state[0, -1])[0]
        target = torch.tensor(float(row["label"]))
        total = total + (1.0 + number) * torch.nn.functional.binary_cross_entropy_with_logits(logit, target)
    (total / 10).backward()
    assert_same((loss, gradients(model)), ((total / 10).item(), gradients(theirs)))
