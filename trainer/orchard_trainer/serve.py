"""`orchard_trainer serve`: chat completions with token ids and exact log-probabilities, on any machine."""

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from aiohttp import web
from transformers.utils.logging import disable_progress_bar

from .chat import Bad, read_body, read_request, reply
from .contract import DONE, REFUSED, Refused
from .engine import Engine, TooLong
from .score import read_score, scored

PARENT_POLL_S = 0.5
MAX_BODY_BYTES = 64 * 1024 * 1024


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="orchard_trainer serve", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model folder in Hugging Face layout")
    parser.add_argument("--version", default="base", help="name of the weights, given back with every reply")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one; the line on standard output says which")
    parser.add_argument("--max-batch", type=int, default=32, help="requests decoded together")
    parser.add_argument("--threads", type=int, help="CPU threads of the model; all cores when left out")
    parser.add_argument("--parent-pid", type=int, help="end when this process is gone")
    args = parser.parse_args(argv)
    disable_progress_bar()  # standard error is for sentences
    try:
        return asyncio.run(serve(args))
    except Refused as refused:
        print(f"orchard_trainer: {refused}", file=sys.stderr)
        return REFUSED


async def serve(args: argparse.Namespace) -> int:
    parent = os.getppid()
    if not (args.model / "config.json").is_file():
        raise Refused(f"{args.model}: no model there, config.json is missing")
    try:
        engine = Engine(args.model, args.version, max_batch=args.max_batch, threads=args.threads)
    except (OSError, ValueError) as error:
        raise Refused(f"{args.model}: {str(error).splitlines()[0]}") from error
    runner = web.AppRunner(application(engine), access_log=None, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, args.host, args.port).start()
    except OSError as error:
        raise Refused(f"cannot listen on {args.host}:{args.port}: {os.strerror(error.errno)}; choose another --port") from error
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    print(json.dumps({"event": "ready", "port": runner.addresses[0][1], "version": args.version}), flush=True)
    stopping = asyncio.ensure_future(stop.wait())
    while not (stop.is_set() or (args.parent_pid is not None and orphaned(args.parent_pid, parent))):
        await asyncio.wait([stopping], timeout=PARENT_POLL_S)
    # The engine's thread may be in the middle of a long forward, whose answers nobody waits for any more.
    os._exit(DONE)


def orphaned(parent_pid: int, parent: int) -> bool:
    """Whether the driver is gone. One that nobody has waited for yet still has its pid: then the new parent tells."""
    if os.getppid() != parent:
        return True
    try:
        os.kill(parent_pid, 0)
    except ProcessLookupError:
        return True
    return False


def application(engine: Engine) -> web.Application:
    async def complete(http: web.Request) -> web.Response:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        body = read_body(await http.read())
        request = read_request(engine, body, lambda: loop.call_soon_threadsafe(ended.set))
        engine.submit(request)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            request.cancelled = True  # the client hung up
            raise
        if isinstance(request.error, TooLong):
            return problem(400, str(request.error), "context_length_exceeded")
        if request.error is not None:
            return problem(500, f"{type(request.error).__name__}: {request.error}", "engine_failed")
        return web.json_response(reply(engine, body, request))

    async def score(http: web.Request) -> web.Response:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        body = read_body(await http.read())
        try:
            asked = read_score(engine, body, lambda: loop.call_soon_threadsafe(ended.set))
        except TooLong as error:
            return problem(400, str(error), "context_length_exceeded")
        engine.score(asked)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            asked.cancelled = True  # the client hung up
            raise
        if asked.error is not None:
            return problem(500, f"{type(asked.error).__name__}: {asked.error}", "engine_failed")
        return web.json_response(scored(body, asked))

    async def load(http: web.Request) -> web.Response:
        body = read_body(await http.read())
        folder, version = body.get("path"), body.get("version")
        if not isinstance(version, str) or not version:
            raise Bad("version: expected the name of the weights")
        if not isinstance(folder, str) or not any(Path(folder).glob("*.safetensors")):
            raise Bad(f"path: no weights in {json.dumps(folder)}")
        if Path(folder).name.startswith("v_") and not (Path(folder) / "STABLE").exists():
            raise Bad(f"path: {folder} is not published yet, STABLE is missing")
        loop, ended, errors = asyncio.get_running_loop(), asyncio.Event(), []

        def done(error: Exception | None) -> None:
            errors.append(error)
            loop.call_soon_threadsafe(ended.set)

        engine.load(Path(folder), version, done)
        await ended.wait()
        return problem(400, str(errors[0]), "load_failed") if errors[0] else web.json_response({"version": version})

    async def health(_: web.Request) -> web.Response:
        state = {
            "version": engine.version,
            "running": engine.running,
            "waiting": engine.waiting,
            "prompt_tokens_total": engine.prompt_tokens,
            "new_tokens_total": engine.new_tokens,
        }
        return web.json_response(state)

    async def models(_: web.Request) -> web.Response:
        model = {"id": "orchard", "object": "model", "max_model_len": engine.context}
        return web.json_response({"object": "list", "data": [model]})

    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[refusals])
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_post("/v1/completions", score)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", health)
    app.router.add_post("/load", load)
    return app


@web.middleware
async def refusals(http: web.Request, handler) -> web.StreamResponse:
    try:
        return await handler(http)
    except Bad as bad:
        return problem(400, str(bad), "invalid_request")


def problem(status: int, message: str, code: str) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return web.json_response({"error": {"message": message, "type": kind, "code": code}}, status=status)
