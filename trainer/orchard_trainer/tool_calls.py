"""Reads tool calls out of what a model wrote: Qwen3-Coder's markup and Hermes' JSON."""

import json
import re

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>(.*?)</parameter>\s*", re.DOTALL)


def parse(text: str) -> tuple[str, list[dict]]:
    """The content and the calls, {"name", "arguments"}. What cannot be read as a call stays in the content, to the letter."""
    calls, content, at = [], "", 0
    for match in CALL.finditer(text):
        if (call := read(match.group(1))) is not None:
            calls.append(call)
            content += text[at : match.start()]
            at = match.end()
    return content + text[at:], calls


def read(body: str) -> dict | None:
    if (function := FUNCTION.fullmatch(body)) is not None:
        return from_markup(*function.groups())
    try:
        call = json.loads(body)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not isinstance(call.get("arguments"), dict):
        return None
    return {"name": call["name"], "arguments": call["arguments"]}


def from_markup(name: str, body: str) -> dict | None:
    arguments, at = {}, 0
    while (parameter := PARAMETER.match(body, at)) is not None:
        key, value = parameter.groups()
        if key in arguments:
            return None
        # Templates put a value on lines of its own: one line end before it and one after are theirs.
        arguments[key] = value.removeprefix("\n").removesuffix("\n")
        at = parameter.end()
    return {"name": name, "arguments": arguments} if body[at:].strip() == "" else None
