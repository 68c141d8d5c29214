"""From the rows of an optimizer step to padded tensors with little padding.

Rows of like length share a forward pass, padded on the right: causal attention keeps the padding away from
real tokens, so that no mask is needed and attention stays on its fast path.
"""

from dataclasses import dataclass

import numpy as np
import torch

from .contract import Batch

# What starting one more forward and backward pass costs, in tokens' worth of work.
PASS_COST = 150


@dataclass(frozen=True)
class Micro:
    """Inputs of one forward pass; N is the number of trained tokens in it."""

    ids: torch.Tensor  # [rows, longest] int64, padded with 0
    select: torch.Tensor  # [N] places in the flattened hidden states that predict a trained token
    labels: torch.Tensor  # [N] the tokens they predict
    weight: torch.Tensor  # [N] float32
    streams: dict[str, torch.Tensor]  # the loss's other streams, [N] each, at the predicted tokens
    tokens: int  # real tokens


def split_rows(rows: list[int], lengths: list[int], micro_tokens: int, processes: int) -> list[list[list[int]]]:
    """Rows of the micro-batches of every process, [processes][micro-batches][rows], all of equal count.

    Sorted by length, then cut where padding plus the cost of a pass is least (dynamic programme over the cuts),
    at most `micro_tokens` padded cells each unless a single row is longer. A process left without work gets
    empty micro-batches, since all have to take part in every pass. Depends on its arguments alone.
    """
    rows = sorted(rows, key=lambda row: (lengths[row], row))
    share = -(-sum(lengths[row] for row in rows) // processes)
    cells = min(micro_tokens, share) if processes > 1 else micro_tokens
    best, cut = [0.0], [0]
    for end in range(1, len(rows) + 1):
        longest = lengths[rows[end - 1]]
        best.append(float("inf"))
        cut.append(end - 1)
        for start in range(end - 1, -1, -1):
            if start < end - 1 and longest * (end - start) > cells:
                break
            cost = best[start] + longest * (end - start) + PASS_COST
            if cost < best[end]:
                best[end], cut[end] = cost, start
    micros, end = [], len(rows)
    while end > 0:
        micros.append(rows[cut[end] : end])
        end = cut[end]
    # Longest first, each to the process with the least to do.
    split: list[list[list[int]]] = [[] for _ in range(processes)]
    for micro in sorted(micros, key=lambda micro: -len(micro) * lengths[micro[-1]]):
        min(split, key=lambda mine: sum(len(m) * lengths[m[-1]] for m in mine)).append(micro)
    count = max(map(len, split))
    return [mine + [[]] * (count - len(mine)) for mine in split]


def collate(batch: Batch, rows: list[int], streams: tuple[str, ...], device: torch.device) -> Micro:
    """Tensors of one micro-batch. No rows give a pass over one padding token that trains nothing."""
    longest = max((batch.lengths[row] for row in rows), default=1)
    ids = np.zeros((max(len(rows), 1), longest), np.int64)
    select, labels, weight = [], [], []
    others: dict[str, list[np.ndarray]] = {name: [] for name in streams}
    for number, row in enumerate(rows):
        tokens = batch.row(row, "ids")
        ids[number, : len(tokens)] = tokens
        # The token at place p is predicted at p - 1; the first one has no prediction.
        row_weight = (batch.row(row, "weight") * batch.row(row, "mask"))[1:]
        places = np.flatnonzero(row_weight)
        select.append(places + number * longest)
        labels.append(tokens[places + 1].astype(np.int64))
        weight.append(row_weight[places])
        for name, values in others.items():
            values.append(batch.row(row, name)[places + 1])

    def joined(parts: list[np.ndarray], kind: type) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts) if parts else np.zeros(0, kind)).to(device)

    return Micro(
        ids=torch.from_numpy(ids).to(device),
        select=joined(select, np.int64),
        labels=joined(labels, np.int64),
        weight=joined(weight, np.float32),
        streams={name: joined(values, np.float32) for name, values in others.items()},
        tokens=sum(batch.lengths[row] for row in rows),
    )


def weight_sum(batch: Batch, rows: list[int]) -> float:
    """The loss's denominator: the weights of all trained tokens of the step, over all processes."""
    return float(sum((batch.row(row, "weight") * batch.row(row, "mask"))[1:].sum(dtype=np.float64) for row in rows))
