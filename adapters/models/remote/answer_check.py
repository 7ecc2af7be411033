"""Whether what a server gave is an answer: its shape, and what it says it takes at once."""

import re

import numpy as np

from .connection import Reply
from .patience import error_of

_LARGEST_BATCH = re.compile(r"batch[- _]?size must be <= ([0-9]{1,6})", re.IGNORECASE)  # Triton's words


def check_answer(given: np.ndarray, count: int, width: int | None, classes: int | None) -> tuple[np.ndarray, int]:
    """An answer to `count` images: float32 of shape (count, K), or int64 of shape (count,); and K, 0 for labels.

    Args:
        given: as it came.
        count: images that were asked about.
        width: of earlier answers, None: there was none.
        classes: that the server says it has.

    Raises:
        ValueError: if it is something else, or of another kind than earlier ones.
    """
    if given.shape in ((count, 1), (count, 1, 1)) and given.dtype == np.int64:
        given = given.reshape(count)
    if given.dtype == np.int64 and given.ndim == 2:
        given = given.astype(np.float32)
    fits = given.ndim == 1 if given.dtype == np.int64 else given.ndim == 2 and given.shape[1] > 1
    if not fits or len(given) != count:
        raise ValueError(f"{'labels' if given.dtype == np.int64 else 'scores'} of shape {given.shape}")
    of_this = 0 if given.ndim == 1 else given.shape[1]
    if width not in (None, of_this) or (of_this and classes not in (None, of_this)):
        raise ValueError(f"{'labels' if given.ndim == 1 else 'scores'} of shape {given.shape}")
    if of_this == 0 and count and int(given.min()) < 0:
        raise ValueError(f"the label {int(given.min())}")
    return given, of_this


def learned_limit(reply: Reply, count: int) -> int:
    """How many images a server takes at once, from its refusal of `count`; 0 if that is not why it refused."""
    if reply.status == 413:
        return count // 2
    match = _LARGEST_BATCH.search(error_of(reply)) if reply.status == 400 else None
    limit = int(match[1]) if match else 0
    return limit if 0 < limit < count else 0
