"""Log-probabilities of a given text, on the wire of vLLM's completions with `prompt_logprobs`."""

import math
import secrets
import time
from collections.abc import Callable

from .chat import Bad, number
from .engine import Engine, Score, TooLong


def read_score(engine: Engine, body: dict, done: Callable[[], None]) -> Score:
    """Raises Bad for a field that is wrong, and for a completion that is more than scoring; TooLong for the context."""
    if body.get("prompt_logprobs") not in (0, 1) or isinstance(body["prompt_logprobs"], bool):
        raise Bad("prompt_logprobs: expected 0 or 1; completions are for scoring here, ask /v1/chat/completions for text")
    if body.get("max_tokens") not in (None, 0, 1):
        raise Bad("max_tokens: expected 0 or 1; completions are for scoring here")
    prompt = body.get("prompt")
    ids = engine.tokenizer.encode(prompt, add_special_tokens=False) if isinstance(prompt, str) else prompt
    vocabulary = engine.model.config.vocab_size
    if not isinstance(ids, list) or not ids or not all(type(each) is int and 0 <= each < vocabulary for each in ids):
        raise Bad(f"prompt: expected text or a list of token ids below {vocabulary}")
    if len(ids) > engine.context:
        raise TooLong(f"the prompt has {len(ids)} tokens, the model's context is {engine.context}")
    temperature = number(body, "temperature")
    if temperature == 0:
        raise Bad("temperature: expected more than 0")
    return Score(ids=ids, temperature=temperature or 1.0, done=done)


def scored(body: dict, score: Score) -> dict:
    """Nothing stands before the first token, so it has no log-probability."""
    given = [{str(token): {"logprob": logprob}} for token, logprob in zip(score.ids[1:], map(finite, score.logprobs), strict=True)]
    choice = {"index": 0, "text": "", "finish_reason": "length", "prompt_logprobs": [None, *given]}
    if body.get("return_token_ids"):
        choice["prompt_token_ids"] = score.ids
    return {
        "id": f"cmpl-{secrets.token_hex(8)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": body.get("model") or "orchard",
        "version": score.version,
        "choices": [choice],
        "usage": {"prompt_tokens": len(score.ids), "completion_tokens": 0, "total_tokens": len(score.ids)},
    }


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else -1e9  # JSON has no infinity
