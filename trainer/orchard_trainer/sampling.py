"""Draws tokens for many requests at once, each at its own temperature and from its own source of chance."""

import torch


def draw(
    logits: torch.Tensor, *, temperature: list[float], top_p: list[float], chance: list[float]
) -> tuple[list[int], list[float]]:
    """A token for each row of [B, vocabulary], and its log-probability.

    chance: uniform numbers in [0, 1), one a row. Temperature 0 takes the likeliest token. Log-probabilities are
    log_softmax(logits / temperature), for temperature 0 log_softmax(logits): of the whole distribution, whatever
    top_p leaves of it.
    """
    logits = logits.float()
    column = {"dtype": torch.float32, "device": logits.device}
    heat = torch.tensor([each or 1.0 for each in temperature], **column)
    scores = torch.log_softmax(logits / heat[:, None], -1)
    mass = scores.exp()
    if min(top_p) < 1:
        mass = nucleus(mass, torch.tensor(top_p, **column))
    # Sums in double: a vocabulary of rounding errors must not move the border between two tokens.
    total = mass.double().cumsum(-1)
    at = torch.tensor(chance, dtype=torch.float64, device=logits.device) * total[:, -1]
    drawn = torch.searchsorted(total, at[:, None], right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
    greedy = torch.tensor([each == 0 for each in temperature], device=logits.device)
    chosen = torch.where(greedy, logits.argmax(-1), drawn)
    return chosen.tolist(), scores.gather(1, chosen[:, None]).squeeze(1).tolist()


def nucleus(mass: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Zeroes all but the smallest set of likeliest tokens that holds top_p. [B, V], [B] -> [B, V]; Holtzman et al. 2020."""
    ordered, places = mass.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(mass).scatter(-1, places, ordered * (before < top_p[:, None]))
