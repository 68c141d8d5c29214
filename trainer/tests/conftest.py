import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

SPEC = {"vocab": 320, "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "intermediate": 64, "context": 256, "seed": 3}


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "orchard_trainer", *map(str, words)]


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as `init` makes it from a corpus of random commands."""
    folder = tmp_path_factory.mktemp("base")
    draw = random.Random(0)
    words = ["def total(items):", "return", "weight - 1", "x12 == 345", "grep -rn", "cargo/load.py", "\n    ", "self.count"]
    lines = [{"text": f"<|im_start|>user\n{' '.join(draw.choices(words, k=30))}<|im_end|>\n"} for _ in range(50)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "spec.json").write_text(json.dumps(SPEC))
    subprocess.run(
        command("init", "--spec", folder / "spec.json", "--corpus", folder / "corpus.jsonl", "--out", folder / "model"), check=True
    )
    return folder / "model"
