"""Formats threat models, radii, counts and durations as text."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import ThreatModel


def format_threat_model(threat_model: "ThreatModel", target: str = "") -> str:
    """Format a threat model: "linf 4/255", "l2, smallest change", "l0 20, targeted (least-likely)", "unrestricted".

    Args:
        threat_model: the threat model.
        target: target rule to show in the text. "" to show no target rule.
    """
    norm, epsilon = threat_model.norm, threat_model.epsilon
    if norm == "unrestricted":
        radius = ""
    else:
        radius = ", smallest change" if epsilon is None else f" {format_radius(norm, epsilon)}"
    aim = f" ({target})" if target else ""
    return f"{norm}{radius}{f', targeted{aim}' if threat_model.targeted else ''}"


def format_threat_labels(labels: Mapping[str, Any]) -> str:
    """Format the threat model of a table row, given the labels `norm`, `epsilon` (NaN for no radius) and `targeted`."""
    from . import ThreatModel  # which loads torch

    epsilon = None if math.isnan(labels["epsilon"]) else labels["epsilon"]
    return format_threat_model(ThreatModel(labels["norm"], epsilon, labels["targeted"]))


def format_radius(norm: str, epsilon: float) -> str:
    """Format a radius or distance with four significant digits.

    In linf, a simple fraction of 255 is written as a fraction, such as "4/255".
    """
    levels, is_round = epsilon * 255, math.isclose(epsilon, float(f"{epsilon:.2g}"), rel_tol=1e-9)
    if norm == "linf" and not is_round and abs(levels - round(levels, 2)) < 1e-6:
        return f"{levels:.4g}/255"
    return f"{epsilon:.4g}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a number of things: "1 image", "3 images", "2 batches"."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def merge_alike(lines: Iterable[str], most: int = 3) -> list[str]:
    """Merge lines "A: text" and "B: text" into "A, B: text".

    Args:
        lines: the lines. A merged line takes the position of the first of its lines.
        most: largest number of names before the colon. Further names are counted: "A, B, C and 4 more: text".
    """
    subjects: dict[str, dict[str, None]] = {}
    for line in lines:
        subject, colon, text = line.partition(": ")
        subjects.setdefault(f"{colon}{text}" or line, {})[subject if colon else ""] = None
    rests = {end: f" and {len(names) - most} more" if len(names) > most else "" for end, names in subjects.items()}
    return [f"{', '.join([*names][:most])}{rests[end]}{end}" for end, names in subjects.items()]


def duration(seconds: float) -> str:
    """Format a duration with two significant digits: "45 s", "12 min", "3.5 h"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def format_bytes(count: float) -> str:
    """Format a size with three significant digits: "45.1 KiB", "1.2 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.0f} TiB"
