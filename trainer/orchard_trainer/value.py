"""The value model: a scalar head on a language model, read at the last token; and its export to ONNX."""

import contextlib
import hashlib
import logging
import warnings
from pathlib import Path
from types import MethodType

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from .contract import write_json

ONNX_BYTES = 2_000_000_000  # of a single file, the format's own limit


def load_value_model(folder: str, seed: int) -> PreTrainedModel:
    """A sequence classifier with one label, so that engines can serve what comes out; the head is drawn from `seed`.

    Raises OSError or ValueError for a folder without a model.
    """
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32)
    if model.config.pad_token_id is None:
        model.config.pad_token_id = model.config.eos_token_id or 0
    # The library would look for each row's last token by its padding, and rows lie behind one another here.
    model.forward = MethodType(logits_of_places, model)
    return model


def logits_of_places(self: PreTrainedModel, input_ids: torch.Tensor, position_ids: torch.Tensor, **more) -> SequenceClassifierOutput:
    hidden = self.model(input_ids=input_ids, position_ids=position_ids, **more).last_hidden_state
    return SequenceClassifierOutput(logits=self.score(hidden))


class LastToken(torch.nn.Module):
    """ids [B, T] padded on the right and lengths [B] to the logit at each row's last token, [B].

    Attention is causal, so padding behind a row cannot change it.
    """

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.backbone, self.score = model.model, model.score

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        hidden = self.backbone(input_ids=ids, use_cache=False).last_hidden_state
        last = hidden[torch.arange(ids.shape[0], device=ids.device), lengths - 1]
        return self.score(last)[:, 0]


def export_onnx(folder: Path, *, base: str) -> None:
    """Adds value.onnx, in float32, and value.json to published weights. Raises ValueError when it would be too large."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    if size > ONNX_BYTES:
        raise ValueError(f"the model has {size / 1e9:.1f} GB in float32, more than ONNX holds in a file: set onnx: false and score with an engine")
    file = folder / "value.onnx"
    example = (torch.ones(2, 7, dtype=torch.int64), torch.tensor([7, 5]))
    batch, length = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=2)
    with quiet(), torch.no_grad():
        torch.onnx.export(
            LastToken(model),
            example,
            str(file),
            input_names=["ids", "lengths"],
            output_names=["score"],
            dynamic_shapes={"ids": {0: batch, 1: length}, "lengths": {0: batch}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    about = {
        "v": "orchard.value/1",
        "base": Path(base).name,
        "onnxSha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "context": model.config.max_position_embeddings,
    }
    write_json(folder / "value.json", about)


@contextlib.contextmanager
def quiet():
    """The exporter tells its progress on standard output, where our lines go."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
