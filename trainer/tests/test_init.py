import json
import subprocess
from pathlib import Path

import torch
from conftest import SPEC, command
from transformers import AutoModelForCausalLM, AutoTokenizer

from orchard_trainer.init import load_spec, train_tokenizer, write_model

ROOT = Path(__file__).parents[2]
TEXTS = [
    "hello   world\n\n    return x12 + 345",
    "<|im_start|>user\nfoo é ü 漢字 🙂 \t tab<|im_end|>\n",
    "<tool_call><function=bash><parameter=command>sed -i '7s/ - / + /' a.py</parameter></function></tool_call>",
    "  trailing   ",
    "\r\n x\r\n",
    "<thinking> <|im_st",
    "a\u00a0b \u2028 x  \n  \n y",
]
SCRIPT = """
import { readFileSync } from 'node:fs';
import { Tokenizer } from '@huggingface/tokenizers';
const [folder, texts] = process.argv.slice(1);
const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, 'utf8'));
const tokenizer = new Tokenizer(read('tokenizer.json'), read('tokenizer_config.json'));
console.log(JSON.stringify(JSON.parse(texts).map((text) => tokenizer.encode(text, { add_special_tokens: false }).ids)));
"""


def test_a_new_model_answers_through_the_usual_classes(model_dir):
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    logits = model(**prompt).logits
    assert logits.shape[-1] == SPEC["vocab"] and torch.isfinite(logits).all()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert tokenizer.eos_token == "<|im_end|>" and model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_the_tokenizer_keeps_every_text_and_splits_digits(model_dir):
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert len(tokenizer("345").input_ids) == 3
    assert len(tokenizer("<tool_call></parameter><|im_end|>").input_ids) == 3


def test_node_and_python_give_the_same_ids(model_dir):
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    node = [ROOT / "node_modules/.bin/node", "--input-type=module", "-e", SCRIPT, "--", model_dir, json.dumps(TEXTS)]
    ids = json.loads(subprocess.run(node, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert ids == [tokenizer(text).input_ids for text in TEXTS]


def test_the_same_seed_gives_the_same_bytes(model_dir, tmp_path):
    spec = load_spec(model_dir.parent / "spec.json")
    write_model(tmp_path, spec, train_tokenizer(iter(["some other text"]), spec["vocab"]))
    assert (tmp_path / "model.safetensors").read_bytes() == (model_dir / "model.safetensors").read_bytes()


def test_a_wrong_spec_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"text": "x"}\n')
    for changes, sentence in [
        ({"kv_heads": 3}, "kv_heads: 4 heads cannot share 3"),
        ({"depth": 1}, "depth: unknown key"),
        ({"vocab": 100}, "vocab: every byte and marker needs an id"),
    ]:
        (tmp_path / "spec.json").write_text(json.dumps({**SPEC, **changes}))
        result = subprocess.run(
            command("init", "--spec", tmp_path / "spec.json", "--corpus", tmp_path / "corpus.jsonl", "--out", tmp_path / "out"),
            check=False,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 42 and sentence in result.stderr and not (tmp_path / "out").exists()
