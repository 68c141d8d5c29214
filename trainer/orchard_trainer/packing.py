"""From the rows of an optimizer step to tensors without padding.

Rows lie behind one another in one sequence; positions start again with each, and attention looks at one row at
a time. The other layers see one long sequence, which costs less than several padded ones.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from .contract import Batch

# Architectures whose only way from token to token is plain causal attention. Rows of others travel alone.
PACKABLE = ("llama", "qwen2", "qwen3", "qwen3_moe")


@dataclass(frozen=True)
class Micro:
    """One forward pass over T tokens, N of them trained."""

    ids: torch.Tensor  # [1, T] int64
    positions: torch.Tensor  # [1, T] int64
    lengths: list[int]  # of the rows, together T
    select: torch.Tensor  # [N] places that the loss looks at: they predict a trained token, or are a row's last one
    row: torch.Tensor  # [N] which of the rows each lies in
    labels: torch.Tensor  # [N] the tokens they predict
    weight: torch.Tensor  # [N] float32
    streams: dict[str, torch.Tensor]  # the loss's other streams, [N] each


def pack_attention(model: PreTrainedModel) -> bool:
    """Makes the model attend row by row; False where it cannot, so that every row needs a pass of its own."""
    if model.config.model_type not in PACKABLE or getattr(model.config, "sliding_window", None) is not None:
        return False
    AttentionInterface.register("orchard_rows", attend_by_row)
    model.set_attn_implementation("orchard_rows")
    return True


def attend_by_row(_module, query, key, value, _mask, *, lengths: list[int], scaling: float, dropout: float = 0.0, **_):
    """Causal attention within each row. query [1, heads, T, d], key and value [1, kv_heads, T, d] -> [1, T, heads, d]."""
    rows = zip(query.split(lengths, 2), key.split(lengths, 2), value.split(lengths, 2), strict=True)
    parts = [scaled_dot_product_attention(*row, dropout_p=dropout, is_causal=True, scale=scaling, enable_gqa=True) for row in rows]
    return torch.cat(parts, 2).transpose(1, 2), None


def split_rows(rows: list[int], lengths: list[int], micro_tokens: int, processes: int) -> list[list[list[int]]]:
    """Rows of the micro-batches of every process: [processes][micro-batches][rows], as many for each.

    Longest first, each to the process with the least to do, then at most `micro_tokens` a pass unless a single
    row is longer. A process left without work gets empty micro-batches, since all take part in every pass.
    Depends on the arguments alone, so that every process finds the same.
    """
    split: list[list[list[int]]] = [[] for _ in range(processes)]
    load = [0] * processes
    for row in sorted(rows, key=lambda row: (-lengths[row], row)):
        process = load.index(min(load))
        load[process] += lengths[row]
        mine = split[process]
        if mine and sum(lengths[other] for other in mine[-1]) + lengths[row] <= micro_tokens:
            mine[-1].append(row)
        else:
            mine.append([row])
    count = max(map(len, split))
    return [mine + [[]] * (count - len(mine)) for mine in split]


def collate(batch: Batch, rows: list[int], streams: tuple[str, ...], device: torch.device) -> Micro:
    """Tensors of one micro-batch. No rows give a pass over one token that trains nothing."""
    lengths = [batch.lengths[row] for row in rows] or [1]
    ids = [batch.row(row, "ids").astype(np.int64) for row in rows] or [np.zeros(1, np.int64)]
    select, owner, labels, weight = [], [], [], []
    ahead = 0 if batch.kind == "value" else 1  # a language model predicts the token at place p at p - 1
    others: dict[str, list[np.ndarray]] = {name: [] for name in streams}
    start = 0
    for number, (row, tokens) in enumerate(zip(rows, ids, strict=False)):
        row_weight = batch.weights(row)
        places = np.flatnonzero(row_weight)
        select.append(places - ahead + start)
        owner.append(np.full(len(places), number))
        labels.append(tokens[places])
        weight.append(row_weight[places])
        for name, values in others.items():
            values.append(batch.row(row, name) if name == "label" else batch.row(row, name)[places])
        start += len(tokens)

    def joined(parts: list[np.ndarray], kind: type) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts) if parts else np.zeros(0, kind)).to(device)

    return Micro(
        ids=joined(ids, np.int64)[None],
        positions=joined([np.arange(length) for length in lengths], np.int64)[None],
        lengths=lengths,
        select=joined(select, np.int64),
        row=joined(owner, np.int64),
        labels=joined(labels, np.int64),
        weight=joined(weight, np.float32),
        streams={name: joined(values, np.float32) for name, values in others.items()},
    )
