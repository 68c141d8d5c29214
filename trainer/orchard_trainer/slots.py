"""Keys and values of many sequences, a slot each: the cache that the engine computes with."""

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache


class SlotCache(Cache):
    """A tensor [slots, context, kv_heads, head_dim] of keys and one of values a layer.

    `aim` says where the next forward writes and what it sees; the model's own code then runs unchanged.
    """

    def __init__(self, config: PreTrainedConfig, *, slots: int, dtype: torch.dtype, device: torch.device):
        super().__init__(layers=[])
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (slots, config.max_position_embeddings, config.num_key_value_heads, width)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]

    def aim(self, rows: torch.Tensor, positions: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Prepares one forward of B sequences by T new tokens each.

        rows: [B] slots, ascending; positions: [B, T] of the new tokens in their sequences; real: [B, T], false where
        padded. Returns the attention mask [B, 1, T, S], true where a token may look; S is the longest sequence.
        """
        self._span = int(positions.max()) + 1
        # Slots side by side are read in place, scattered ones have to be copied.
        first, last = int(rows[0]), int(rows[-1]) + 1
        self._read = slice(first, last) if last - first == len(rows) else rows
        self._where = rows[:, None].expand_as(positions)[real], positions[real]
        self._real = real
        return (torch.arange(self._span, device=positions.device) <= positions[:, :, None])[:, None]

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_, **__) -> tuple[torch.Tensor, torch.Tensor]:
        """Keeps the new [B, kv_heads, T, head_dim]; returns [B, kv_heads, S, head_dim], all so far."""
        seen = []
        for kept, new in ((self.keys[layer_idx], key_states), (self.values[layer_idx], value_states)):
            kept[self._where] = new.transpose(1, 2)[self._real]
            seen.append(kept[self._read, : self._span].transpose(1, 2))
        return seen[0], seen[1]

    def copy(self, source: int, target: int, *, length: int) -> None:
        """Gives one slot the first `length` keys and values of another."""
        for tensor in (*self.keys, *self.values):
            tensor[target, :length] = tensor[source, :length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._span
