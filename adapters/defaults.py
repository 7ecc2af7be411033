"""Allowed values, defaults and limits of settings. This module does not import torch."""

from typing import Literal, get_args

Norm = Literal["linf", "l2", "l1", "l0", "unrestricted"]
NORMS: tuple[Norm, ...] = get_args(Norm)
TARGETS = ("second-likely", "least-likely", "random")
Isolate = Literal["no", "auto", "yes", "strict"]
SECONDS = 600.0  # time limit of an isolated model for one output
PASS_SIZE = 64  # images of a pass without gradients
DRAWS = 20  # samples on which a random model is judged
MOST_DRAWS = 10_000
REQUEST_SIZE = PASS_SIZE  # images per request to a server
TIMEOUT = 60.0  # seconds in which a server must respond
