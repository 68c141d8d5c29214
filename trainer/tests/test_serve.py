"""What a client of `orchard_trainer serve` gets: ids, log-probabilities, versions, refusals."""

import json
import random
import shutil
import socket
import threading
import time

import pytest
import torch
from conftest import SPEC
from safetensors.torch import load_file, save_file
from serving import Oracle, Server, ids_of, logprobs_of
from transformers import AutoTokenizer

EXACT = 1e-4


def redrawn(source, folder, *, seed):
    """A copy of a model with weights large enough that what stands before decides what comes next."""
    shutil.copytree(source, folder)
    torch.manual_seed(seed)
    weights = load_file(folder / "model.safetensors")
    drawn = {name: torch.randn_like(each) * 0.12 if each.dim() == 2 else each for name, each in weights.items()}
    save_file(drawn, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def base(model_dir, tmp_path_factory):
    return redrawn(model_dir, tmp_path_factory.mktemp("serve") / "base", seed=0)


@pytest.fixture(scope="module")
def other(model_dir, tmp_path_factory):
    folder = redrawn(model_dir, tmp_path_factory.mktemp("serve") / "v_000001", seed=1)
    (folder / "STABLE").touch()
    return folder


@pytest.fixture(scope="module")
def server(base):
    with Server(base, "--version", "base", "--max-batch", 8) as running:
        yield running


@pytest.fixture(scope="module")
def oracle(base):
    return Oracle(base)


def mixed(count, seed=0):
    draw = random.Random(seed)
    words = ["total", "grep -rn", "x12", "\n    return", "cargo", "==", "é"]
    return [
        {
            "text": " ".join(draw.choices(words, k=draw.randint(1, 25))),
            "max_tokens": draw.randint(1, 80),
            "temperature": draw.choice([0, 0.5, 1, 1.7]),
            "top_p": draw.choice([1, 0.8]),
            "seed": number,
        }
        for number, _ in enumerate(range(count))
    ]


def test_a_reply_has_ids_logprobs_usage_and_the_version(server, base):
    answer = server.ask("hello", max_tokens=5, seed=1, model="mine")
    choice = answer["choices"][0]
    tokenizer = AutoTokenizer.from_pretrained(base)
    assert tokenizer.decode(answer["prompt_token_ids"]) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert (answer["version"], answer["model"], choice["finish_reason"]) == ("base", "mine", "length")
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == 5
    assert [each["token"] for each in choice["logprobs"]["content"]] == [tokenizer.decode([token]) for token in choice["token_ids"]]
    assert answer["usage"] == {"prompt_tokens": len(answer["prompt_token_ids"]), "completion_tokens": 5, "total_tokens": len(answer["prompt_token_ids"]) + 5}
    assert server.get("/v1/models")["data"][0]["max_model_len"] == SPEC["context"]


def test_ids_and_logprobs_come_only_when_asked_for(server):
    _, answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
    assert "prompt_token_ids" not in answer and answer["choices"][0].keys() == {"index", "message", "finish_reason"}


def test_logprobs_are_those_of_a_full_forward_whatever_joins_and_leaves(server, oracle):
    bodies = mixed(40)
    for body, answer in zip(bodies, server.ask_all(bodies, gap_s=0.01), strict=True):
        assert oracle.difference(answer, body["temperature"] or 1.0) < EXACT


def test_a_seed_gives_the_same_tokens_alone_and_in_company(server):
    bodies = mixed(6, seed=5)
    together = server.ask_all(bodies + mixed(6, seed=9))[:6]
    assert [ids_of(each) for each in together] == [ids_of(server.ask(**body)) for body in bodies]
    assert len({str(ids_of(server.ask("hello", max_tokens=8))) for _ in range(3)}) == 3


def test_temperature_0_takes_the_likeliest_token(server, oracle):
    answer = server.ask("return total", temperature=0, max_tokens=40)
    assert oracle.scores(answer).argmax(-1).tolist() == ids_of(answer)


def test_top_p_draws_from_the_likeliest_tokens_in_their_proportion(server, oracle):
    bodies = [{"text": "count", "max_tokens": 1, "top_p": 0.3, "seed": seed} for seed in range(400)]
    drawn = [ids_of(answer)[0] for part in range(0, 400, 40) for answer in server.ask_all(bodies[part : part + 40])]
    mass = oracle.scores(server.ask(**bodies[0]))[0].exp()
    ordered, places = mass.sort(descending=True)
    kept = places[: int((ordered.cumsum(0) < 0.3).sum()) + 1].tolist()
    assert set(drawn) <= set(kept)
    for token in kept[:3]:
        expected = 400 * (mass[token] / mass[kept].sum()).item()
        assert abs(drawn.count(token) - expected) < 5 * expected**0.5 + 3


def test_the_next_turn_repeats_the_sampled_ids_and_computes_only_its_tail(server, oracle):
    dialogues = [[{"role": "system", "content": "Work."}, {"role": "user", "content": f"task {number}"}] for number in range(12)]
    before = [[] for _ in dialogues]
    for turn in range(3):  # more dialogues than slots: some find their keys, some do not
        answers = server.ask_all([{"text": each, "max_tokens": 12, "seed": turn} for each in dialogues])
        for number, answer in enumerate(answers):
            assert answer["prompt_token_ids"][: len(before[number])] == before[number]
            assert oracle.difference(answer) < EXACT
            before[number] = answer["prompt_token_ids"] + ids_of(answer)
            dialogues[number] = [*dialogues[number], answer["choices"][0]["message"], {"role": "tool", "content": f"said {number}"}]


def test_a_tool_call_of_the_history_is_rendered_from_its_json(server, base):
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": "ls", "n": 3})}}
    answer = server.ask([{"role": "user", "content": [{"type": "text", "text": "go"}]}, {"role": "assistant", "content": None, "tool_calls": [call]}], max_tokens=1)
    text = AutoTokenizer.from_pretrained(base).decode(answer["prompt_token_ids"])
    assert "<tool_call><function=bash><parameter=command>ls</parameter><parameter=n>3</parameter></function></tool_call><|im_end|>" in text


def test_a_stop_text_ends_the_answer_before_it_and_keeps_its_ids(server):
    whole = server.ask("hello", seed=4, max_tokens=30)
    text = whole["choices"][0]["message"]["content"]
    word = text[len(text) // 2 :][:4]
    answer = server.ask("hello", seed=4, max_tokens=30, stop=["never", word])
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["content"] == text[: text.index(word)] != ""
    assert ids_of(answer) == ids_of(whole)[: len(ids_of(answer))] and len(ids_of(answer)) < 30


def test_without_max_tokens_an_answer_ends_with_the_stop_token_or_the_context(server, base):
    end = AutoTokenizer.from_pretrained(base).eos_token_id
    reasons = set()
    for answer in server.ask_all([{"text": "hello", "seed": seed, "temperature": 3.0} for seed in range(12)]):
        reason, ids = answer["choices"][0]["finish_reason"], ids_of(answer)
        assert (ids[-1] == end) == (reason == "stop") and end not in ids[:-1]
        assert reason == "stop" or answer["usage"]["total_tokens"] == SPEC["context"]
        reasons.add(reason)
    assert "stop" in reasons


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "bash", "arguments": "{"}}]}]}, "messages[0].tool_calls[0].function.arguments"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"stop": [3]}, "stop"),
        ({"tools": {}}, "tools"),
        ({"n": 2}, "n:"),
        ({"stream": True}, "stream"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_by_name(server, fields, named):
    body = fields if isinstance(fields, bytes) else {"messages": [{"role": "user", "content": "hi"}], **fields}
    status, answer = server.post("/v1/chat/completions", body)
    assert status == 400 and named in answer["error"]["message"]


def test_a_prompt_that_fills_the_context_is_refused_with_the_code_for_it(server):
    status, answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x " * SPEC["context"]}]})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
    assert str(SPEC["context"]) in answer["error"]["message"]


def test_a_client_that_hangs_up_gives_its_place_to_others(base):
    with Server(base, "--max-batch", 1) as server:
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "temperature": 0.01, "stop": ["never to be"]}).encode()
        for _ in range(3):
            client = socket.create_connection(("127.0.0.1", server.ready["port"]))
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            client.close()
        time.sleep(0.05)
        assert len(ids_of(server.ask("hi", max_tokens=3))) == 3
        assert server.until(lambda health: health["running"] == 0 and health["waiting"] == 0)["new_tokens_total"] < 3 * 200


def test_after_a_load_nothing_of_the_old_weights_is_left(base, other):
    with Server(base, "--version", "old") as server:
        dialogue = [{"role": "user", "content": "the same long question " * 4}]
        old = server.ask(dialogue, max_tokens=20, seed=1)
        assert server.post("/load", {"path": str(other), "version": "new"}) == (200, {"version": "new"})
        new = server.ask(dialogue, max_tokens=20, seed=1)
        turn = server.ask([*dialogue, old["choices"][0]["message"], {"role": "user", "content": "and now?"}], max_tokens=20)
        assert (old["version"], new["version"], turn["version"], server.get("/health")["version"]) == ("old", "new", "new", "new")
        assert Oracle(base).difference(old) < EXACT
        assert Oracle(other).difference(new) < EXACT and Oracle(other).difference(turn) < EXACT
        assert max(abs(a - b) for a, b in zip(logprobs_of(old), logprobs_of(new), strict=False)) > 0.01
        whole = old["prompt_token_ids"] + ids_of(old)
        assert turn["prompt_token_ids"][: len(whole)] == whole  # ids are no weights: the episode stays one sequence


def test_a_load_waits_for_what_runs_and_holds_back_what_comes(base, other):
    with Server(base, "--version", "old") as server:
        running = server.later(text="hi", temperature=0, max_tokens=230)
        loaded = {}
        loading = threading.Thread(target=lambda: loaded.update(answer=server.post("/load", {"path": str(other), "version": "new"})))
        loading.start()
        time.sleep(0.02)
        late = server.ask("hi", max_tokens=10)
        running.join()
        loading.join()
        assert loaded["answer"] == (200, {"version": "new"})
        assert len(ids_of(running.answer)) > 100 and running.answer["version"] == "old"
        assert Oracle(base).difference(running.answer) < EXACT
        assert late["version"] == "new" and Oracle(other).difference(late) < EXACT


def test_weights_that_do_not_fit_are_refused_and_the_old_ones_go_on(server, base, oracle, tmp_path):
    def refused(folder, words):
        status, answer = server.post("/load", {"path": str(folder), "version": "x"})
        assert status == 400 and words in answer["error"]["message"], answer

    wide = shutil.copytree(base, tmp_path / "wide")
    weights = load_file(wide / "model.safetensors")
    save_file({name: each.repeat(*([2] * each.dim())) for name, each in weights.items()}, wide / "model.safetensors")
    refused(wide, "another architecture")
    slow = shutil.copytree(base, tmp_path / "slow")
    config = json.loads((slow / "config.json").read_text())
    (slow / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.1}))
    refused(slow, "rms_norm_eps")
    torn = shutil.copytree(base, tmp_path / "torn")
    (torn / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes()[:5000])
    refused(torn, "")
    refused(shutil.copytree(base, tmp_path / "v_000009"), "STABLE")
    refused(tmp_path / "nothing", "no weights")
    answer = server.ask("hi", max_tokens=10)
    assert answer["version"] == "base" and oracle.difference(answer) < EXACT


def test_the_scores_of_a_text_are_those_it_was_sampled_with_and_those_of_a_plain_forward(server, oracle):
    requests = mixed(12, seed=5)
    answers = server.ask_all([{**each, "temperature": 0.8} for each in requests])
    prompts = [answer["prompt_token_ids"] + ids_of(answer) for answer in answers]
    scores = server.score_all([{"prompt": ids, "prompt_logprobs": 0, "max_tokens": 1, "temperature": 0.8} for ids in prompts])
    for ids, answer, reply in zip(prompts, answers, scores, strict=True):
        given = reply["choices"][0]["prompt_logprobs"]
        assert given[0] is None and reply["version"] == "base"
        found = [given[place][str(token)]["logprob"] for place, token in enumerate(ids) if place > 0]
        assert found[-len(ids_of(answer)) :] == pytest.approx(logprobs_of(answer), abs=EXACT)
        with torch.no_grad():
            exact = (oracle.model(torch.tensor([ids])).logits[0] / 0.8).log_softmax(-1)
        assert found == pytest.approx([exact[place, token].item() for place, token in enumerate(ids[1:])], abs=EXACT)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"prompt": [5, 6]}, "prompt_logprobs: expected 0 or 1"),
        ({"prompt": [5, 6], "prompt_logprobs": 0, "max_tokens": 20}, "max_tokens: expected 0 or 1"),
        ({"prompt": [5, 10**6], "prompt_logprobs": 0}, "prompt: expected text or a list of token ids below"),
        ({"prompt": [], "prompt_logprobs": 0}, "prompt: expected text"),
        ({"prompt": [5] * 4000, "prompt_logprobs": 0}, "the prompt has 4000 tokens"),
        ({"prompt": [5, 6], "prompt_logprobs": 0, "temperature": 0}, "temperature: expected more than 0"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_field(server, body, sentence):
    status, answer = server.post("/v1/completions", body)
    assert status == 400 and sentence in answer["error"]["message"]


def test_text_is_scored_by_the_models_own_tokenizer(server, base):
    text = "<|im_start|>def f(x):\n\treturn 12"
    status, answer = server.post("/v1/completions", {"prompt": text, "prompt_logprobs": 0, "return_token_ids": True})
    assert status == 200
    assert answer["choices"][0]["prompt_token_ids"] == AutoTokenizer.from_pretrained(base).encode(text, add_special_tokens=False)


def test_attempts_at_one_task_that_come_together_compute_their_prompt_once(base):
    with Server(base, "--max-batch", 8) as own:
        prompt = {"text": "total " * 60, "max_tokens": 4, "temperature": 1}
        together = own.ask_all([{**prompt, "seed": seed} for seed in range(8)])
        assert own.get("/health")["prompt_tokens_total"] < 2 * len(together[0]["prompt_token_ids"])
        alone = [own.ask_all([{**prompt, "seed": seed}])[0] for seed in range(8)]
        assert [ids_of(each) for each in together] == [ids_of(each) for each in alone]
