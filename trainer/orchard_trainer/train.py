"""`orchard_trainer train`: runs the job of a folder, or goes on with it, and says how it ended by its exit code."""

import argparse
import fcntl
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from .contract import DONE, PREEMPTED, REFUSED, Preempted, Refused, load_config, read_json
from .journal import Journal

PARENT_POLL_S = 1.0
LOCK_TIMEOUT_S = 120.0


def main(argv: list[str]) -> int:
    """0 finished, 42 wrong configuration or data, 143 stopped after a checkpoint; anything else may be retried."""
    parser = argparse.ArgumentParser(prog="orchard_trainer train", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="job folder with trainer.json")
    parser.add_argument("--threads", type=int, help="CPU threads of this process")
    parser.add_argument("--parent-pid", type=int, help="stop, with a checkpoint, when this process is gone")
    args = parser.parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if args.parent_pid is not None:
        threading.Thread(target=watch, args=(args.parent_pid, stop), daemon=True).start()
    first = os.environ.get("RANK", "0") == "0"
    try:
        config = load_config(args.dir / "trainer.json")
        lock = hold(args.dir / "trainer.lock", stop) if first else None
        state = args.dir / "state.json"
        if state.exists() and (ended := read_json(state))["finished"]:
            Journal(args.dir, writes=first).published(ended["step"], ended["version"])
            return DONE
        import torch
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # standard error is for sentences
        if args.threads is not None:
            torch.set_num_threads(args.threads)
        from .trainer import run

        run(args.dir, config, stop.is_set)
        if lock is not None:
            lock.close()
    except Refused as refused:
        return ended_with(REFUSED, str(refused))
    except Preempted:
        return ended_with(PREEMPTED, "stopped; the same command goes on from the last checkpoint")
    except TimeoutError as error:
        return ended_with(1, str(error))
    return DONE


def ended_with(code: int, sentence: str) -> int:
    print(f"orchard_trainer: {sentence}", file=sys.stderr)
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        Path(file).write_text(json.dumps({"message": sentence}))  # for the launcher, which cannot see the line above
    return code


def hold(path: Path, stop: threading.Event) -> TextIO:
    """Keeps a second trainer out of the job. One left over from a killed driver gets time to write its checkpoint."""
    file = path.open("w")
    until = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if stop.is_set():
                raise Preempted from None
            if time.monotonic() > until:
                raise TimeoutError(f"waited {LOCK_TIMEOUT_S:.0f} s for {path}; another trainer works in this folder") from None
            time.sleep(0.1)


def watch(pid: int, stop: threading.Event) -> None:
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            stop.set()
            return
        time.sleep(PARENT_POLL_S)
