"""`orchard_trainer serve`: OpenAI chat completions with token ids and exact log-probabilities, on any machine."""

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contract import DONE, REFUSED, Refused

if TYPE_CHECKING:
    from aiohttp import web

    from .engine import Engine

PARENT_POLL_S = 0.5
MAX_BODY_BYTES = 64 * 1024 * 1024


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="orchard_trainer serve", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model folder in Hugging Face layout")
    parser.add_argument("--version", default="base", help="name of the weights, given back with every reply")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="any free one when 0")
    parser.add_argument("--max-batch", type=int, default=32, help="requests decoded together")
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--parent-pid", type=int, help="end when this process is gone")
    args = parser.parse_args(argv)
    try:
        if not (args.model / "config.json").is_file():
            raise Refused(f"{args.model}: no model there")
        return asyncio.run(serve(args))
    except Refused as refused:
        print(f"orchard_trainer: {refused}", file=sys.stderr)
        return REFUSED


async def serve(args: argparse.Namespace) -> int:
    from aiohttp import web

    from .engine import Engine

    try:
        engine = Engine(args.model, args.version, max_batch=args.max_batch, threads=args.threads)
    except (OSError, ValueError) as error:
        raise Refused(f"{args.model}: {error}") from error
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app["engine"] = engine
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", health)
    app.router.add_post("/load", load)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, args.host, args.port)
    try:
        await site.start()
    except OSError as error:
        raise Refused(f"cannot listen on {args.host}:{args.port}: {error.strerror}; choose another --port") from error
    port = runner.addresses[0][1]
    print(json.dumps({"event": "ready", "port": port, "version": args.version}), flush=True)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    while not stop.is_set():
        try:
            await asyncio.wait_for(stop.wait(), PARENT_POLL_S)
        except TimeoutError:
            if args.parent_pid is not None and os.getppid() != args.parent_pid:
                break
    # The engine's thread may be inside a step of the model; nobody waits for its answer any more.
    sys.stdout.flush()
    os._exit(DONE)


class Bad(Exception):
    """A request that cannot be served: status 400 and why."""

    def __init__(self, message: str, code: str = "invalid_request"):
        super().__init__(message)
        self.code = code


def problem(status: int, message: str, code: str) -> "web.Response":
    from aiohttp import web

    return web.json_response({"error": {"message": message, "type": "invalid_request_error", "code": code}}, status=status)


async def complete(http: "web.Request") -> "web.Response":
    from aiohttp import web

    from .engine import Request, TooLong

    engine: Engine = http.app["engine"]
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def done(_: Request) -> None:
        loop.call_soon_threadsafe(lambda: ended.done() or ended.set_result(None))

    try:
        body = await read_body(http)
        request = read_request(engine, body, done)
    except Bad as bad:
        return problem(400, str(bad), bad.code)
    engine.submit(request)
    try:
        await ended
    except asyncio.CancelledError:
        request.cancelled = True  # the client hung up
        raise
    if isinstance(request.error, TooLong):
        return problem(400, str(request.error), "context_length_exceeded")
    if request.error is not None:
        return problem(500, f"{type(request.error).__name__}: {request.error}", "engine_error")
    return web.json_response(reply(engine, body, request))


async def read_body(http: "web.Request") -> dict:
    try:
        body = json.loads(await http.read())
    except ValueError as error:
        raise Bad(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Bad("the body is not a JSON object")
    return body


def read_request(engine: "Engine", body: dict, done: Any) -> Any:
    from .engine import Request

    def number(name: str, default: float | None, low: float, high: float) -> float | None:
        value = body.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise Bad(f"{name}: expected a number from {low} to {high}, got {json.dumps(value)}")
        return value

    if body.get("stream"):
        raise Bad("stream: this engine answers in one piece; ask with stream false")
    if body.get("n", 1) != 1:
        raise Bad("n: this engine gives one choice; ask again for more")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Bad("messages: expected a list with at least one message")
    stop = body.get("stop") or []
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise Bad(f"max_tokens: expected a positive integer, got {json.dumps(limit)}")
    seed = body.get("seed")
    return Request(
        text=render(engine, messages, body.get("tools")),
        max_tokens=limit,
        temperature=number("temperature", 1.0, 0, 100),
        top_p=number("top_p", 1.0, 1e-6, 1),
        seed=secrets.randbits(62) if seed is None else int(number("seed", None, -(2**62), 2**62)),
        stop=[stop] if isinstance(stop, str) else stop,
        done=done,
    )


def render(engine: "Engine", messages: list, tools: list | None) -> str:
    """The prompt as text. Tool-call arguments are JSON text on the wire and an object in templates."""
    prepared = []
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Bad(f"messages[{number}]: expected an object with a role")
        message = {**message, "content": text_of(message.get("content"), f"messages[{number}].content")}
        if message.get("tool_calls"):
            message["tool_calls"] = [{**call, "function": {**call["function"], "arguments": arguments_of(call["function"].get("arguments"))}} for call in message["tool_calls"]]
        prepared.append(message)
    try:
        return engine.tokenizer.apply_chat_template(prepared, tools=tools or None, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template may raise anything
        raise Bad(f"messages: the chat template cannot take them: {error}") from error


def text_of(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        return "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise Bad(f"{where}: expected text")
    return content


def arguments_of(text: Any) -> dict:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}


def reply(engine: "Engine", body: dict, request: Any) -> dict:
    """A chat completion with vLLM's fields for token ids."""
    from . import tool_calls

    end = len(request.ids) - 1 if request.ids and request.ids[-1] in engine.ends else len(request.ids)
    text = engine.tokenizer.decode(request.ids[:end], skip_special_tokens=False)
    cut = min((at for word in request.stop if (at := text.find(word)) >= 0), default=None)
    content, calls = tool_calls.parse(text[:cut]) if body.get("tools") else (text[:cut], [])
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{secrets.token_hex(6)}", "type": "function", "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}} for call in calls
        ]
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls and request.finish == "stop" else request.finish}
    if body.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": engine.tokenizer.decode([token]), "logprob": logprob} for token, logprob in zip(request.ids, request.logprobs, strict=True)]}
    answer = {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model", "orchard"),
        "version": request.version,
        "choices": [choice],
        "usage": {"prompt_tokens": len(request.prompt_ids), "completion_tokens": len(request.ids), "total_tokens": len(request.prompt_ids) + len(request.ids)},
    }
    if body.get("return_token_ids"):
        answer["prompt_token_ids"] = request.prompt_ids
        choice["token_ids"] = request.ids
    return answer


async def load(http: "web.Request") -> "web.Response":
    from aiohttp import web

    engine: Engine = http.app["engine"]
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Exception | None] = loop.create_future()
    try:
        body = await read_body(http)
        folder, version = Path(str(body.get("path"))), body.get("version")
        if not isinstance(version, str) or not version:
            raise Bad("version: expected a name")
        if not list(folder.glob("*.safetensors")):
            raise Bad(f"path: {folder} holds no weights")
        if folder.name.startswith("v_") and not (folder / "STABLE").exists():
            raise Bad(f"path: {folder} is not complete: it has no STABLE")
    except Bad as bad:
        return problem(400, str(bad), bad.code)
    engine.load(folder, version, lambda error: loop.call_soon_threadsafe(ended.set_result, error))
    if (error := await ended) is not None:
        return problem(400, str(error), "load_failed")
    return web.json_response({"version": engine.version})


async def health(http: "web.Request") -> "web.Response":
    from aiohttp import web

    engine: Engine = http.app["engine"]
    return web.json_response({"version": engine.version, "running": engine.running, "waiting": engine.waiting, "new_tokens_total": engine.new_tokens})


async def models(http: "web.Request") -> "web.Response":
    from aiohttp import web

    return web.json_response({"object": "list", "data": [{"id": "orchard", "object": "model", "max_model_len": http.app["engine"].context}]})
