"""Closed sets, defaults and limits of settings that records and options state; importable without torch."""

from typing import Literal, get_args

Norm = Literal["linf", "l2", "l1", "l0", "unrestricted"]
NORMS: tuple[Norm, ...] = get_args(Norm)
TARGETS = ("second-likely", "least-likely", "random")
Isolate = Literal["no", "auto", "yes", "strict"]
SECONDS = 600.0  # that an isolated model may take for one answer
PASS_SIZE = 64  # images of a pass without gradients
DRAWS = 20  # answers that a random model is judged by
MOST_DRAWS = 10_000
REQUEST_SIZE = PASS_SIZE  # images that a server is asked about at once
TIMEOUT = 60.0  # seconds that a server has for an answer
