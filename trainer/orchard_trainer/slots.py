"""Keys and values of many sequences in one tensor, a slot each: the cache that `engine` decodes with."""

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache


class SlotCache(Cache):
    """[layers][slots, context, kv_heads, head_dim]. `aim` says where the next forward writes and what it may see."""

    def __init__(self, config: PreTrainedConfig, *, slots: int, context: int, dtype: torch.dtype, device: torch.device):
        heads = config.num_key_value_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (slots, context, heads, width)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]

    def aim(self, rows: torch.Tensor, positions: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Prepares one forward.

        rows [B] slots; positions [B, T] of the new tokens in their sequences; real [B, T] false where padded.
        Returns the attention mask [B, 1, T, S], true where a new token may look: S is the longest sequence.
        """
        span = int(positions.max()) + 1
        # Rows that lie side by side are read in place; scattered ones would have to be copied.
        first, last = int(rows[0]), int(rows[-1]) + 1
        dense = last - first == len(rows)
        self._read = slice(first, last) if dense else rows
        self._span = span
        self._rows = rows[:, None].expand_as(positions)[real]
        self._positions = positions[real]
        self._real = real
        return (torch.arange(span, device=positions.device) <= positions[:, :, None])[:, None]

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        """Writes [B, kv_heads, T, head_dim] of the new tokens, returns [B, kv_heads, S, head_dim] of all so far."""
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        keys[self._rows, self._positions] = key_states.transpose(1, 2)[self._real]
        values[self._rows, self._positions] = value_states.transpose(1, 2)[self._real]
        return keys[self._read, : self._span].transpose(1, 2), values[self._read, : self._span].transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._span
