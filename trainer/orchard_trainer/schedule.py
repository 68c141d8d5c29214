"""The learning rate of each optimizer step."""

import math

from .contract import Config


def learning_rate(config: Config, step: int, of: int) -> float:
    """Rate of optimizer step `step` (from 0) of `of`: a linear warmup, then the cosine down to minLearningRate
    (arXiv 1608.03983, no restarts) or a constant."""
    if step < config.warmupSteps:
        return config.learningRate * (step + 1) / config.warmupSteps
    if config.schedule == "constant":
        return config.learningRate
    done = min(1.0, (step - config.warmupSteps) / max(1, of - config.warmupSteps))
    return config.minLearningRate + (config.learningRate - config.minLearningRate) * (1 + math.cos(math.pi * done)) / 2
