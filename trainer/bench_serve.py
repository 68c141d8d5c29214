"""New tokens per second on this machine's CPU: `orchard_trainer serve` beside the library's `generate`, in one run.

A 0.85 M-parameter Qwen3 with random weights and no end of sequence, 32 prompts of 50 to 500 tokens, 100 new tokens
each, temperature 1, float32. `generate` gets all prompts at once, left-padded. The server gets them as 32 concurrent
requests with log-probabilities and ids, and once more with one request joining every 20 ms. Prints one JSON line for
each, the median of the repeats.
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

import aiohttp
import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from orchard_trainer.init import SPECIAL, train_tokenizer

NEW = 100
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_model(folder: Path) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    tokenizer = train_tokenizer(iter(["a"]), 512)  # no merges: one token a letter
    config = Qwen3Config(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = Qwen3ForCausalLM(config).eval()
    model.save_pretrained(folder)
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=SPECIAL[0], chat_template=template).save_pretrained(folder)
    return model


def make_prompts(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices(LETTERS, k=draw.randint(50, 500))) for _ in range(count)]


def static(model: Qwen3ForCausalLM, prompts: list[list[int]]) -> float:
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(each)) + each for each in prompts])
    mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in prompts])
    started = time.perf_counter()
    with torch.inference_mode():
        made = model.generate(ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=NEW, pad_token_id=0)
    assert made.shape[1] == width + NEW
    return time.perf_counter() - started


async def served(url: str, prompts: list[str], *, gap_s: float = 0.0) -> tuple[float, list[list[int]]]:
    """Seconds until all are answered, and their prompts as ids."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(number: int) -> list[int]:
            await asyncio.sleep(number * gap_s)
            body = {"messages": [{"role": "user", "content": prompts[number]}], "max_tokens": NEW, "logprobs": True, "return_token_ids": True}
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                answer = await response.json()
                assert len(answer["choices"][0]["token_ids"]) == NEW, answer
                return answer["prompt_token_ids"]

        started = time.perf_counter()
        ids = await asyncio.gather(*map(ask, range(len(prompts))))
        return time.perf_counter() - started, ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder))
        command = [sys.executable, "-m", "orchard_trainer", "serve", "--model", folder, "--threads", str(args.threads)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            url = f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
            asyncio.run(served(url, make_prompts(4, 1)))
            for repeat in range(args.repeats):
                prompts = make_prompts(args.requests, 100 + repeat)
                took, ids = asyncio.run(served(url, prompts))
                seconds.setdefault("server", []).append(took)
                seconds.setdefault("server, joining", []).append(asyncio.run(served(url, make_prompts(args.requests, 200 + repeat), gap_s=0.02))[0])
                seconds.setdefault("generate", []).append(static(model, ids))
        finally:
            server.terminate()
            server.wait()
    for name, took in seconds.items():
        print(json.dumps({"what": name, "requests": args.requests, "new_tokens_per_s": round(args.requests * NEW / median(took), 1)}))


if __name__ == "__main__":
    main()
