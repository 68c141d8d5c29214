"""Reads tool calls out of what a model wrote: Qwen3-Coder's markup and Hermes' JSON."""

import json
import re

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>(.*?)</parameter>\s*", re.DOTALL)


def parse(text: str) -> tuple[str, list[dict]]:
    """Content and [{"name", "arguments"}]. What cannot be read as a call stays in the content, to the letter."""
    calls, rest, at = [], [], 0
    for match in CALL.finditer(text):
        if (call := read(match.group(1))) is None:
            continue
        rest.append(text[at : match.start()])
        calls.append(call)
        at = match.end()
    return "".join([*rest, text[at:]]), calls


def read(body: str) -> dict | None:
    if (function := FUNCTION.fullmatch(body)) is not None:
        arguments, at = {}, 0
        inside = function.group(2)
        while (parameter := PARAMETER.match(inside, at)) is not None:
            arguments[parameter.group(1)] = without_frame(parameter.group(2))
            at = parameter.end()
        return {"name": function.group(1), "arguments": arguments} if inside[at:].strip() == "" else None
    try:
        call = json.loads(body)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not isinstance(call.get("arguments"), dict):
        return None
    return {"name": call["name"], "arguments": call["arguments"]}


def without_frame(value: str) -> str:
    """Templates put a value on lines of its own: one line end before it and one after are theirs."""
    return value.removeprefix("\n").removesuffix("\n")
