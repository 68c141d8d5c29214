"""Loss per trained token. The trainer weighs the tokens, sums them and divides by the step's weight sum.

Shapes: `logits` [N, vocab] in float32, `labels` [N], every stream [N]. A loss returns its values [N] with
gradient and statistics [N] without.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from .contract import Batch, Refused

Values = tuple[torch.Tensor, dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Loss:
    streams: tuple[str, ...]  # beside ids, mask and weight
    params: tuple[str, ...]  # numbers that the manifest has to give
    values: Callable[[torch.Tensor, torch.Tensor, dict[str, torch.Tensor], dict[str, float]], Values]


def sft(logits: torch.Tensor, labels: torch.Tensor, _streams: dict, _params: dict) -> Values:
    """Negative log-likelihood."""
    return cross_entropy(logits, labels, reduction="none"), {}


def clipped(logits: torch.Tensor, labels: torch.Tensor, streams: dict, params: dict) -> Values:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) with r = exp(l - l_sampler): PPO's clipped objective
    (arXiv 1707.06347) with the asymmetric bounds and the token mean of DAPO (arXiv 2503.14476).

    The sampler's log-probabilities stand for the old policy's. They were taken at the sampling temperature,
    so `logits` have to be divided by it already. `mismatch` is the k3 estimate r - 1 - log r of the divergence
    between sampler and policy.
    """
    log_ratio = -cross_entropy(logits, labels, reduction="none") - streams["sampler_logprob"]
    ratio = log_ratio.exp()
    advantage = streams["advantage"]
    bounded = ratio.clamp(1 - params["clip_low"], 1 + params["clip_high"])
    gains = torch.minimum(ratio * advantage, bounded * advantage)
    with torch.no_grad():
        stats = {"ratio": ratio, "clipped": (bounded * advantage < ratio * advantage).float(), "mismatch": ratio - 1 - log_ratio}
    return -gains, stats


LOSSES = {
    "sft": Loss((), (), sft),
    "clipped": Loss(("advantage", "sampler_logprob"), ("clip_low", "clip_high"), clipped),
}


def loss_of(batch: Batch) -> Loss:
    """The batch's loss. Raises Refused when it is unknown, or a parameter or stream it needs is missing."""
    manifest = batch.folder / "manifest.json"
    loss = LOSSES.get(batch.loss)
    if loss is None:
        raise Refused(f"{manifest}: loss.name: unknown loss {batch.loss}; known are {', '.join(LOSSES)}")
    for name in ("ids", "mask", "weight", *loss.streams):
        if name not in batch.streams:
            raise Refused(f"{manifest}: streams: loss {batch.loss} needs {name}")
    for name in sorted(set(loss.params) ^ batch.params.keys()):
        raise Refused(f"{manifest}: loss.params.{name}: {'missing' if name in loss.params else 'unknown'} for loss {batch.loss}")
    for name, value in batch.params.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise Refused(f"{manifest}: loss.params.{name}: expected a number, got {value!r}")
    return loss
