"""How the radius of an attack at saturation was found, as its record has it."""

from collections.abc import Mapping
from typing import Any, Protocol

from ...adapters.words import radius_text
from ..cell import Cell


class Saturated(Protocol):
    """What `at_saturation` returns, as far as a record keeps it."""

    @property
    def radius(self) -> float:
        """Where the result is from."""
        ...

    @property
    def saturation(self) -> Any:
        """The radii that were run, and the share fooled at each."""
        ...

    @property
    def failed(self) -> Mapping[float, str]:
        """The radii at which the attack crashed, and why."""
        ...


def describe_saturation(result: Saturated) -> dict[str, Any]:
    """The radius, whether success was seen to stop growing there, the radii that were run, and the share at each."""
    search = result.saturation
    return {
        "radius": result.radius,
        "seen": search.epsilon is not None,
        "radii": list(search.budgets),
        "shares": list(search.ratios),
        "violations": list(search.violations),
        "threshold": search.threshold,
        "attacked": search.attacked,
        "failed": [[radius, why] for radius, why in result.failed.items()],
    }


def _count(images: float) -> str:
    """A number of images; of a random model it is a sum of shares of draws."""
    return f"{images:.0f}" if abs(images - round(images)) < 1e-6 else f"{images:.1f}"


def saturation_line(cell: Cell, meta: Mapping[str, Any]) -> str:
    """At which radius a cell at saturation was run, of which, and why there, in a line; "" for any other cell."""
    search = meta.get("saturation")
    if not (cell.search.kind == "at-saturation" and isinstance(search, Mapping)):
        return ""
    norm, shares = cell.threat_model.norm, dict(zip(search["radii"], search["shares"], strict=True))
    radius, n = search["radius"], search["attacked"]
    share = f"fools {_count(shares[radius] * n)} of {n} images"
    most = _count(max(shares.values()) * n)
    if not max(shares.values()):
        why = "nothing was fooled at any radius: the largest"
    elif not search["seen"]:
        why = f"{share}, and still more with each radius: the largest"
    else:
        why = f"{share}, and {most} at most: the smallest within {search['threshold']:.0%} of that"
    searched = ", ".join(radius_text(norm, each) for each in shares)
    if nothing := sum(search.get("violations", ())):
        searched += f"; {nothing} results at these radii prove nothing and count as not fooled"
    if lost := search.get("failed"):
        searched += f"; it crashed at {', '.join(radius_text(norm, each) for each, _ in lost)}: {lost[0][1]}"
    return f"{cell.title} on {cell.subject.name}: {norm} {radius_text(norm, radius)}: {why} (run at {searched})"
