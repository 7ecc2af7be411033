"""Responses of known subjects to known items."""

from typing import NamedTuple

import numpy as np


class Simulated(NamedTuple):
    responses: np.ndarray
    ability: np.ndarray
    difficulty: np.ndarray
    discrimination: np.ndarray


def simulate(subjects, items, *, model="2pl", seed=0, missing=0.0):
    """Centred abilities; log discriminations of mean 0, as the scale of a fit has them."""
    generator = np.random.default_rng(seed)
    ability = generator.normal(size=subjects)
    ability = (ability - ability.mean()) / ability.std()
    difficulty = generator.normal(scale=1.2, size=items)
    logs = np.zeros(items) if model == "1pl" else generator.normal(scale=0.5, size=items)
    discrimination = np.exp(logs - logs.mean())
    guessing = generator.beta(5, 17, size=items) if model == "3pl" else np.zeros(items)
    probability = guessing + (1 - guessing) / (1 + np.exp(-discrimination * (ability[:, None] - difficulty)))
    responses = (generator.random(probability.shape) < probability).astype(float)
    responses[generator.random(probability.shape) < missing] = np.nan
    return Simulated(responses, ability, difficulty, discrimination)
