"""Keys and values of many sequences, a slot each, and attention over them without any padding.

The new tokens of all sequences lie behind one another in one pass; each looks at its own slot only.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Span:
    """New tokens of one sequence in a pass: places [start, start + count), of `end` tokens so far."""

    slot: int | None  # None: nothing is kept, all of the sequence is in the pass
    start: int
    count: int
    end: int
    mask: torch.Tensor | None  # [count, end], where several tokens go on from earlier ones


class SlotCache:
    """A tensor [slots, kv_heads, context, head_dim] of keys and one of values a layer."""

    def __init__(self, config: PreTrainedConfig, *, slots: int, dtype: torch.dtype, device: torch.device):
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (slots, config.num_key_value_heads, config.max_position_embeddings, width)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.device = device

    def attach(self, model: PreTrainedModel) -> None:
        """Makes the model attend through this cache; its passes then take `plan`, as `aim` or `alone` gives it."""
        AttentionInterface.register("orchard_slots", attend)
        model.set_attn_implementation("orchard_slots")

    def aim(self, news: list[tuple[int, int, int]]) -> "Plan":
        """A pass of `count` new tokens behind `kept` ones, for each (slot, kept, count)."""
        spans, start = [], 0
        for slot, kept, count in news:
            spans.append(self._span(slot, start, count, kept + count))
            start += count
        where = [torch.arange(span.end - span.count, span.end) for span in spans]
        slots = torch.cat([torch.full((span.count,), span.slot) for span in spans])
        return Plan(self, spans, (slots.to(self.device), torch.cat(where).to(self.device)))

    def alone(self, lengths: list[int]) -> "Plan":
        """A pass over whole sequences that leaves nothing behind."""
        starts = [sum(lengths[:number]) for number in range(len(lengths))]
        return Plan(self, [self._span(None, start, length, length) for start, length in zip(starts, lengths, strict=True)], None)

    def _span(self, slot: int | None, start: int, count: int, end: int) -> Span:
        mask = None
        if 1 < count < end:
            mask = torch.ones(count, end, dtype=torch.bool, device=self.device).tril(end - count)
        return Span(slot, start, count, end, mask)

    def copy(self, source: int, target: int, *, length: int) -> None:
        """Gives one slot the first `length` keys and values of another."""
        for tensor in (*self.keys, *self.values):
            tensor[target, :, :length] = tensor[source, :, :length]


@dataclass(frozen=True)
class Plan:
    cache: SlotCache
    spans: list[Span]
    where: tuple[torch.Tensor, torch.Tensor] | None  # slot and position of each new token; None: keep nothing

    @property
    def positions(self) -> torch.Tensor:
        """[1, T]"""
        return torch.cat([torch.arange(span.end - span.count, span.end) for span in self.spans])[None].to(self.cache.device)

    @property
    def last(self) -> torch.Tensor:
        """The place of each sequence's last token."""
        return torch.tensor([span.start + span.count - 1 for span in self.spans], device=self.cache.device)


def attend(module, query, key, value, _mask, *, plan: Plan, scaling: float, **_):
    """query [1, heads, T, d], key and value [1, kv_heads, T, d] -> [1, T, heads, d]."""
    keys = values = None
    if plan.where is not None:
        keys, values = plan.cache.keys[module.layer_idx], plan.cache.values[module.layer_idx]
        slots, places = plan.where
        keys[slots, :, places] = key[0].transpose(0, 1)
        values[slots, :, places] = value[0].transpose(0, 1)
    parts = []
    for span in plan.spans:
        mine = slice(span.start, span.start + span.count)
        if span.slot is None:
            k, v = key[:, :, mine], value[:, :, mine]
        else:
            k, v = keys[span.slot, None, :, : span.end], values[span.slot, None, :, : span.end]
        fresh = span.count == span.end > 1
        parts.append(
            scaled_dot_product_attention(query[:, :, mine], k, v, attn_mask=span.mask, is_causal=fresh, scale=scaling, enable_gqa=True)
        )
    return torch.cat(parts, 2).transpose(1, 2), None
