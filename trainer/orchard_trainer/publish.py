"""Published weights: a complete Hugging Face folder, `STABLE` last."""

import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from .contract import read_json, write_folder, write_json

# What an engine needs beside the weights; a base model has some of them.
KEPT = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "chat_template.jinja", "generation_config.json",
)  # fmt: skip


def publish(state: dict[str, torch.Tensor], model, folder: Path, *, base: Path, version: str, dtype: torch.dtype, also: Callable[[Path], None] | None = None) -> None:
    """Writes `folder` with the weights in `dtype`, the base model's tokenizer and template, and the version's name.

    A folder that is there already stays: an engine may be reading it.
    """
    if (folder / "STABLE").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)

    def fill(partial: Path) -> None:
        # A cast makes copies, so tied weights have to be left out by name.
        own = {name: tensor.to(dtype) for name, tensor in state.items() if name not in model.all_tied_weights_keys}
        model.save_pretrained(partial, state_dict=own)
        config = read_json(partial / "config.json")  # says what the weights were trained in
        write_json(partial / "config.json", {**config, "dtype": str(dtype).removeprefix("torch.")})
        for name in KEPT:
            if (base / name).exists():
                shutil.copyfile(base / name, partial / name)
        (partial / "orchard_version.txt").write_text(version + "\n")
        if also is not None:
            also(partial)

    write_folder(folder, fill)
    (folder / "STABLE").touch()
