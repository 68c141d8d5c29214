"""What orchard and the trainer say to each other: trainer.json, batch folders, exit codes.

Nothing here imports torch: a finished job, a refused one and a waiting one stay cheap.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

DONE, REFUSED, PREEMPTED = 0, 42, 143

DTYPES = {
    "ids": "I32", "mask": "U8", "weight": "F32", "advantage": "F32", "sampler_logprob": "F32",
    "reference_logprob": "F32", "reference_mask": "U8", "label": "F32", "row_offsets": "I64",
}  # fmt: skip


class Refused(Exception):
    """Wrong configuration or data (exit 42): running again cannot help. The message names file and field."""


class Preempted(Exception):
    """SIGTERM arrived: leave with 143 once a checkpoint is written."""


def read_json(path: Path) -> dict:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise Refused(f"{path}: not found") from None
    except ValueError as error:
        raise Refused(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refused(f"{path}: expected an object, got {type(value).__name__}")
    return value


def write_json(path: Path, value: dict) -> None:
    """Replaces the file in one step: a reader sees the old one or the new one."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=2) + "\n")
    partial.replace(path)


def write_folder(final: Path, fill: Callable[[Path], None]) -> None:
    """Fills a neighbouring folder and renames it into place: `final` is complete or absent, whenever the process dies."""
    partial = final.with_name(f".partial-{final.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    fill(partial)
    partial.rename(final)


@dataclass(frozen=True)
class Config:
    """trainer.json; the fields are described in src/ports/trainer.ts."""

    v: str
    task: str
    model: str
    batches: str
    steps: int
    epochs: int
    batchRows: int
    updates: int | None
    trainedTokens: int | None
    learningRate: float
    minLearningRate: float
    schedule: str
    warmupSteps: int
    weightDecay: float
    betas: list
    maxGradNorm: float
    precision: str
    microTokens: int
    checkpointEverySteps: int
    keepCheckpoints: int
    publishEvery: int
    onnx: bool
    versionPrefix: str
    seed: int
    waitTimeoutS: float


CHOICES = {
    "v": ("orchard.trainer/1",),
    "task": ("policy", "value"),
    "schedule": ("cosine", "constant"), "precision": ("fp32", "bf16"),
}
POSITIVE = ("steps", "epochs", "batchRows", "updates", "microTokens", "checkpointEverySteps", "keepCheckpoints", "publishEvery")


def load_config(path: Path) -> Config:
    """Reads trainer.json. Raises Refused naming the field that is missing, unknown or of the wrong kind."""
    raw = read_json(path)
    known = {field.name: field.type for field in fields(Config)}
    for name in [*(known.keys() - raw.keys()), *(raw.keys() - known.keys())]:
        raise Refused(f"{path}: {name}: {'missing' if name in known else 'unknown key'}")
    for name, kind in known.items():
        value = raw[name]
        if not isinstance(value, (int, float) if kind is float else kind) or (isinstance(value, bool) and kind is not bool):
            raise Refused(f"{path}: {name}: expected {getattr(kind, '__name__', kind)}, got {json.dumps(value)}")
        if name in CHOICES and value not in CHOICES[name]:
            raise Refused(f"{path}: {name}: expected one of {', '.join(CHOICES[name])}, got {json.dumps(value)}")
        if (name in POSITIVE and value is not None and value < 1) or (kind is float and not (math.isfinite(value) and value >= 0)):
            raise Refused(f"{path}: {name}: out of range: {value}")
    if len(raw["betas"]) != 2:
        raise Refused(f"{path}: betas: expected two numbers, got {json.dumps(raw['betas'])}")
    return Config(**raw)


class Batch:
    """A batch folder whose manifest and checksums fit. Token streams stay on disk until a row is read."""

    def __init__(self, folder: Path):
        manifest = folder / "manifest.json"
        raw = read_json(manifest)

        def field(path: str, kind: Any) -> Any:
            value: Any = raw
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if not isinstance(value, kind) or isinstance(value, bool):
                raise Refused(f"{manifest}: {path}: expected {getattr(kind, '__name__', kind)}, got {json.dumps(value)}")
            return value

        if raw.get("v") != "orchard.batch/1":
            raise Refused(f"{manifest}: v: expected orchard.batch/1, got {json.dumps(raw.get('v'))}")
        self.folder = folder
        self.kind: str = field("kind", str)
        self.loss: str = field("loss.name", str)
        self.params: dict = field("loss.params", dict)
        self.streams: list[str] = field("streams", list)
        self.temperature = float(field("sampling.temperature", (int, float))) if raw.get("sampling") else 1.0
        for name in self.streams:
            if name not in DTYPES:
                raise Refused(f"{manifest}: streams: unknown stream {name}")
        self._shards, self._rows, self._first = [], [], []
        tokens = 0
        for number, shard in enumerate(field("shards", list)):
            path = folder / str(shard.get("name"))
            where = f"{manifest}: shards[{number}]"
            if not path.is_file():
                raise Refused(f"{where}.name: {path} is not there")
            if digest(path) != shard.get("sha256"):
                raise Refused(f"{where}.sha256: {path} has other bytes")
            handle = open_shard(path, [*self.streams, "row_offsets"])
            offsets = handle.get_tensor("row_offsets").tolist()
            if len(offsets) - 1 != shard.get("rows") or offsets[0] != 0 or offsets != sorted(offsets):
                raise Refused(f"{where}.rows: {shard.get('rows')} rows do not fit row_offsets of {path}")
            if offsets[-1] != shard.get("tokens") or handle.get_slice("ids").get_shape() != [offsets[-1]]:
                raise Refused(f"{where}.tokens: {shard.get('tokens')} tokens do not fit ids of {path}")
            self._shards.append(handle)
            self._first.append(len(self._rows))
            self._rows += [(number, start, end) for start, end in pairwise(offsets)]
            tokens += offsets[-1]
        if len(self._rows) != field("rows", int) or not self._rows:
            raise Refused(f"{manifest}: rows: {raw['rows']} declared, {len(self._rows)} in the shards")
        if tokens != field("tokens.total", int):
            raise Refused(f"{manifest}: tokens.total: {raw['tokens']['total']} declared, {tokens} in the shards")
        self.lengths = [end - start for _, start, end in self._rows]

    def row(self, index: int, stream: str) -> np.ndarray:
        """One stream of one row: [length of the row], of the label [1]."""
        shard, start, end = self._rows[index]
        if stream == "label":
            return self._shards[shard].get_slice(stream)[index - self._first[shard] :][:1]
        return self._shards[shard].get_slice(stream)[start:end]

    def trained(self, index: int) -> int:
        """Tokens of a row that the loss looks at."""
        return int(np.count_nonzero(self.weights(index)))

    def weights(self, index: int) -> np.ndarray:
        """What each token of a row counts in the loss. The first one has nothing before it to be predicted from."""
        weights = self.row(index, "weight") * self.row(index, "mask")
        if self.kind != "value":
            weights[0] = 0
        return weights


def open_shard(path: Path, streams: list[str]) -> Any:
    try:
        handle = safe_open(path, framework="np")
    except (SafetensorError, OSError) as error:
        raise Refused(f"{path}: not a safetensors file: {error}") from None
    for name in streams:
        if name not in handle.keys():
            raise Refused(f"{path}: {name}: the stream is missing")
        if (dtype := handle.get_slice(name).get_dtype()) != DTYPES[name]:
            raise Refused(f"{path}: {name}: expected {DTYPES[name]}, got {dtype}")
    return handle


def digest(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
    return hasher.hexdigest()
