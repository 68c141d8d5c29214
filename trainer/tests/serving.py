"""A server process to ask, and the model's own word on what it should have answered."""

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from conftest import command
from transformers import AutoModelForCausalLM


class Server:
    """`python -m orchard_trainer serve` as a context."""

    def __init__(self, model: Path, *words: object):
        self.command = command("serve", "--model", model, "--threads", 1, *words)

    def __enter__(self) -> "Server":
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.ready = json.loads(line)
        self.url = f"http://127.0.0.1:{self.ready['port']}"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as response:
            return json.load(response)

    def post(self, path: str, body: dict | bytes) -> tuple[int, dict]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self.url}{path}", data), timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def ask(self, text: str | list[dict], **fields: object) -> dict:
        messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
        status, answer = self.post("/v1/chat/completions", {"messages": messages, "logprobs": True, "return_token_ids": True, **fields})
        assert status == 200, answer
        return answer

    def ask_all(self, bodies: list[dict], *, gap_s: float = 0.0) -> list[dict]:
        """Answers to concurrent requests that start `gap_s` apart."""
        with ThreadPoolExecutor(len(bodies)) as pool:
            started = []
            for body in bodies:
                started.append(pool.submit(lambda body=body: self.ask(**body)))
                time.sleep(gap_s)
            return [each.result() for each in started]

    def score_all(self, bodies: list[dict]) -> list[dict]:
        with ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(lambda body: self.post("/v1/completions", body), bodies))
        assert all(status == 200 for status, _ in answers), answers
        return [answer for _, answer in answers]

    def later(self, **body: object) -> threading.Thread:
        """Asks in the background and keeps the answer as `.answer`."""
        thread = threading.Thread(target=lambda: setattr(thread, "answer", self.ask(**body)))
        thread.start()
        self.until(lambda health: health["running"] > 0)
        return thread

    def until(self, holds) -> dict:
        end = time.monotonic() + 20
        while not holds(health := self.get("/health")):
            assert time.monotonic() < end, health
            time.sleep(0.01)
        return health


def ids_of(answer: dict) -> list[int]:
    return answer["choices"][0]["token_ids"]


def logprobs_of(answer: dict) -> list[float]:
    return [each["logprob"] for each in answer["choices"][0]["logprobs"]["content"]]


class Oracle:
    """Full forwards without any cache."""

    def __init__(self, model: Path):
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    def scores(self, answer: dict, temperature: float = 1.0) -> torch.Tensor:
        """Log-probabilities [tokens, vocabulary] at each place of a completion."""
        prompt, ids = answer["prompt_token_ids"], ids_of(answer)
        with torch.inference_mode():
            logits = self.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        return torch.log_softmax(logits / temperature, -1)

    def difference(self, answer: dict, temperature: float = 1.0) -> float:
        """Largest between the log-probabilities told and the model's."""
        theirs = self.scores(answer, temperature).gather(1, torch.tensor(ids_of(answer))[:, None])[:, 0]
        return (theirs - torch.tensor(logprobs_of(answer))).abs().max().item()
