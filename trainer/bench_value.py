"""Candidates a second of the value model on this machine's CPU: ONNX Runtime in Node beside torch, in one run.

A 0.85 M-parameter Qwen3 with a scalar head, 1,000 rows of 200 to 1,000 tokens, float32, the same batches of rows of
similar length. Prints one JSON line for each, the median of the repeats, and the largest difference of a score.
"""

import argparse
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from bench_serve import write_model
from transformers import AutoModelForSequenceClassification

from orchard_trainer.value import LastToken, export_onnx, load_value_model

BATCH_TOKENS = 8192
ROOT = Path(__file__).parent.parent
NODE = ROOT / "node_modules/node/bin/node"


def make_rows(count: int) -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(60, 500) for _ in range(draw.randint(200, 1000))] for _ in range(count)]


def torch_scores(folder: Path, rows: list[list[int]]) -> list[float]:
    module = LastToken(AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval())
    scores = [0.0] * len(rows)

    def flush(batch: list[int]) -> None:
        lengths = torch.tensor([len(rows[at]) for at in batch])
        width = int(lengths.max())
        ids = torch.tensor([rows[at] + [0] * (width - len(rows[at])) for at in batch])
        for at, score in zip(batch, module(ids, lengths).sigmoid().tolist(), strict=True):
            scores[at] = score

    batch: list[int] = []
    with torch.inference_mode():
        for at in sorted(range(len(rows)), key=lambda index: len(rows[index])):
            if batch and (len(batch) + 1) * len(rows[at]) > BATCH_TOKENS:
                flush(batch)
                batch = []
            batch.append(at)
        flush(batch)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    rows = make_rows(args.rows)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder)
        model = load_value_model(str(folder), seed=0)
        torch.nn.init.normal_(model.score.weight, std=0.2)
        model.save_pretrained(folder)
        export_onnx(folder, base=name)
        (folder / "rows.json").write_text(json.dumps(rows))
        times = []
        for _ in range(args.repeats):
            started = time.perf_counter()
            theirs = torch_scores(folder, rows)
            times.append(time.perf_counter() - started)
        command = [str(NODE), str(ROOT / "scripts/bench/value.mjs"), name, str(args.repeats)]
        ours = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        for what, seconds in {"orchard (ONNX Runtime in Node)": ours["seconds"], "torch": times}.items():
            print(json.dumps({"what": what, "seconds": round(median(seconds), 2), "candidates_per_s": round(args.rows / median(seconds))}))
        print(json.dumps({"largest_difference": max(abs(a - b) for a, b in zip(ours["scores"], theirs, strict=True))}))


if __name__ == "__main__":
    main()
