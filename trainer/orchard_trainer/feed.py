"""Which rows every optimizer step trains on, and the wait for batch folders that are still to come."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .contract import Batch, Config, Preempted, Refused
from .journal import Journal

POLL_S = 0.2
HEARTBEAT_S = 30.0


@dataclass(frozen=True)
class Position:
    """How far the job is, after a whole optimizer step. Kept in checkpoints and in state.json."""

    step: int = 0  # optimizer steps done
    batch: int = 0  # batch folders consumed
    batch_step: int = 0  # optimizer steps done in the folder after them
    trained_tokens: int = 0

    def json(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Step:
    """One optimizer step, the same on every process."""

    batch: Batch
    rows: list[int]
    epoch: int
    of: int  # optimizer steps of the whole job, as far as the folders seen so far tell
    after: Position
    ends_batch: bool
    last: bool  # of the whole job


class Feed:
    """Iterates over the steps left after `position`, waiting for each folder's READY.

    `agree` tells whether any process says yes, so that all of them wait, go on or stop together.
    """

    def __init__(
        self,
        config: Config,
        position: Position,
        journal: Journal,
        stopping: Callable[[], bool],
        agree: Callable[[bool], bool],
        check: Callable[[Batch], None],
    ):
        self._config, self.position, self._journal = config, position, journal
        self._stopping, self._agree, self._check = stopping, agree, check

    def __iter__(self) -> Iterator[Step]:
        config = self._config
        while self.position.batch < config.steps:
            start = self.position
            batch = self._open(start.batch)
            plan, exhausted = plan_steps(batch, config, start)
            before = start.step - start.batch_step  # steps of the folders consumed earlier
            of = before + len(plan) * (1 if exhausted else config.steps - start.batch)
            for number in range(start.batch_step, len(plan)):
                epoch, rows, trained = plan[number]
                ends_batch = number + 1 == len(plan)
                after = Position(
                    step=before + number + 1,
                    batch=start.batch + ends_batch,
                    batch_step=0 if ends_batch else number + 1,
                    trained_tokens=self.position.trained_tokens + trained,
                )
                yield Step(batch, rows, epoch, of, after, ends_batch, last=ends_batch and (exhausted or after.batch == config.steps))
                self.position = after
        raise Refused("trainer.json: steps: asks for less than the last checkpoint has trained already")

    def _open(self, number: int) -> Batch:
        folder = Path(self._config.batches) / f"step_{number:06d}"
        ready = folder / "READY"
        since = time.monotonic()
        told = float("-inf")
        while self._agree(not ready.exists()):
            waited = time.monotonic() - since
            if self._agree(self._stopping()):
                raise Preempted
            if self._agree(waited > self._config.waitTimeoutS):
                raise TimeoutError(f"waited {waited:.0f} s for {ready}; is whoever writes it still running?")
            if waited - told >= HEARTBEAT_S:
                self._journal.event("waiting", step=self.position.step, path=str(ready), seconds=round(waited, 1))
                told = waited
            time.sleep(POLL_S)
        batch = Batch(folder)
        self._check(batch)
        return batch


def plan_steps(batch: Batch, config: Config, start: Position) -> tuple[list[tuple[int, list[int], int]], bool]:
    """(epoch, rows, trained tokens) of every optimizer step of a folder, a seeded shuffle for each epoch, and
    whether the job's budget of trained tokens cuts it short.

    `start` may lie inside the folder; the plan is the same from wherever it is asked.
    """
    trained = [batch.trained(row) for row in range(len(batch.lengths))]
    plan = []
    for epoch in range(config.epochs):
        order = list(range(len(trained)))
        random.Random(f"{config.seed}/{start.batch}/{epoch}").shuffle(order)
        for rows in parts_of(order, config):
            plan.append((epoch, rows, sum(trained[row] for row in rows)))
    if config.trainedTokens is None:
        return plan, False
    budget = config.trainedTokens - start.trained_tokens + sum(tokens for _, _, tokens in plan[: start.batch_step])
    for number, (epoch, rows, tokens) in enumerate(plan):
        if tokens >= budget:
            kept, spent = 0, 0
            while spent < budget:
                spent += trained[rows[kept]]
                kept += 1
            return [*plan[:number], (epoch, rows[:kept], spent)], True
        budget -= tokens
    return plan, False


def parts_of(order: list[int], config: Config) -> list[list[int]]:
    """The rows of each optimizer step: `batchRows` at a time, or in `updates` parts of nearly equal size."""
    if config.updates is None:
        return [order[first : first + config.batchRows] for first in range(0, len(order), config.batchRows)]
    parts = min(config.updates, len(order))
    return [order[number * len(order) // parts : (number + 1) * len(order) // parts] for number in range(parts)]
