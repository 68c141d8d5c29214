"""Continuous batching: requests join and leave between two steps of the model.

Every running request owns a slot of the cache. A new one starts from the longest sequence in the cache that its prompt
begins with: an agent's next turn repeats all that was said, and only its tail has to be computed.
"""

import inspect
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from .dialogues import Dialogues
from .reload import load_weights
from .sampling import draw
from .slots import SlotCache

PREFILL_TOKENS = 4096  # of one forward, padding included: a wider one is not faster, and holds up those who decode


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
        self._kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if self._kinds != {"full_attention"}:
            raise ValueError(f"layers of the kinds {', '.join(sorted(self._kinds))}; this engine runs full attention only")
        self.context: int = config.max_position_embeddings
        ends = self.model.generation_config.eos_token_id
        self.ends = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self.version = version
        self.new_tokens = 0
        self._dialogues = Dialogues(self.tokenizer)
        self.decode = self._dialogues.decode
        self._cache = SlotCache(config, slots=max_batch, dtype=dtype, device=self.device)
        # Transformers renamed the argument.
        self._cache_name = "cache" if "cache" in inspect.signature(self.model.forward).parameters else "past_key_values"
        # Logits of each row's last token only: with a large vocabulary the head costs more than the layers.
        self.model.get_output_embeddings().register_forward_pre_hook(
            lambda _, inputs: inputs[0][torch.arange(len(self._last), device=self.device), self._last]
        )
        self._slots = [Slot(number) for number in range(max_batch)]
        self._clock = 0
        self._waiting: deque[Request] = deque()
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
                    self._wake.wait_for(lambda: self._waiting or self._load or self.running)
                if self._load is None:
                    self._guarded(lambda: self._prefill(self._admit()))
                elif not self.running:
                    self._swap(*self._load)
                self._guarded(self._decode)

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

    def _admit(self) -> list[Slot]:
        """Gives waiting requests a slot, as long as there are free ones."""
        admitted = []
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
            admitted.append(self._place(request))
        return admitted

    def _fit(self, request: Request) -> None:
        request.prompt_ids = self._dialogues.encode(request.text)
        room = self.context - len(request.prompt_ids)
        if room < 1:
            raise TooLong(f"the prompt has {len(request.prompt_ids)} tokens, the model's context is {self.context}")
        request.max_tokens = min(room, request.max_tokens or room)
        request.version = self.version

    def _place(self, request: Request) -> Slot:
        # The last id is computed in any case: its logits are the first answer.
        shared, source = max(((common(slot.keys, request.prompt_ids[:-1]), slot) for slot in self._slots), key=lambda pair: pair[0])
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

    def _prefill(self, admitted: list[Slot]) -> None:
        """Computes the prompts of new requests, similar lengths together, and samples their first tokens."""
        group: list[Slot] = []
        for slot in sorted(admitted, key=missing):
            if group and (len(group) + 1) * missing(slot) > PREFILL_TOKENS:
                self._step(group)
                group = []
            group.append(slot)
        if group:
            self._step(group)

    def _decode(self) -> None:
        """One token for every running request."""
        for slot in self._slots:
            if slot.request is not None and slot.request.cancelled:
                self._leave(slot)
        running = [slot for slot in self._slots if slot.request is not None]
        if running:
            self._step(running)

    def _step(self, group: list[Slot]) -> None:
        """Computes what each sequence lacks in the cache, and samples one token for each."""
        group = sorted(group, key=lambda slot: slot.number)
        new = [(slot.request.prompt_ids + slot.request.ids)[len(slot.keys) :] for slot in group]
        lengths = torch.tensor([len(ids) for ids in new])
        width = int(lengths.max())
        within = torch.arange(width)
        ids = torch.tensor([each + [0] * (width - len(each)) for each in new])
        # Padding stands where the last token stands, so that it never looks past its own sequence.
        positions = torch.tensor([len(slot.keys) for slot in group])[:, None] + torch.minimum(within, lengths[:, None] - 1)
        real = within < lengths[:, None]
        rows = torch.tensor([slot.number for slot in group])
        ids, positions, real, rows = (each.to(self.device) for each in (ids, positions, real, rows))
        mask = self._cache.aim(rows, positions, real)
        self._last = (lengths - 1).to(self.device)
        cache = {self._cache_name: self._cache, "use_cache": True}
        logits = self.model(input_ids=ids, position_ids=positions, attention_mask=dict.fromkeys(self._kinds, mask), **cache).logits
        for slot, each in zip(group, new, strict=True):
            slot.keys += each
        self._sample(group, logits)

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
    return len(slot.request.prompt_ids) - len(slot.keys)


def common(one: list[int], other: list[int]) -> int:
    """Length of the common prefix."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
