"""Continuous batching: requests join and leave between two steps of the model.

Every running request owns a slot of the cache. A new one starts from the longest sequence in the cache that its prompt
begins with: an agent's next turn repeats all that was said, and only its tail has to be computed.
"""

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from .dialogues import Dialogues
from .packing import PACKABLE
from .reload import load_weights
from .sampling import draw
from .slots import Plan, SlotCache

PASS_TOKENS = 4096  # new tokens of one forward: a longer one is not faster, and holds up those who decode
SCORE_CHUNK = 1024  # places whose logits are held at once
SHARED = 32  # tokens that a prompt must have in common with one about to be computed, to be worth waiting for it


class TooLong(ValueError):
    """The prompt leaves no room for an answer in the model's context."""


@dataclass(eq=False)
class Request:
    text: str  # the prompt, as the chat template gives it
    max_tokens: int | None  # the rest of the context when None
    temperature: float
    top_p: float
    seed: int
    stop: list[str]
    done: Callable[[], None]  # called once, in the engine's thread, unless cancelled before it ran
    cancelled: bool = False
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""  # stop | length
    version: str = ""  # of the weights that wrote all of it
    error: Exception | None = None

    def __post_init__(self):
        self.chance = random.Random(self.seed)  # its own, so that neighbours in the batch change nothing


@dataclass(eq=False)
class Score:
    """Log-probabilities asked for: of each of `ids` behind those before it."""

    ids: list[int]
    temperature: float
    done: Callable[[], None]
    cancelled: bool = False
    logprobs: list[float] = field(default_factory=list)  # one less than ids: the first has none
    version: str = ""
    error: Exception | None = None


@dataclass(eq=False)
class Slot:
    number: int
    request: Request | None = None
    keys: list[int] = field(default_factory=list)  # ids whose keys are in the cache
    used: int = 0


class Engine:
    """Runs the model in a thread of its own; `submit` and `load` may be called from any other."""

    def __init__(self, folder: Path, version: str, *, max_batch: int, threads: int | None = None):
        """Raises OSError or ValueError for a folder that holds no model this engine can run."""
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(self.device).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        config = self.model.config
        if config.model_type not in PACKABLE or getattr(config, "sliding_window", None) is not None:
            raise ValueError(f"{config.model_type} is not among {', '.join(PACKABLE)} with full attention, which this engine runs; serve it with another")
        self.context: int = config.max_position_embeddings
        ends = self.model.generation_config.eos_token_id
        self.ends = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self.version = version
        self.new_tokens = 0
        self.prompt_tokens = 0  # computed, not taken from the cache
        self._dialogues = Dialogues(self.tokenizer)
        self.decode = self._dialogues.decode
        self._cache = SlotCache(config, slots=max_batch, dtype=dtype, device=self.device)
        self._cache.attach(self.model)
        # Logits of some places only: with a large vocabulary the head costs more than the layers.
        self._places: torch.Tensor | None = None
        self.model.get_output_embeddings().register_forward_pre_hook(
            lambda _, inputs: inputs[0] if self._places is None else inputs[0][0, self._places]
        )
        self._slots = [Slot(number) for number in range(max_batch)]
        self._clock = 0
        self._waiting: deque[Request] = deque()
        self._scores: deque[Score] = deque()
        self._load: tuple[Path, str, Callable[[Exception | None], None]] | None = None
        self._wake = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def running(self) -> int:
        return sum(slot.request is not None for slot in self._slots)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, request: Request) -> None:
        with self._wake:
            self._waiting.append(request)
            self._wake.notify()

    def score(self, score: Score) -> None:
        with self._wake:
            self._scores.append(score)
            self._wake.notify()

    def load(self, folder: Path, version: str, done: Callable[[Exception | None], None]) -> None:
        """Lets what runs finish on the old weights, starts nothing else, then changes them in place."""
        with self._wake:
            if self._load is not None:
                return done(RuntimeError(f"{self._load[1]} is being loaded"))
            self._load = (folder, version, done)
            self._wake.notify()

    def _run(self) -> None:
        with torch.inference_mode():
            while True:
                with self._wake:
                    self._wake.wait_for(lambda: self._waiting or self._scores or self._load or self.running)
                self._score_some()
                if self._load is None:
                    self._admit()
                elif not self.running:
                    self._swap(*self._load)
                self._guarded(self._step)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Those whose step failed hear of it; the next request may still work."""
        try:
            step()
        except Exception as error:
            for slot in self._slots:
                slot.keys = []
                if slot.request is not None:
                    slot.request.error = error
                    self._leave(slot)

    def _swap(self, folder: Path, version: str, done: Callable[[Exception | None], None]) -> None:
        error = None
        try:
            load_weights(self.model, folder)
            self.version = version
            for slot in self._slots:
                slot.keys = []
        except Exception as problem:  # told to whoever asked; the old weights stay
            error = problem
        self._load = None
        done(error)

    def _admit(self) -> None:
        """Gives waiting requests a slot, as long as there are free ones."""
        begun: list[Slot] = []
        later: list[Request] = []
        while self._waiting and self.running < len(self._slots):
            request = self._waiting.popleft()
            if request.cancelled:
                continue
            try:
                self._fit(request)
            except Exception as error:  # concerns this request only
                request.error = error
                request.done()
                continue
            shared, source = self._nearest(request)
            # Several attempts at one task begin with the same words: the first computes them for all.
            if any(common(slot.request.prompt_ids, request.prompt_ids) >= shared + SHARED for slot in begun):
                later.append(request)
            else:
                begun.append(self._place(request, shared, source))
        self._waiting.extendleft(reversed(later))

    def _fit(self, request: Request) -> None:
        request.prompt_ids = request.prompt_ids or self._dialogues.encode(request.text)
        room = self.context - len(request.prompt_ids)
        if room < 1:
            raise TooLong(f"the prompt has {len(request.prompt_ids)} tokens, the model's context is {self.context}")
        request.max_tokens = min(room, request.max_tokens or room)
        request.version = self.version

    def _nearest(self, request: Request) -> tuple[int, Slot]:
        """The longest sequence in the cache that the prompt begins with. Its last id is computed in any case: its
        logits are the first answer."""
        return max(((common(slot.keys, request.prompt_ids[:-1]), slot) for slot in self._slots), key=lambda pair: pair[0])

    def _place(self, request: Request, shared: int, source: Slot) -> Slot:
        slot = source
        # A sequence that would lose its end is copied, since its own dialogue may still go on.
        if source.request is not None or shared < len(source.keys):
            slot = min((each for each in self._slots if each.request is None), key=lambda each: each.used)
            if slot is not source and shared:
                self._cache.copy(source.number, slot.number, length=shared)
        slot.request, slot.keys = request, request.prompt_ids[:shared]
        self._clock += 1
        slot.used = self._clock
        return slot

    def _step(self) -> None:
        """One pass over what running sequences lack in the cache, and a token for each of them.

        Those that decode come first; prompts that no longer fit into the pass have their turn in the next.
        """
        for slot in self._slots:
            if slot.request is not None and slot.request.cancelled:
                self._leave(slot)
        group, prompts = [], 0
        for slot in sorted((each for each in self._slots if each.request is not None), key=missing):
            tokens = missing(slot)
            if prompts > 0 and prompts + tokens > PASS_TOKENS:
                break
            group.append(slot)
            prompts += tokens if tokens > 1 else 0
        self.prompt_tokens += prompts
        if not group:
            return
        new = [(slot.request.prompt_ids + slot.request.ids)[len(slot.keys) :] for slot in group]
        plan = self._cache.aim([(slot.number, len(slot.keys), len(ids)) for slot, ids in zip(group, new, strict=True)])
        self._places = plan.last
        logits = self._forward(new, plan).logits
        for slot, ids in zip(group, new, strict=True):
            slot.keys += ids
        self._sample(group, logits)

    def _forward(self, sequences: list[list[int]], plan: Plan, model: torch.nn.Module | None = None):
        ids = torch.tensor([[each for sequence in sequences for each in sequence]], device=self.device)
        return (model or self.model)(input_ids=ids, position_ids=plan.positions, use_cache=False, plan=plan)

    def _score_some(self) -> None:
        """One pass over sequences whose log-probabilities are asked for."""
        group: list[Score] = []
        while self._scores and (not group or sum(len(each.ids) for each in group) + len(self._scores[0].ids) <= PASS_TOKENS):
            score = self._scores.popleft()
            if not score.cancelled:
                group.append(score)
        if not group:
            return
        try:
            hidden = self._forward([each.ids for each in group], self._cache.alone([len(each.ids) for each in group]), self.model.model)
            start = 0
            for each in group:
                mine = hidden.last_hidden_state[:, start : start + len(each.ids) - 1]
                each.logprobs = self._logprobs(mine, each.ids[1:], each.temperature)
                each.version = self.version
                start += len(each.ids)
        except Exception as error:  # told to whoever asked
            for each in group:
                each.error = error
        for each in group:
            each.done()

    def _logprobs(self, hidden: torch.Tensor, ids: list[int], temperature: float) -> list[float]:
        """hidden: [1, n, width], of the places before each of n ids."""
        self._places = None
        found: list[float] = []
        for start in range(0, len(ids), SCORE_CHUNK):
            logits = self.model.get_output_embeddings()(hidden[:, start : start + SCORE_CHUNK])[0].float() / temperature
            wanted = torch.tensor(ids[start : start + SCORE_CHUNK], device=self.device)
            found += logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0].tolist()
        return found

    def _sample(self, group: list[Slot], logits: torch.Tensor) -> None:
        requests = [slot.request for slot in group]
        tokens, logprobs = draw(
            logits,
            temperature=[each.temperature for each in requests],
            top_p=[each.top_p for each in requests],
            chance=[each.chance.random() for each in requests],
        )
        self.new_tokens += len(group)
        for slot, request, token, logprob in zip(group, requests, tokens, logprobs, strict=True):
            request.ids.append(token)
            request.logprobs.append(logprob)
            if token in self.ends or (request.stop and self._stops(request)):
                request.finish = "stop"
            elif len(request.ids) == request.max_tokens:
                request.finish = "length"
            if request.finish:
                self._dialogues.remember(request.text, request.prompt_ids, request.ids)
                self._leave(slot)

    def _stops(self, request: Request) -> bool:
        # A token holds at least one byte, so this many hold the longest word, and some more the start of its first character.
        tail = self._dialogues.decode(request.ids[-max(len(word.encode()) for word in request.stop) - 4 :])
        return any(word in tail for word in request.stop)

    def _leave(self, slot: Slot) -> None:
        slot.request, request = None, slot.request
        request.done()


def missing(slot: Slot) -> int:
    """Tokens of a running sequence that are not in the cache yet."""
    return len(slot.request.prompt_ids) + len(slot.request.ids) - len(slot.keys)


def common(one: list[int], other: list[int]) -> int:
    """Length of the common prefix, by halving: comparing slices is far quicker than comparing one by one."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
