"""New weights in a running model."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, PreTrainedModel

# Fields of a configuration that say where weights come from, not what they compute.
ORIGIN = {"_name_or_path", "architectures", "dtype", "transformers_version", "use_cache"}


def load_weights(model: PreTrainedModel, folder: Path) -> None:
    """Copies the weights in `folder` into the model's own tensors.

    Raises ValueError for another architecture, and OSError or SafetensorError for broken files; the model is then as
    it was.
    """
    theirs, ours = AutoConfig.from_pretrained(folder).to_dict(), model.config.to_dict()
    for name in sorted((theirs.keys() | ours.keys()) - ORIGIN):
        if theirs.get(name) != ours.get(name):
            raise ValueError(f"{folder}: another architecture: {name} is {theirs.get(name)}, the running model has {ours.get(name)}")
    weights = {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}
    own = model.state_dict()
    for name in sorted(own.keys() - weights.keys() - set(model.all_tied_weights_keys)):
        raise ValueError(f"{folder}: {name} is missing")
    for name, tensor in weights.items():
        if name not in own or own[name].shape != tensor.shape:
            raise ValueError(f"{folder}: another architecture: {name} {list(tensor.shape)}")
    with torch.no_grad():
        for name, tensor in weights.items():
            own[name].copy_(tensor)
