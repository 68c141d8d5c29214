"""`orchard_trainer launch …`: torchrun with the same arguments, but with the trainer's exit codes kept.

torchrun itself ends with 1 whatever its workers said, so that wrong data would be retried for ever.
"""

import sys

from .contract import DONE, PREEMPTED, REFUSED


def main(argv: list[str]) -> int:
    """Starts `argv` as torchrun does; 42 when a worker refused its input, 143 when the job was stopped."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    try:
        run(parse_args(argv))
    except SignalException:
        return PREEMPTED
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        rank, first = error.get_first_failure()
        print(f"orchard_trainer: process {rank}: {first.message}", file=sys.stderr)
        return next((code for code in (REFUSED, PREEMPTED) if code in codes), 1)
    return DONE
