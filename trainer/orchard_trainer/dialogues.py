"""Prompts as token ids that go on from the ids that were sampled."""

from collections import OrderedDict

REMEMBERED = 1024


class Dialogues:
    """Remembers under which ids a text was answered.

    A model may write a word in other tokens than the tokenizer would choose. The next turn repeats that word as text,
    and must repeat its ids as well, or the turns of an episode are no longer one sequence to train on.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self._known: OrderedDict[str, list[int]] = OrderedDict()

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt. What follows a remembered dialogue is tokenized by itself: it starts at a special token."""
        known = max((each for each in self._known if text.startswith(each)), key=len, default="")
        return self._known.get(known, []) + self._tokenizer.encode(text[len(known) :], add_special_tokens=False)

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def remember(self, prompt: str, prompt_ids: list[int], ids: list[int]) -> None:
        self._known[prompt + self.decode(ids)] = prompt_ids + ids
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
