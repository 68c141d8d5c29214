"""Writes batch folders as orchard does."""

import hashlib
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def write_batch(folder: Path, rows: list[dict], *, shards: int = 1, loss: dict | None = None, temperature: float | None = None, kind: str | None = None) -> Path:
    """`rows` hold `ids`, `mask`, `weight` and for RL `advantage`, `sampler_logprob`, each [length]."""
    kinds = {"ids": np.int32, "mask": np.uint8, "reference_mask": np.uint8}
    folder.mkdir(parents=True)
    entries = []
    for number, part in enumerate(np.array_split(np.arange(len(rows)), shards)):
        tensors = {name: np.concatenate([np.atleast_1d(np.asarray(rows[r][name], kinds.get(name, np.float32))) for r in part]) for name in rows[0]}
        tensors["row_offsets"] = np.cumsum([0, *(len(rows[r]["ids"]) for r in part)], dtype=np.int64)
        path = folder / f"shard_{number:05d}.safetensors"
        save_file(tensors, path)
        entries.append(
            {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "rows": len(part), "tokens": len(tensors["ids"])}
        )
    weights = [np.asarray(row["weight"]) * np.asarray(row["mask"]) for row in rows]
    manifest = {
        "v": "orchard.batch/1",
        "kind": kind or ("sft" if temperature is None else "rl"),
        "step": 0,
        "policy_version": None,
        "sampling": None if temperature is None else {"temperature": temperature, "top_p": 1.0},
        "loss": loss or {"name": "sft", "params": {}},
        "streams": list(rows[0]),
        "rows": len(rows),
        "tokens": {
            "total": sum(len(row["ids"]) for row in rows),
            "trained": int(sum((w != 0).sum() for w in weights)),
            "weight": float(sum(w.sum() for w in weights)),
        },
        "shards": entries,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "READY").touch()
    return folder


def trainer_config(job: Path, **changes: object) -> dict:
    """trainer.json of a job whose model and batches lie in its own folder."""
    return {
        "v": "orchard.trainer/1",
        "task": "policy",
        "model": str(job / "model"),
        "batches": str(job / "batches"),
        "steps": 1,
        "epochs": 1,
        "batchRows": 8,
        "updates": None,
        "trainedTokens": None,
        "learningRate": 1e-3,
        "minLearningRate": 1e-4,
        "schedule": "cosine",
        "warmupSteps": 2,
        "weightDecay": 0.1,
        "betas": [0.9, 0.95],
        "maxGradNorm": 1.0,
        "precision": "fp32",
        "microTokens": 4096,
        "checkpointEverySteps": 5,
        "keepCheckpoints": 2,
        "publishEvery": 1,
        "onnx": False,
        "versionPrefix": "sft",
        "seed": 1,
        "waitTimeoutS": 20,
        **changes,
    }
