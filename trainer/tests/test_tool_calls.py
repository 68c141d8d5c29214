import json

import pytest
from transformers import AutoTokenizer

from orchard_trainer.chat import reply
from orchard_trainer.engine import Engine, Request
from orchard_trainer.tool_calls import parse

BASH = "<tool_call><function=bash><parameter=command>{}</parameter></function></tool_call>"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("ls", "ls"), ("\nls\n", "ls"), ("\n\nls\n\n", "\nls\n"), ("", ""), ("a <b> && 'c' \"d\"\n\te", "a <b> && 'c' \"d\"\n\te")],
)
def test_a_value_loses_one_line_end_on_each_side(value, expected):
    assert parse(BASH.format(value)) == ("", [{"name": "bash", "arguments": {"command": expected}}])


def test_the_spread_out_markup_of_qwen3_coder_is_read():
    text = "I look.\n<tool_call>\n<function=edit>\n<parameter=path>\na.py\n</parameter>\n<parameter=text>\nx\n</parameter>\n</function>\n</tool_call>"
    assert parse(text) == ("I look.\n", [{"name": "edit", "arguments": {"path": "a.py", "text": "x"}}])


def test_json_in_hermes_shape_is_read_and_several_calls_keep_their_order():
    text = 'a<tool_call>{"name": "bash", "arguments": {"command": "ls", "n": [1]}}</tool_call>b' + BASH.format("pwd") + "c"
    content, calls = parse(text)
    assert content == "abc" and [call["arguments"]["command"] for call in calls] == ["ls", "pwd"]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>ls</tool_call>",
        "<tool_call>",
        "</tool_call>",
        "<tool_call><function=bash></tool_call>",
        "<tool_call><function=bash>ls</function></tool_call>",
        "<tool_call><function=bash><parameter=command>ls</function></tool_call>",
        "<tool_call><function=bash><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>",
        '<tool_call>{"name": "bash"}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": "ls"}</tool_call>',
        "<tool_call>[]</tool_call>",
    ],
)
def test_what_cannot_be_read_stays_in_the_content(text):
    assert parse(f"x {text} y") == (f"x {text} y", [])


def test_an_answer_with_a_call_renders_back_to_its_own_ids(model_dir):
    engine = Engine(model_dir, "base", max_batch=1, threads=1)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    ids = tokenizer.encode("I look. " + BASH.format("ls -la") + "<|im_end|>")
    request = Request("", None, 1.0, 1.0, 0, [], lambda: None, ids=ids, logprobs=[0.0] * len(ids), finish="stop")
    choice = reply(engine, {"tools": [{}]}, request)["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "I look. "
    call = choice["message"]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"command": "ls -la"}
    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    rendered = tokenizer.apply_chat_template([choice["message"]], tokenize=False)
    assert tokenizer.encode(rendered) == tokenizer.encode("<|im_start|>assistant\n") + ids + tokenizer.encode("\n")
    assert reply(engine, {}, request)["choices"][0]["message"]["content"] == tokenizer.decode(ids[:-1])
