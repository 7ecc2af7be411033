"""Data are a set of images: the same ones by another path or in another order, or fewer, are no further evidence."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..cell import ModelOnData

_SAME = 1e-4  # relative to the largest logit: another batch rounds otherwise


def find_subsets(clean: Mapping[str, Any]) -> dict[str, str]:
    """Of models that were run several times on the same data: the key of the larger set by that of each part of it.

    Two sets are of the same images if they have the same pixels; or of one name of data the same names and labels, and
    the model says the same of them. Of equal sets the first by name of data stands, then by key.

    Args:
        clean: the predictions on clean images (`Clean`) by key of the subject.
    """
    families: dict[tuple[str, str], list[str]] = {}
    for key, each in clean.items():
        subject: ModelOnData = each.subject
        families.setdefault((subject.model, subject.model_digest), []).append(key)
    larger: dict[str, str] = {}
    for keys in families.values():
        order = sorted(keys, key=lambda key: (-clean[key].subject.images, clean[key].subject.data, key))
        for place, key in enumerate(order[1:], start=1):
            within = next((other for other in order[:place] if _is_part(clean[key], clean[other])), None)
            if within is not None:
                larger[key] = larger.get(within, within)
    return larger


def _is_part(part: Any, whole: Any) -> bool:
    """Whether all images of one are among those of the other: the same pixels, or of the same data each name once."""
    if part.subject.data_digest == whole.subject.data_digest:
        return True
    if part.subject.data != whole.subject.data:
        return False
    places = {name: place for place, name in enumerate(whole.columns["image"])}
    names = part.columns["image"]
    if len(places) < len(whole.columns["image"]) or len(set(names)) < len(names) or not set(names) <= set(places):
        return False
    rows = [places[name] for name in names]
    if not np.array_equal(part.columns["label"], whole.columns["label"][rows]):
        return False
    ours, theirs = part.logits.numpy(), whole.logits.numpy()[rows]
    return ours.shape == theirs.shape and bool(np.allclose(ours, theirs, _SAME, _SAME * max(1.0, np.abs(ours).max())))


def leave_subsets(outcomes: Any) -> Any:
    """The outcomes without those that were run again on more images, and a line for each set that is left out."""
    larger = find_subsets(outcomes.clean)
    if not larger:
        return outcomes
    subjects = {key: each.subject for key, each in outcomes.clean.items()}
    known = {each.cell.key for each in outcomes.done}

    def is_again(cell: Any) -> bool:
        whole = larger.get(cell.subject.key)
        return whole is not None and replace(cell, subject=subjects[whole]).key in known

    done = tuple(each for each in outcomes.done if not is_again(each.cell))
    failed = tuple((cell, why) for cell, why in outcomes.failed if not is_again(cell))
    used = {cell.subject.key for cell in (*(each.cell for each in done), *(cell for cell, _ in failed))}
    clean = {key: each for key, each in outcomes.clean.items() if key in used or key not in larger}
    return replace(outcomes, done=done, failed=failed, clean=clean, left_out=tuple(_lines(outcomes, clean, larger)))


def _lines(outcomes: Any, clean: Mapping[str, Any], larger: Mapping[str, str]) -> Iterator[str]:
    for key, whole in larger.items():
        if key not in clean:
            part, subject = outcomes.clean[key].subject, outcomes.clean[whole].subject
            those = "the same images" if part.images == subject.images else f"they are among its {subject.images}"
            of = "" if part.data == subject.data else f" of {subject.data}"
            yield f"left out: {part.model} on {part.images} images of {part.data}: {those}{of}, counted once"
