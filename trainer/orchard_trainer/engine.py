"""Continuous batching for small and middling models: requests join and leave between two steps of the model.

Every running request owns a slot of the cache. A new one takes the free slot whose sequence its prompt goes on from, if
there is one: an agent's next turn repeats all that was said, and only its tail has to be computed. Nothing computed
with old weights outlives `load`.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from .slots import SlotCache

PREFILL_TOKENS = 4096
"""Padded tokens of one prefill forward: attention over more would not be faster."""


@dataclass
class Request:
    text: str
    """The prompt as the chat template gives it."""
    max_tokens: int | None
    temperature: float
    top_p: float
    seed: int
    stop: list[str]
    done: Callable[["Request"], None]
    cancelled: bool = False
    prompt_ids: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""
    version: str = ""
    error: Exception | None = None
    noise: list[float] = field(default_factory=list)
    """One uniform number a token, from the request's own seed: neighbours in a batch change nothing."""


class TooLong(ValueError):
    """The prompt leaves no room for an answer in the model's context."""


@dataclass
class Slot:
    request: Request | None = None
    ids: list[int] = field(default_factory=list)
    """Sequence whose keys are in the cache, except those of the last id."""
    text: str = ""
    used: int = 0


class Engine:
    """Runs the model in a thread of its own; `submit` and `load` may be called from any other."""

    def __init__(self, folder: Path, version: str, *, max_batch: int, threads: int | None = None):
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(self.device).eval()
        self.context: int = self.model.config.max_position_embeddings
        ends = self.model.generation_config.eos_token_id or self.model.config.eos_token_id
        self.ends = set(ends if isinstance(ends, list) else [ends])
        self.version = version
        self.cache = SlotCache(self.model.config, slots=max_batch, context=self.context, dtype=dtype, device=self.device)
        self.slots = [Slot() for _ in range(max_batch)]
        self.new_tokens = 0
        self._waiting: deque[Request] = deque()
        self._loading: tuple[Path, str, Callable[[Exception | None], None]] | None = None
        self._wake = threading.Condition()
        self._clock = 0
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def running(self) -> int:
        return sum(slot.request is not None for slot in self.slots)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, request: Request) -> None:
        """`request.done` is called in the engine's thread, once."""
        with self._wake:
            self._waiting.append(request)
            self._wake.notify()

    def load(self, folder: Path, version: str, done: Callable[[Exception | None], None]) -> None:
        """Lets what runs finish on the old weights, starts nothing new, then changes them in place."""
        with self._wake:
            if self._loading is not None:
                done(RuntimeError(f"is loading {self._loading[1]} already"))
                return
            self._loading = (folder, version, done)
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._loading or self.running)
                admitted = [] if self._loading else self._admit()
            if self._loading and not self.running:
                self._swap()
                continue
            try:
                with torch.inference_mode():
                    self._prefill(admitted)
                    self._decode()
            except Exception as error:  # the callers must hear of it, and the next request may still work
                for slot in self.slots:
                    if slot.request is not None:
                        self._finish(slot, "error", error)
                    slot.ids, slot.text = [], ""

    def _swap(self) -> None:
        folder, version, done = self._loading
        try:
            weights = {}
            for file in sorted(folder.glob("*.safetensors")):
                weights |= load_file(file)
            own = self.model.state_dict()
            for name, tensor in weights.items():
                if name not in own or own[name].shape != tensor.shape:
                    raise ValueError(f"{folder} holds another architecture: {name} {list(tensor.shape)}")
            tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
            if missing := own.keys() - weights.keys() - tied:
                raise ValueError(f"{folder} lacks {sorted(missing)[0]}")
            with torch.no_grad():
                for name, tensor in weights.items():
                    own[name].copy_(tensor)
            self.version = version
            for slot in self.slots:
                slot.ids, slot.text = [], ""
            error = None
        except Exception as problem:  # told to whoever asked; the old weights stay
            error = problem
        with self._wake:
            self._loading = None
        done(error)

    def _admit(self) -> list[Slot]:
        """Gives waiting requests a slot each, as long as there are any."""
        admitted = []
        while self._waiting:
            free = [slot for slot in self.slots if slot.request is None]
            if not free:
                break
            request = self._waiting.popleft()
            if request.cancelled:
                continue
            known = [slot for slot in free if slot.text and request.text.startswith(slot.text)]
            slot = max(known, key=lambda each: len(each.text)) if known else min(free, key=lambda each: each.used)
            # Text that goes on from what was sampled keeps the sampled ids, however it would be tokenized now.
            kept = slot.ids if known else []
            ids = kept + self.tokenizer.encode(request.text[len(slot.text) if known else 0 :], add_special_tokens=False)
            room = self.context - len(ids)
            if room < 1:
                request.error = TooLong(f"the prompt has {len(ids)} tokens, the model's context is {self.context}")
                request.done(request)
                continue
            request.prompt_ids = ids
            request.max_tokens = min(room, request.max_tokens or room)
            request.version = self.version
            generator = torch.Generator().manual_seed(request.seed)
            request.noise = torch.rand(request.max_tokens, generator=generator).tolist()
            slot.request, slot.used = request, self._clock
            slot.text = request.text
            slot.ids = kept
            self._clock += 1
            admitted.append(slot)
        return admitted

    def _prefill(self, admitted: list[Slot]) -> None:
        """Computes the prompts of new requests, similar lengths together, and samples their first tokens."""
        # The last known id has no keys yet: it is computed with the rest.
        starts = {id(slot): max(0, len(slot.ids) - 1) for slot in admitted}
        tails = {id(slot): slot.request.prompt_ids[starts[id(slot)] :] for slot in admitted}
        group: list[Slot] = []
        for slot in sorted(admitted, key=lambda each: len(tails[id(each)])):
            if group and (len(group) + 1) * len(tails[id(slot)]) > PREFILL_TOKENS:
                self._prefill_group(group, starts, tails)
                group = []
            group.append(slot)
        if group:
            self._prefill_group(group, starts, tails)

    def _prefill_group(self, group: list[Slot], starts: dict[int, int], tails: dict[int, list[int]]) -> None:
        group = sorted(group, key=self.slots.index)
        lengths = torch.tensor([len(tails[id(slot)]) for slot in group])
        width = int(lengths.max())
        ids = torch.tensor([tails[id(slot)] + [0] * (width - len(tails[id(slot)])) for slot in group])
        first = torch.tensor([starts[id(slot)] for slot in group])
        real = torch.arange(width) < lengths[:, None]
        # Padding looks from the last real position: it must not reach past the longest sequence.
        positions = first[:, None] + torch.minimum(torch.arange(width), lengths[:, None] - 1)
        hidden = self._forward(group, ids, positions, real)
        logits = self.model.lm_head(hidden[torch.arange(len(group)), lengths - 1])
        for slot in group:
            slot.ids = list(slot.request.prompt_ids)
        self._sample(group, logits)

    def _decode(self) -> None:
        """One token for every running request."""
        for slot in self.slots:
            if slot.request is not None and slot.request.cancelled:
                self._finish(slot, "abort")
        live = [slot for slot in self.slots if slot.request is not None]
        if not live:
            return
        ids = torch.tensor([[slot.ids[-1]] for slot in live])
        positions = torch.tensor([[len(slot.ids) - 1] for slot in live])
        hidden = self._forward(live, ids, positions, torch.ones_like(ids, dtype=torch.bool))
        self._sample(live, self.model.lm_head(hidden[:, 0]))

    def _forward(self, group: list[Slot], ids: torch.Tensor, positions: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Hidden states [B, T, hidden] of new tokens; their keys and values go into the cache."""
        ids, positions, real = ids.to(self.device), positions.to(self.device), real.to(self.device)
        rows = torch.tensor([self.slots.index(slot) for slot in group], device=self.device)
        mask = self.cache.aim(rows, positions, real)
        kinds = getattr(self.model.config, "layer_types", None) or ["full_attention"]
        model = self.model.model
        return model(input_ids=ids, attention_mask=dict.fromkeys(kinds, mask), position_ids=positions, cache=self.cache, use_cache=True).last_hidden_state

    def _sample(self, group: list[Slot], logits: torch.Tensor) -> None:
        """Draws a token for each row of [B, vocabulary].

        Log-probabilities are those of the whole distribution at the sampling temperature (at 1 for greedy decoding),
        whatever top_p leaves of it.
        """
        logits = logits.float()
        requests = [slot.request for slot in group]
        heat = torch.tensor([request.temperature or 1.0 for request in requests], device=logits.device)
        scores = torch.log_softmax(logits / heat[:, None], -1)
        drawn = scores.exp()
        if any(request.top_p < 1 for request in requests):
            drawn = nucleus(drawn, torch.tensor([request.top_p for request in requests], device=logits.device))
        noise = torch.tensor([request.noise[len(request.ids)] for request in requests], device=logits.device)
        total = drawn.double().cumsum(-1)
        chosen = torch.searchsorted(total, (noise * total[:, -1])[:, None], right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
        greedy = torch.tensor([request.temperature == 0 for request in requests], device=logits.device)
        chosen = torch.where(greedy, logits.argmax(-1), chosen)
        picked = scores.gather(1, chosen[:, None]).squeeze(1)
        for slot, token, logprob in zip(group, chosen.tolist(), picked.tolist(), strict=True):
            request = slot.request
            request.ids.append(token)
            request.logprobs.append(logprob)
            slot.ids.append(token)
            self.new_tokens += 1
            if token in self.ends:
                self._finish(slot, "stop")
            elif request.stop and any(word in self.tokenizer.decode(request.ids[-64:]) for word in request.stop):
                self._finish(slot, "stop")
            elif len(request.ids) >= request.max_tokens:
                self._finish(slot, "length")

    def _finish(self, slot: Slot, reason: str, error: Exception | None = None) -> None:
        request = slot.request
        slot.request = None
        slot.text += self.tokenizer.decode(request.ids, skip_special_tokens=False)
        request.finish, request.error = reason, error
        request.done(request)


def nucleus(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Zeroes all but the smallest set of most likely tokens that holds top_p of the mass. [B, V], [B] -> [B, V]."""
    ordered, places = probabilities.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probabilities).scatter(-1, places, ordered * (before < top_p[:, None]))
