"""Searches: ways to combine runs of attacks, whose names are like "best(foolbox:pgd)".

`parse_search` parses such a name and `Search.name` formats it. The keys of runs are hashes that include the name. Each
kind is defined in the module that runs it: `radius_search`, `portfolio`, `saturation`, `worst_case`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from ...adapters import Attack, Implementation, ThreatModel, canonical_attack, find_implementation
from ...adapters.attack import Kind, Knowledge, name_from_record
from ...adapters.catalogue.lookup import LIBRARIES, check_support, find_library
from ...adapters.catalogue.step_size import resolve_step_size
from ...adapters.threat_model import NORMS
from ...errors import InvalidInput, Unsupported

if TYPE_CHECKING:
    from ...adapters import AttackResult

AUTO = "auto"
_HOMES = {  # imported on first use, because reading a folder needs no attack code
    "best": ("radius_search", "RadiusSearch"),
    "several": ("portfolio", "Portfolio"),
    "at-saturation": ("saturation", "AtSaturation"),
    "worst-case": ("worst_case", "WorstCase"),
}
SearchKind = Literal["best", "at-saturation", "worst-case"]
Values = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]
_LIBRARY = "davylamp"  # library of implementations that represent several attacks
_MOST_KNOWLEDGE: tuple[Knowledge, ...] = ("white-box", "score-based", "decision-based")


@dataclass(frozen=True)
class Search:
    """A search over one or several attacks. `Single` is an attack without a search.

    Args:
        inside: name of the attack ("foolbox:pgd" or "pgd"), names of several attacks separated by commas, or "auto".

    Attributes:
        kind: the word before the brackets of the name; None for an attack alone.
        searches_radius: whether it tries radii itself. A threat model without a radius then sets no limit.
        finds_smallest: whether it returns the smallest change of each image, as a minimum-norm attack does.
        stands_for_several: whether its implementation represents several attacks, whose names are inside.
        runs_once: whether one run handles all images together, because it has a result that all images share.
        sums_up: whether its result is the worst case of its attacks on each image. Rankings then do not compare it with
            these attacks.
        chooses_radius: whether it chooses the radius for each model, whatever radius was requested.
        runs: rough number of attack runs per image.
        options_of_cells: further options for stored runs.
        why_no_surrogate: why its examples cannot be made on a surrogate; "" if they can.
    """

    inside: str
    kind: ClassVar[SearchKind | None] = None
    searches_radius: ClassVar[bool] = False
    finds_smallest: ClassVar[bool] = False
    stands_for_several: ClassVar[bool] = False
    runs_once: ClassVar[bool] = False
    sums_up: ClassVar[bool] = False
    chooses_radius: ClassVar[bool] = False
    runs: ClassVar[int] = 1
    options_of_cells: ClassVar[Mapping[str, Any]] = {}
    why_no_surrogate: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """Name in keys and for users, which `parse_search` parses."""
        return f"{self.kind}({self.inside})" if self.kind else self.inside

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the attacks."""
        return tuple(each.strip() for each in self.inside.split(","))

    @property
    def is_portfolio(self) -> bool:
        """Whether several attacks search for the smallest change together."""
        return self.finds_smallest and self.stands_for_several

    def around(self, row: Implementation) -> "Search":
        """Return a copy of the search for this implementation, which may represent several attacks."""
        return replace(self, inside=row.attack if self.stands_for_several else row.name)

    def choose_members(self, norm: str, *, targeted: bool) -> "Search":
        """Return a copy of the search in which the attacks that davylamp chooses replace "auto".

        Raises:
            Unsupported: for a norm without a tested choice.
        """
        del norm, targeted
        return self

    def find_row(self) -> Implementation:
        """Return the implementation of the attack, or one that represents all attacks of the search."""
        return find_implementation(self.inside)

    def rows(self, row: Implementation) -> list[Implementation]:
        """Return the implementations to run. `row` is the only one, or represents all of them."""
        return list(map(find_implementation, self.members)) if self.stands_for_several else [row]

    def attack_kind(self, row: Implementation) -> Kind:
        """Return whether the search acts as a fixed-budget or a minimum-norm attack."""
        return "minimum-norm" if self.finds_smallest else canonical_attack(row).kind

    def version(self, row: Implementation) -> str:
        """Return the library's version; for a user's attack, its code's digest and the library that it extends.

        If the code cannot be identified completely, the digest covers the known part, and `Plan.unknown` has the
        reasons.
        """
        if row.given is None:
            return find_library(row.library).version
        form = row.given.form
        built_on = f", {form} {find_library(form).version}" if form in LIBRARIES else ""
        return f"code {row.given.identity.digest}{built_on}"

    def complete_parameters(
        self, row: Implementation, given: Mapping[str, Any], epsilon: float | None = None, *, defaults: bool = False
    ) -> dict[str, Any]:
        """Return the given parameters, completed by the matched ones unless the libraries' `defaults` are requested.

        A search resolves a relative step size at each of its radii.
        """
        del epsilon
        return dict(given) if defaults else {**canonical_attack(row).matched, **given}

    def first_rules(self, row: Implementation, threat_model: ThreatModel, components: int) -> ThreatModel:
        """Return the threat model of the search's first run, for images with this number of components."""
        del row, components
        return threat_model

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Raise an error for settings that no run supports, before anything is computed.

        Args:
            row: the implementation, or the one that represents several.
            rules: norm and, if given, radius.
            components: C x H x W of an image.
            given: canonical parameters.
            grid: further parameters, with the values to try of each.

        Raises:
            Unsupported: if the implementation does not support the settings, alone or in this search.
            UnknownName: if a parameter is unknown.
            InvalidInput: if a parameter has a wrong value.
        """
        raise NotImplementedError

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """Run the search.

        Args:
            row: the implementation, or the one that represents several.
            *nouns: classifier, inputs, labels and threat model, in this order, as for `run_attack`.
            **options: options of `run_attack` with canonical parameters (for a worst case, a dict of parameters for
                each attack by its name), and the options of this kind of search: `eight_bit`, `grid`, `surrogate`.

        Raises:
            DavylampError: any error of the attack or the search.
        """
        raise NotImplementedError


class Single(Search):
    """A single attack, without a search."""

    def complete_parameters(
        self, row: Implementation, given: Mapping[str, Any], epsilon: float | None = None, *, defaults: bool = False
    ) -> dict[str, Any]:
        """Return the parameters as in the base class, with a relative step size resolved at the radius."""
        shared = super().complete_parameters(row, given, defaults=defaults)
        return resolve_step_size(shared, epsilon)

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Raise an error for settings that the implementation does not support."""
        del components, grid
        check_support(row, rules, given)

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """Run the attack once, on the classifier or on a surrogate."""
        from .single import run_single

        return run_single(row, *nouns, **options)


def parse_search(name: str) -> Search:
    """Parse the name of a search or attack: "foolbox:pgd", "best(foolbox:pgd)", "best(auto)"."""
    name = name_from_record(name)
    kind = kind_in(name)
    if kind is None or not name.endswith(")"):
        return Single(name)
    inside = name[len(kind) + 1 : -1]
    home, search = _HOMES["several" if kind == "best" and ("," in inside or inside == AUTO) else kind]
    return getattr(import_module(f".{home}", __package__), search)(inside)


def kind_in(title: str) -> SearchKind | None:
    """Return the kind of search with which a run's title begins; None if the run is no search."""
    return next((kind for kind in get_args(SearchKind) if title.startswith(f"{kind}(")), None)


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of a grid's values; one empty combination without a grid.

    Raises InvalidInput for a parameter without values.
    """
    for name, values in grid.items():
        if isinstance(values, str) or not len(values):
            raise InvalidInput(f"expected a list of values of {name} in the grid, got {values!r}")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def check_learns_nothing(row: Implementation, *, apart: bool = False) -> None:
    """Raise Unsupported for an attack that is fitted at one radius before images are attacked.

    Args:
        row: the attack.
        apart: whether the attack would be fitted on fit images, which differ from the attacked images.
    """
    if row.fit and (apart or row.data_free or row.learned):
        raise Unsupported(f"{row.name} is fitted at one radius, so radii cannot be searched; run it at a radius")


def joint_row(joined: str, rows: Sequence[Implementation], what: str, kind: Kind) -> Implementation:
    """Build one implementation that represents several, with their common norms and capabilities."""
    known = [canonical_attack(row) for row in rows]
    title = f"{what} of {', '.join(dict.fromkeys(attack.title for attack in known))}"
    knowledge: Knowledge = next(each for each in _MOST_KNOWLEDGE if any(attack.knowledge == each for attack in known))
    return Implementation(
        joined,
        _LIBRARY,
        classes=dict.fromkeys((norm for norm in NORMS if all(norm in row.classes for row in rows)), ""),
        targeted="no" if any(row.targeted == "no" for row in rows) else "yes",
        random=tuple(dict.fromkeys(source for row in rows for source in row.random)),
        findings=tuple(dict.fromkeys(finding for row in rows for finding in row.findings)),
        described=Attack(joined, title, kind, knowledge, _LIBRARY),
    )
