"""OpenAI chat completions on the wire, with vLLM's fields for token ids."""

import json
import math
import secrets
import time
from collections.abc import Callable
from typing import Any

from . import tool_calls
from .engine import Engine, Request


class Bad(Exception):
    """A request that cannot be served (status 400). The message names the field."""


def read_body(text: bytes) -> dict:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise Bad(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Bad("the body is not a JSON object")
    return body


def read_request(engine: Engine, body: dict, done: Callable[[], None]) -> Request:
    """Raises Bad for a field that is wrong or not served."""
    if body.get("stream"):
        raise Bad("stream: this engine answers in one piece, ask without it")
    if body.get("n") not in (None, 1):
        raise Bad("n: this engine gives one choice a request")
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(word, str) and word for word in stop):
        raise Bad(f"stop: expected text or a list of texts, got {json.dumps(stop)}")
    seed = number(body, "seed", whole=True)
    limit = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    temperature, top_p = number(body, "temperature"), number(body, "top_p", most=1)
    if top_p == 0:
        raise Bad("top_p: expected more than 0")
    return Request(
        text=render(engine.tokenizer, body.get("messages"), body.get("tools")),
        max_tokens=number(body, limit, least=1, whole=True),
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        seed=secrets.randbits(62) if seed is None else seed,
        stop=stop,
        done=done,
    )


def number(body: dict, name: str, *, least: float = 0, most: float = math.inf, whole: bool = False) -> Any:
    value = body.get(name)
    if value is None:
        return None
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not (least <= value <= most and math.isfinite(value)):
        upper = "" if most == math.inf else f" and at most {most}"
        raise Bad(f"{name}: expected {'an integer' if whole else 'a number'} of at least {least}{upper}, got {json.dumps(value)}")
    return value


def render(tokenizer, messages: Any, tools: Any) -> str:
    """The prompt as text, up to where the assistant's turn begins."""
    if not isinstance(messages, list) or not messages:
        raise Bad("messages: expected a list of at least one message")
    if tools is not None and not isinstance(tools, list):
        raise Bad("tools: expected a list")
    prepared = [read_message(message, f"messages[{number}]") for number, message in enumerate(messages)]
    try:
        text = tokenizer.apply_chat_template(prepared, tools=tools or None, tokenize=False, add_generation_prompt=True)
        text.encode()  # JSON can spell half a character, which has no tokens
    except Exception as error:  # a template may raise anything
        raise Bad(f"messages: the chat template cannot take them: {error}") from error
    return text


def read_message(message: Any, where: str) -> dict:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Bad(f"{where}: expected an object with a role")
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str | None):
        raise Bad(f"{where}.content: expected text")
    read = {**message, "content": content or ""}
    if calls := message.get("tool_calls"):
        if not isinstance(calls, list):
            raise Bad(f"{where}.tool_calls: expected a list")
        read["tool_calls"] = [read_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(calls)]
    return read


def read_call(call: Any, where: str) -> dict:
    """Arguments are JSON text on the wire, and an object in chat templates."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Bad(f"{where}.function.name: expected text")
    arguments = function.get("arguments") or {}
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError as error:
        raise Bad(f"{where}.function.arguments: not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise Bad(f"{where}.function.arguments: expected a JSON object")
    return {"type": "function", "function": {"name": function["name"], "arguments": arguments}}


def reply(engine: Engine, body: dict, request: Request) -> dict:
    """A chat completion; `version` names the weights that wrote all of it."""
    ends = bool(request.ids) and request.ids[-1] in engine.ends
    text = engine.decode(request.ids[:-1] if ends else request.ids)
    text = text[: min((at for word in request.stop if (at := text.find(word)) >= 0), default=None)]
    content, calls = tool_calls.parse(text) if body.get("tools") else (text, [])
    message = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [write_call(call) for call in calls]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls and request.finish == "stop" else request.finish}
    if body.get("logprobs"):
        scored = zip(request.ids, request.logprobs, strict=True)
        choice["logprobs"] = {"content": [{"token": engine.decode([token]), "logprob": logprob, "top_logprobs": []} for token, logprob in scored]}
    answer = {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model") or "orchard",
        "version": request.version,
        "choices": [choice],
        "usage": {
            "prompt_tokens": len(request.prompt_ids),
            "completion_tokens": len(request.ids),
            "total_tokens": len(request.prompt_ids) + len(request.ids),
        },
    }
    if body.get("return_token_ids"):
        answer["prompt_token_ids"] = request.prompt_ids
        choice["token_ids"] = request.ids
    return answer


def write_call(call: dict) -> dict:
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}
    return {"id": f"call_{secrets.token_hex(6)}", "type": "function", "function": function}
