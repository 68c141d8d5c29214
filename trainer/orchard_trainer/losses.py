"""Losses over the trained places of a forward pass.

A loss is a sum of terms. A term gives a value and a weight for each of the N trained places; the trainer adds up
value times weight and divides by the term's own sum of weights over the whole optimizer step and all processes
(`denominators`), so that what a micro-batch or a process holds makes no difference.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from .contract import Batch, Refused
from .distill import DIVERGENCES, estimate
from .packing import Micro

LIMIT = 20.0  # of a log ratio, in nats: beyond it the exponential says nothing but that something is wrong


@dataclass(frozen=True)
class Term:
    values: torch.Tensor  # [N], with gradient
    weight: torch.Tensor  # [N]


@dataclass(frozen=True)
class Result:
    terms: dict[str, Term]
    stats: dict[str, torch.Tensor] = field(default_factory=dict)  # [N] each, reported as weighted means
    ratio: torch.Tensor | None = None  # [N], reported by its quantiles


Values = Callable[[torch.Tensor, Micro, dict], Result]


@dataclass(frozen=True)
class Loss:
    kind: str  # of the batch
    values: Values  # logits [N, V] in float32 (of the value head [N, 1]), the pass, the manifest's parameters
    streams: Callable[[dict], tuple[str, ...]] = lambda _: ()  # beside ids, mask and weight
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


def sft(logits: torch.Tensor, micro: Micro, _params: dict) -> Result:
    """Negative log-likelihood."""
    return Result({"sft": Term(cross_entropy(logits, micro.labels, reduction="none"), micro.weight)})


def value(logits: torch.Tensor, micro: Micro, _params: dict) -> Result:
    """Binary cross-entropy of the head's logit at the last token of each row."""
    logit, target = logits[:, 0], micro.streams["label"]
    losses = binary_cross_entropy_with_logits(logit, target, reduction="none")
    return Result({"value": Term(losses, micro.weight)}, {"accuracy": ((logit > 0) == (target > 0.5)).float()})


def policy(logits: torch.Tensor, micro: Micro, params: dict) -> Result:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) with r = exp(l - l_sampler): PPO's clipped objective
    (arXiv 1707.06347) with the asymmetric bounds and the token mean of DAPO (arXiv 2503.14476).

    The sampler's log-probabilities stand for the old policy's (bypass). They were taken at the sampling temperature,
    so `logits` have to be divided by it already. `ratio: sequence` takes the geometric mean of a row's ratios instead
    (GSPO, arXiv 2507.18071). `truncate` caps the weight of a token, `geometric_*` leaves out rows whose mean ratio
    lies outside; both look at the ratio without following its gradient. `mismatch` is the k3 estimate r - 1 - log r of
    the divergence between sampler and trainer.
    """
    logprobs = -cross_entropy(logits, micro.labels, reduction="none")
    token_ratio = (logprobs - micro.streams["sampler_logprob"]).clamp(-LIMIT, LIMIT)
    row_ratio = row_means(token_ratio, micro)
    ratio = (row_ratio if params["ratio"] == "sequence" else token_ratio).exp()
    advantage = micro.streams["advantage"]
    bounded = ratio.clamp(1 - params["clip_low"], 1 + params["clip_high"])
    gains = torch.minimum(ratio * advantage, bounded * advantage)
    if "truncate" in params:
        gains = gains * (ratio.clamp(max=params["truncate"]) / ratio).detach()
    kept = torch.ones_like(gains)
    if "geometric_low" in params:
        mean = row_ratio.detach().exp()
        kept = ((mean >= params["geometric_low"]) & (mean <= params["geometric_high"])).float()
    raw = token_ratio.detach()
    stats = {
        "ratio": raw.exp(),
        "clipped": (bounded * advantage < ratio * advantage).float(),
        "mismatch": raw.exp() - 1 - raw,
        "masked": 1 - kept,
    }
    terms = {"policy": Term(-gains * kept, micro.weight)}
    if "divergence" in params:
        values, measured = estimate(logprobs, micro.streams["reference_logprob"], params)
        known = micro.streams["reference_mask"] * (micro.weight > 0)
        terms["distill"] = Term(params["beta"] * values, known)
        stats["distill"] = measured
    return Result(terms, {name: each.detach() for name, each in stats.items()}, raw.exp())


def row_means(values: torch.Tensor, micro: Micro) -> torch.Tensor:
    """The mean of a row's places, at each of them. [N] -> [N]"""
    count = len(micro.lengths)
    sums = torch.zeros(count, device=values.device).index_add(0, micro.row, values)
    sizes = torch.zeros(count, device=values.device).index_add(0, micro.row, torch.ones_like(values))
    return (sums / sizes.clamp(min=1))[micro.row]


def denominators(batch: Batch, rows: list[int]) -> dict[str, float]:
    """What each term of an optimizer step is divided by."""
    weights = [batch.weights(row) for row in rows]
    total = float(sum(each.sum(dtype=float) for each in weights))
    if "row_tokens" in batch.params:
        total = float(len(rows) * batch.params["row_tokens"])  # Dr.GRPO (arXiv 2503.20783): a constant
    found = {batch.loss: total}
    if "divergence" in batch.params:
        found["distill"] = float(sum(((each > 0) & (batch.row(row, "reference_mask") > 0)).sum() for row, each in zip(rows, weights, strict=True)))
    return {name: number or 1.0 for name, number in found.items()}


def policy_streams(params: dict) -> tuple[str, ...]:
    return ("advantage", "sampler_logprob", *(("reference_logprob", "reference_mask") if "divergence" in params else ()))


CLIP = ("ratio", "clip_low", "clip_high")
CORRECTION = ("truncate", "geometric_low", "geometric_high", "row_tokens", "divergence", "beta", "lambda")
TOGETHER = (("geometric_low", "geometric_high"), ("divergence", "beta"))
WORDS = {"ratio": ("token", "sequence"), "divergence": DIVERGENCES}

LOSSES = {
    "sft": Loss("sft", sft),
    "policy": Loss("rl", policy, policy_streams, CLIP, CORRECTION),
    "value": Loss("value", value, lambda _: ("label",)),
}


def loss_of(batch: Batch) -> Loss:
    """The batch's loss. Raises Refused when it is unknown, or a parameter or stream it needs is missing or wrong."""
    manifest = batch.folder / "manifest.json"
    loss = LOSSES.get(batch.loss)
    if loss is None:
        raise Refused(f"{manifest}: loss.name: unknown loss {batch.loss}; known are {', '.join(LOSSES)}")
    if batch.kind != loss.kind:
        raise Refused(f"{manifest}: kind: loss {batch.loss} is for batches of kind {loss.kind}, got {batch.kind}")
    params, where = batch.params, f"{manifest}: loss.params"
    known = (*loss.required, *loss.optional)
    for name in sorted(params.keys() - set(known)):
        raise Refused(f"{where}.{name}: unknown for loss {batch.loss}")
    wanted = [*loss.required, *(name for group in TOGETHER if any(each in params for each in group) for name in group)]
    if params.get("divergence") == "js_skew":
        wanted.append("lambda")
    for name in wanted:
        if name not in params:
            raise Refused(f"{where}.{name}: missing for loss {batch.loss}")
    for name, given in params.items():
        if name in WORDS and given not in WORDS[name]:
            raise Refused(f"{where}.{name}: expected one of {', '.join(WORDS[name])}, got {given!r}")
        if name not in WORDS and (not isinstance(given, (int, float)) or isinstance(given, bool)):
            raise Refused(f"{where}.{name}: expected a number, got {given!r}")
    for name in ("ids", "mask", "weight", *loss.streams(params)):
        if name not in batch.streams:
            raise Refused(f"{manifest}: streams: loss {batch.loss} needs {name}")
    return loss
