"""How far a policy is from a teacher, from the tokens that the policy sampled (on-policy distillation)."""

import torch

DIVERGENCES = ("k1", "k2", "k3", "js_skew")

# Beyond this many nats between the two the estimate stays where it is: one absurd token must not own the step.
LIMIT = 20.0


def estimate(student: torch.Tensor, teacher: torch.Tensor, params: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Values [N] whose gradient, in expectation over the policy's own tokens, lowers the divergence, and the
    divergence as it is measured [N], without gradient.

    student: log-probabilities of the sampled tokens with gradient; teacher: of the same tokens.
    k1, k2, k3: Schulman's estimators of KL(student | teacher), k1 as a score function.
    js_skew: the generalised Jensen-Shannon divergence with mixture m = (1 - lambda) student + lambda teacher,
    (1 - lambda) KL(student | m) + lambda KL(teacher | m).
    """
    gap = (teacher - student).clamp(-LIMIT, LIMIT)
    kind = params["divergence"]
    if kind == "k1":
        return -gap.detach() * student, -gap.detach()
    if kind == "k2":
        values = gap.square() / 2
    elif kind == "k3":
        values = gap.exp() - 1 - gap
    else:
        share = params["lambda"]
        ratio = gap.exp()
        mixture = ((1 - share) + share * ratio).log()
        values = -(1 - share) * mixture + share * ratio * (gap - mixture)
    return values, values.detach()
