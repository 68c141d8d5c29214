"""One step of reinforcement learning on this machine's CPU beside TRL's GRPOTrainer, in one run.

The same 0.85 M-parameter Qwen3 with random weights and no end of sequence; 8 prompts of 200 tokens, 8 samples of
100 new tokens each, one optimizer step, float32. TRL generates and trains in its own process. Orchard's sampler is the
server, over HTTP with ids and log-probabilities; its trainer is a job over batch folders of what was sampled, the first
of which is left out. Prints one JSON line for each, medians over the steps.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).parent / "tests"))
import aiohttp
from batches import trainer_config, write_batch
from bench_serve import LETTERS, NEW, write_model

PROMPTS, SAMPLES, LENGTH = 8, 8, 200


def make_prompts(step: int) -> list[str]:
    draw = random.Random(step)
    return ["".join(draw.choices(LETTERS, k=LENGTH)) for _ in range(PROMPTS)]


async def sample(url: str, step: int) -> tuple[float, list[dict]]:
    """Seconds until all samples are there, and the rows to train on."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(prompt: str, seed: int) -> dict:
            body = {
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": NEW,
                "logprobs": True,
                "return_token_ids": True,
                "seed": seed,
            }
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                answer = await response.json()
            choice = answer["choices"][0]
            prompt_ids, ids = answer["prompt_token_ids"], choice["token_ids"]
            head = [0] * len(prompt_ids)
            logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
            advantage = random.Random(seed).choice([-1.0, 1.0])
            return {
                "ids": prompt_ids + ids,
                "mask": head + [1] * len(ids),
                "weight": head + [1.0] * len(ids),
                "advantage": head + [advantage] * len(ids),
                "sampler_logprob": head + logprobs,
            }

        asked = [ask(prompt, step * 100 + number) for number, prompt in enumerate(make_prompts(step) * SAMPLES)]
        started = time.perf_counter()
        rows = await asyncio.gather(*asked)
        return time.perf_counter() - started, rows


def orchard(job: Path, *, steps: int, threads: int) -> dict[str, float]:
    """Median seconds of sampling and of training."""
    write_model(job / "model")
    command = [sys.executable, "-m", "orchard_trainer", "serve", "--model", str(job / "model"), "--threads", str(threads), "--max-batch", "64"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    sampling = []
    loss = {"name": "policy", "params": {"ratio": "token", "clip_low": 0.2, "clip_high": 0.28}}
    try:
        url = f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
        for step in range(steps):
            took, rows = asyncio.run(sample(url, step))
            sampling.append(took)
            write_batch(job / f"batches/step_{step:06d}", rows, loss=loss, temperature=1.0)
    finally:
        server.terminate()
        server.wait()
    config = trainer_config(job, steps=steps, updates=1, learningRate=1e-4, checkpointEverySteps=10_000, publishEvery=10_000)
    (job / "trainer.json").write_text(json.dumps(config))
    train = [sys.executable, "-m", "orchard_trainer", "train", "--dir", str(job), "--threads", str(threads)]
    subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (job / "metrics.jsonl").read_text().splitlines()]
    return {"sampling": median(sampling[1:]), "training": median(line["seconds"] for line in lines[1:])}


def trl(folder: Path, *, steps: int) -> dict[str, float]:
    """Median seconds of generation and of the rest of GRPOTrainer's step."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    write_model(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model", padding_side="left", eos_token="<|endoftext|>")
    data = Dataset.from_list([{"prompt": prompt} for step in range(steps) for prompt in make_prompts(step)])
    config = GRPOConfig(
        output_dir=str(folder / "out"),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=PROMPTS * SAMPLES,
        num_generations=SAMPLES,
        max_completion_length=NEW,
        max_steps=steps,
        learning_rate=1e-4,
        beta=0.0,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        gradient_checkpointing=False,
        generation_kwargs={"min_new_tokens": NEW},
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [random.random() for _ in completions],
        args=config,
        train_dataset=data,
    )
    took: dict[str, list[float]] = {"_generate_single_turn": [], "training_step": []}
    for name, times in took.items():
        setattr(trainer, name, timed(getattr(trainer, name), times))
    trainer.train()
    generation, step = (median(times[1:]) for times in took.values())
    return {"sampling": generation, "training": step - generation}


def timed(work, times: list[float]):
    def wrapper(*args, **kwargs):
        started = time.perf_counter()
        try:
            return work(*args, **kwargs)
        finally:
            times.append(time.perf_counter() - started)

    return wrapper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seen: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.repeats):
        with tempfile.TemporaryDirectory() as name:
            seen.setdefault("orchard", []).append(orchard(Path(name), steps=args.steps, threads=args.threads))
        with tempfile.TemporaryDirectory() as name:
            seen.setdefault("trl", []).append(trl(Path(name), steps=args.steps))
    new = PROMPTS * SAMPLES * NEW
    total = PROMPTS * SAMPLES * (LENGTH + NEW)
    for what, runs in seen.items():
        sampling, training = (median(run[phase] for run in runs) for phase in ("sampling", "training"))
        line = {
            "what": what,
            "sampling_s": round(sampling, 2),
            "new_tokens_per_s": round(new / sampling),
            "training_s": round(training, 2),
            "trained_rows_tokens_per_s": round(total / training),
            "step_s": round(sampling + training, 2),
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
