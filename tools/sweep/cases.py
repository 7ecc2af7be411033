"""Test cases: every attack with forms, steps, radii and models, so that each pair of values occurs at least once."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

from davylamp.adapters import implementations_of
from davylamp.adapters.catalogue.lookup import ATTACKS, accepts_parameter, canonical_attack

# "with": a user's function beside it; "search": the attack inside best(...), or a search beside it.
FORMS = ("plain", "defaults", "repaired", "with", "search")
FACTORS: Mapping[str, tuple[Any, ...]] = {
    "form": FORMS,
    "verb": ("python", "terminal", "evaluate"),
    "steps": (1, 2, 10),
    "radius": ("small", "large"),
    "classes": (2, 3, 10),
    "channels": (1, 3),
    "images": (1, 3),
    "target": ("", "second-likely"),
}
RADII: Mapping[str, tuple[float, float]] = {"linf": (0.5 / 255, 0.3), "l2": (0.01, 2), "l1": (0.05, 20), "l0": (1, 24)}
# What makes a run short and is no factor.
SHORT = {
    "samples": 2,
    "population": 5,
    "initial_evaluations": 5,
    "max_evaluations": 20,
    "binary_search_steps": 2,
    "translations": 2,
    "rotations": 2,
}
FEW_QUERIES = 60  # of each image, for attacks without gradients and these:
LONG = ("autoattack", "brendel-bethge", "virtual-adversarial")


class SweepCase(NamedTuple):
    """One call: an attack or an implementation in one form, on one model."""

    attack: str
    norm: str
    form: str
    verb: str
    steps: int
    radius: str
    classes: int
    channels: int
    images: int
    target: str

    @property
    def epsilon(self) -> float | None:
        """Radius in the norm of the case."""
        small, large = RADII.get(self.norm, (None, None))
        return small if self.radius == "small" else large

    @property
    def name(self) -> str:
        """Name of the attack in the call, inside a search if the form is one."""
        kind = canonical_attack(rows_of(self.attack)[0]).kind
        if self.form == "saturation":
            return f"at-saturation({self.attack})"
        return f"best({self.attack})" if self.form == "search" and kind == "fixed-budget" else self.attack

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the attack in the call."""
        rows = rows_of(self.attack)
        given = {
            name: v
            for name, v in {"steps": self.steps, **SHORT}.items()
            if any(accepts_parameter(r, name) for r in rows)
        }
        long = canonical_attack(rows[0]).knowledge != "white-box" or rows[0].attack in LONG
        return {**given, **({"max_queries": FEW_QUERIES} if long else {})}


def rows_of(attack: str) -> list[Any]:
    """Return the implementations of an attack, or the implementation of that name."""
    from davylamp.adapters import find_implementation

    return [find_implementation(attack)] if ":" in attack else implementations_of(attack)


def shared_attacks() -> list[str]:
    """Return the attacks that two or more libraries have."""
    return [name for name in ATTACKS if len({row.library for row in implementations_of(name)}) > 1]


def cases_of(attack: str, forms: Sequence[str] = FORMS) -> list[SweepCase]:
    """Return cases in which each pair of values of any two factors occurs. The norm is a factor."""
    norms = tuple(dict.fromkeys(norm for row in rows_of(attack) for norm in row.classes))
    factors = {"norm": norms, **FACTORS, "form": tuple(forms)}
    return [SweepCase(attack=attack, **each) for each in cover(factors)]


def cover(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return few combinations of one value per factor, in which each pair of values occurs.

    The choice is greedy and always the same.
    """
    names = list(factors)
    left = {
        frozenset(((a, x), (b, y))): None for a, b in combinations(names, 2) for x, y in product(factors[a], factors[b])
    }
    made: list[dict[str, Any]] = []
    while left:
        chosen = dict(next(iter(left)))
        for name in names:
            if name not in chosen:
                chosen[name] = max(
                    factors[name],
                    key=lambda value: sum(frozenset(((name, value), pair)) in left for pair in chosen.items()),
                )
        for pair in combinations(chosen.items(), 2):
            left.pop(frozenset(pair), None)
        made.append({name: chosen[name] for name in names})
    return made
