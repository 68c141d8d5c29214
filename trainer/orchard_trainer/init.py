"""`orchard_trainer init`: a Qwen3-architecture model from scratch, with a tokenizer learned from the corpus."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from .contract import DONE, REFUSED, Refused, read_json, write_folder

SPECIAL = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
MARKUP = ["<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", "<think>", "</think>"]
SPEC = ("vocab", "hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "context", "seed")
# A word with the space before it, one digit, punctuation, line ends, indentation up to the last space.
PIECES = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\n+|[^\S\n]+(?!\S)|[^\S\n]+"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="orchard_trainer init", description=__doc__)
    parser.add_argument("--spec", type=Path, required=True, help=f"JSON object of {', '.join(SPEC)}")
    parser.add_argument("--corpus", type=Path, required=True, help='JSON lines {"text": "…"}: what the tokenizer learns from')
    parser.add_argument("--out", type=Path, required=True, help="the model folder to make; must not exist")
    args = parser.parse_args(argv)
    try:
        spec = load_spec(args.spec)
        if args.out.exists():
            raise Refused(f"{args.out}: exists already; remove it or choose another folder")
        tokenizer = train_tokenizer(texts(args.corpus), spec["vocab"])
        write_folder(args.out, lambda folder: write_model(folder, spec, tokenizer))
    except Refused as refused:
        print(f"orchard_trainer: {refused}", file=sys.stderr)
        return REFUSED
    return DONE


def load_spec(path: Path) -> dict[str, int]:
    spec = read_json(path)
    for name in sorted(set(SPEC) ^ spec.keys()):
        raise Refused(f"{path}: {name}: {'missing' if name in SPEC else 'unknown key'}")
    for name, value in spec.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < (name != "seed"):
            raise Refused(f"{path}: {name}: expected a positive integer, got {json.dumps(value)}")
    if spec["heads"] % spec["kv_heads"] != 0:
        raise Refused(f"{path}: kv_heads: {spec['heads']} heads cannot share {spec['kv_heads']} key-value heads evenly")
    if spec["head_dim"] % 2 != 0:
        raise Refused(f"{path}: head_dim: rotary positions need an even number, got {spec['head_dim']}")
    smallest = 256 + len(SPECIAL) + len(MARKUP)
    if spec["vocab"] < smallest:
        raise Refused(f"{path}: vocab: every byte and marker needs an id, at least {smallest}, got {spec['vocab']}")
    return spec


def texts(corpus: Path) -> Iterator[str]:
    """The corpus between its markers: these are whole tokens, so no merge may learn from their letters."""
    markers = re.compile("|".join(map(re.escape, SPECIAL + MARKUP)))
    try:
        lines = corpus.open(encoding="utf-8")
    except OSError as error:
        raise Refused(f"{corpus}: {error.strerror}") from None
    with lines:
        for number, line in enumerate(lines, 1):
            try:
                yield from markers.split(json.loads(line)["text"])
            except (ValueError, KeyError, TypeError):
                raise Refused(f'{corpus}:{number}: expected a line {{"text": "…"}}') from None


def train_tokenizer(pieces: Iterator[str], vocab: int):
    """Byte-level BPE with at most `vocab` ids, markers included."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PIECES), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(MARKUP),
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in MARKUP])
    return tokenizer


def write_model(folder: Path, spec: dict[str, int], tokenizer) -> None:
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    pad, _, end = (tokenizer.token_to_id(token) for token in SPECIAL)
    config = Qwen3Config(
        vocab_size=spec["vocab"],
        hidden_size=spec["hidden"],
        intermediate_size=spec["intermediate"],
        num_hidden_layers=spec["layers"],
        num_attention_heads=spec["heads"],
        num_key_value_heads=spec["kv_heads"],
        head_dim=spec["head_dim"],
        max_position_embeddings=spec["context"],
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=end,
        dtype="float32",
    )
    torch.manual_seed(spec["seed"])
    Qwen3ForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        additional_special_tokens=[SPECIAL[1]],
        model_max_length=spec["context"],
        clean_up_tokenization_spaces=False,
        chat_template=Path(__file__).with_name("chat_template.jinja").read_text(),
    ).save_pretrained(folder)
