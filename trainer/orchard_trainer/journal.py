"""metrics.jsonl, events.jsonl and the same lines on standard output, one JSON object each."""

import json
import os
import sys
import time
from pathlib import Path


def weights_folder(job: Path, version: str) -> Path:
    """Where the weights of a version like sft@v_000001 lie; absolute, wherever the job's folder was moved."""
    return (job / "weights" / version.rpartition("@")[2]).resolve()


class Journal:
    """Only the first process writes; the others keep quiet."""

    def __init__(self, folder: Path, writes: bool):
        self._folder, self._writes = folder, writes

    def event(self, event: str, **values: object) -> None:
        """Something that happened: waiting, checkpoint, published."""
        self._line("events.jsonl", {"event": event, "time": time.time(), **values})

    def step(self, **values: object) -> None:
        """One optimizer step."""
        self._line("metrics.jsonl", {"event": "step", "time": time.time(), **values})

    def published(self, step: int, version: str) -> None:
        """Weights that an engine may load, complete with STABLE."""
        self.event("published", step=step, path=str(weights_folder(self._folder, version)), version=version)

    def rewind(self, step: int) -> None:
        """Forgets the metrics after `step`: those steps run again. A torn last line goes with them."""
        path = self._folder / "metrics.jsonl"
        if not self._writes or not path.exists():
            return
        kept = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("}\n") and json.loads(line)["step"] <= step]
        partial = path.with_suffix(".partial")
        partial.write_text("".join(kept))
        partial.replace(path)

    def _line(self, file: str, line: dict) -> None:
        if not self._writes:
            return
        text = json.dumps(line)
        with (self._folder / file).open("a") as journal:
            journal.write(text + "\n")
        try:
            print(text, flush=True)
        except BrokenPipeError:
            sys.stdout = open(os.devnull, "w")  # whoever listened is gone; the files have it all
