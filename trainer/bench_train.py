"""Training speed on this machine's CPU: `orchard_trainer train` beside a plain PyTorch loop, in one run.

A 0.85 M-parameter Qwen3 with random weights and 512 random sequences of 50 to 800 tokens, every token trained,
float32. The loop sorts all sequences by length and takes 8 a step, right-padded: the least work a trainer can
get away with. The trainer draws its rows at random, as in real use, at 8 and at 64 rows a step. Real tokens
are counted, start-up and the first step are left out. Prints one JSON line for each, the median of the repeats.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

sys.path.insert(0, str(Path(__file__).parent / "tests"))
from batches import trainer_config, write_batch

VOCAB = 512


def make_model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCAB,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            pad_token_id=0,
        )
    )


def make_sequences(count: int) -> list[list[int]]:
    draw = random.Random(11)
    return [[draw.randrange(3, VOCAB) for _ in range(draw.randint(50, 800))] for _ in range(count)]


def plain_loop(sequences: list[list[int]]) -> float:
    """Tokens per second of the loop."""
    model = make_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    ordered = sorted(sequences, key=len)
    steps = [ordered[first : first + 8] for first in range(0, len(ordered), 8)]
    random.Random(5).shuffle(steps)
    seen, started = 0, 0.0
    for number, rows in enumerate(steps):
        if number == 1:
            started = time.perf_counter()
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
        logits = model(ids).logits
        torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), labels[:, 1:].reshape(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seen += 0 if number == 0 else sum(map(len, rows))
    return seen / (time.perf_counter() - started)


def orchard(sequences: list[list[int]], *, batch_rows: int, threads: int) -> float:
    """Tokens per second of a whole job as a user runs it."""
    with tempfile.TemporaryDirectory() as name:
        job = Path(name)
        make_model().save_pretrained(job / "model")
        write_batch(job / "batches/step_000000", [{"ids": row, "mask": [1] * len(row), "weight": [1.0] * len(row)} for row in sequences])
        config = trainer_config(job, batchRows=batch_rows, checkpointEverySteps=10_000)
        (job / "trainer.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", "orchard_trainer", "train", "--dir", name, "--threads", str(threads)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        steps = [json.loads(line) for line in (job / "metrics.jsonl").read_text().splitlines()]
    return sum(step["tokens"] for step in steps[1:]) / (steps[-1]["time"] - steps[0]["time"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    sequences = make_sequences(args.sequences)

    variants = {
        "plain loop, sorted, 8 rows a step": lambda: plain_loop(sequences),
        "orchard, 8 rows a step": lambda: orchard(sequences, batch_rows=8, threads=args.threads),
        "orchard, 64 rows a step": lambda: orchard(sequences, batch_rows=64, threads=args.threads),
    }
    # Taken in turn, so that a change in the machine's load meets all of them.
    rates = [{name: measure() for name, measure in variants.items()} for _ in range(args.repeats)]
    for name in variants:
        print(json.dumps({"bench": "train", "variant": name, "tokens_per_s": round(median(rate[name] for rate in rates))}))


if __name__ == "__main__":
    main()
