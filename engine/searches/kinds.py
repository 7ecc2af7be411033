"""What an attack is run in: by itself or in a search.

A name such as "best(foolbox:pgd)" is read by `parse_search` and written by `Search.name`; keys of cells hash names.
The rules of each kind stand with what runs it: `radius_search`, `portfolio`, `saturation`, `worst_case`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from ...adapters import Attack, Implementation, ThreatModel, canonical_attack, find_implementation
from ...adapters.attack import Kind, Knowledge
from ...adapters.catalogue.lookup import LIBRARIES, check_support, find_library
from ...adapters.catalogue.step_size import resolve_step_size
from ...adapters.threat_model import NORMS
from ...errors import InvalidInput, Unsupported

if TYPE_CHECKING:
    from ...adapters import AttackResult

AUTO = "auto"
_HOMES = {  # a kind is loaded when a name has it: who reads a folder needs nothing that runs an attack
    "best": ("radius_search", "RadiusSearch"),
    "several": ("portfolio", "Portfolio"),
    "at-saturation": ("saturation", "AtSaturation"),
    "worst-case": ("worst_case", "WorstCase"),
}
SearchKind = Literal["best", "at-saturation", "worst-case"]
Values = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]
_LIBRARY = "davylamp"  # whose the implementations are that stand for several attacks
_MOST_KNOWLEDGE: tuple[Knowledge, ...] = ("white-box", "score-based", "decision-based")


@dataclass(frozen=True)
class Search:
    """An attack in a search, or (`Single`) by itself.

    Args:
        inside: name of the attack, "foolbox:pgd" or "pgd"; of several, with commas between; or "auto".

    Attributes:
        kind: the word before the brackets of the name; None for an attack by itself.
        searches_radius: it tries radii by itself: a threat model without one means as far as that takes.
        finds_smallest: the result is the smallest change of each image, as that of a minimum-norm attack.
        stands_for_several: its implementation stands for several attacks, whose names are inside.
        runs_once: the images cannot be divided: one run finds something for all of them.
        sums_up: its result is the worst case of its attacks on each image: no rival of one of them.
        chooses_radius: it is run on each model at a radius of its own, whichever was asked for.
        runs: how often an attack is run on an image, roughly.
        options_of_cells: what a cell is run with besides its fields.
        why_no_surrogate: why its examples cannot be made on a surrogate; "": they can.
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
        """As keys and users have it; `parse_search` reads it back."""
        return f"{self.kind}({self.inside})" if self.kind else self.inside

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the attacks."""
        return tuple(each.strip() for each in self.inside.split(","))

    @property
    def is_portfolio(self) -> bool:
        """Whether several attacks look for the smallest change together."""
        return self.finds_smallest and self.stands_for_several

    def around(self, row: Implementation) -> "Search":
        """The same search with this implementation, which may stand for several."""
        return replace(self, inside=row.attack if self.stands_for_several else row.name)

    def choose_members(self, norm: str, *, targeted: bool) -> "Search":
        """The same search with davylamp's choice of attacks, where it is left to it.

        Raises:
            Unsupported: for a norm in which no attacks were compared.
        """
        del norm, targeted
        return self

    def find_row(self) -> Implementation:
        """The implementation, or the one that stands for several.

        Raises:
            UnknownName: if it is not in the catalogue.
            InvalidInput, Unsupported: for attacks that cannot be run together.
        """
        return find_implementation(self.inside)

    def rows(self, row: Implementation) -> list[Implementation]:
        """The implementations that are run, of which `row` is the one or stands for all."""
        return list(map(find_implementation, self.members)) if self.stands_for_several else [row]

    def attack_kind(self, row: Implementation) -> Kind:
        """What the result is that of: a fixed-budget or a minimum-norm attack."""
        return "minimum-norm" if self.finds_smallest else canonical_attack(row).kind

    def version(self, row: Implementation) -> str:
        """Version of the library; of a user's attack the digest of its code, and the library that it is built on.

        Where the code cannot be known in full, the digest is of what is known: `Plan.unknown` says that there is more.
        """
        if row.given is None:
            return find_library(row.library).version
        form = row.given.form
        built_on = f", {form} {find_library(form).version}" if form in LIBRARIES else ""
        return f"code {row.given.identity.digest}{built_on}"

    def complete_parameters(
        self, row: Implementation, given: Mapping[str, Any], epsilon: float | None = None, *, defaults: bool = False
    ) -> dict[str, Any]:
        """The parameters that were given and, unless the libraries' `defaults` hold, those matched between libraries.

        A search resolves a relative step size at each of its radii.
        """
        del epsilon
        return dict(given) if defaults else {**canonical_attack(row).matched, **given}

    def first_rules(self, row: Implementation, threat_model: ThreatModel, components: int) -> ThreatModel:
        """The threat model that the first run has, on images of so many components."""
        del row, components
        return threat_model

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Refuse what no run could do, before anything is computed.

        Args:
            row: the implementation, or the one that stands for several.
            rules: norm and, where it is given, radius.
            components: C x H x W of an image.
            given: canonical parameters.
            grid: further parameters, and the values to try of each.

        Raises:
            Unsupported: if the row cannot do what is asked, or not in this search.
            UnknownName: if a parameter is not in the vocabulary.
            InvalidInput: if a parameter has a wrong value.
        """
        raise NotImplementedError

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """Run it.

        Args:
            row: the implementation, or the one that stands for several.
            *nouns: classifier, inputs, labels and threat model, as for `run_attack`.
            **options: those of `run_attack`, canonical parameters among them (of a worst case a table for each attack
                by its name), and those of what runs this kind: `pixels`, `grid`, `surrogate`.

        Raises:
            DavylampError: whatever the attack or the search raises.
        """
        raise NotImplementedError


class Single(Search):
    """An attack by itself."""

    def complete_parameters(
        self, row: Implementation, given: Mapping[str, Any], epsilon: float | None = None, *, defaults: bool = False
    ) -> dict[str, Any]:
        """As of every kind, with a relative step size as the number that it is at the radius."""
        shared = super().complete_parameters(row, given, defaults=defaults)
        return resolve_step_size(shared, epsilon)

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Refuse what the implementation cannot do."""
        del components, grid
        check_support(row, rules, given)

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """Run it once, on the classifier or on a surrogate."""
        from .single import run_single

        return run_single(row, *nouns, **options)


def parse_search(name: str) -> Search:
    """What a name means: "foolbox:pgd", "best(foolbox:pgd)", "best(adv-lib:fmn,foolbox:pgd)", "best(auto)"."""
    kind = kind_in(name)
    if kind is None or not name.endswith(")"):
        return Single(name)
    inside = name[len(kind) + 1 : -1]
    home, search = _HOMES["several" if kind == "best" and ("," in inside or inside == AUTO) else kind]
    return getattr(import_module(f".{home}", __package__), search)(inside)


def kind_in(title: str) -> SearchKind | None:
    """The kind of search that the title of a cell begins with, whatever stands behind it."""
    return next((kind for kind in get_args(SearchKind) if title.startswith(f"{kind}(")), None)


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; one empty combination without a grid. InvalidInput for one without values."""
    for name, values in grid.items():
        if isinstance(values, str) or not len(values):
            raise InvalidInput(f"expected a list of values of {name} in the grid, got {values!r}")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def check_learns_nothing(row: Implementation, *, apart: bool = False) -> None:
    """Raise Unsupported for an attack that learns before any image is attacked, at one radius.

    Args:
        row: the attack.
        apart: it would learn from other images than it attacks.
    """
    if row.fit and (apart or row.data_free or row.learned):
        raise Unsupported(f"{row.name} learns at one radius, before any image is attacked: run it at a radius")


def joint_row(joined: str, rows: Sequence[Implementation], what: str, kind: Kind) -> Implementation:
    """An implementation that stands for several: it can do what all of them can."""
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
