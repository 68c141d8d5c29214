"""`python -m orchard_trainer init|train|launch|serve`: one process of an orchard run."""

import importlib
import os
import sys

COMMANDS = ("init", "train", "launch", "serve")


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(f"usage: python -m orchard_trainer {'|'.join(COMMANDS)} [--help]", file=sys.stderr)
        return 42
    # Idle threads of GNU OpenMP spin for milliseconds; beside another busy process that costs nine tenths of the speed.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    # Imported late: each command pays only for the libraries it needs.
    return importlib.import_module(f"orchard_trainer.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
