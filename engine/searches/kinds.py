"""Base class of searches, which run attacks repeatedly or together and have names like "best(foolbox:pgd)".

`parse_search` parses such a name, and `Search.name` formats it. The name is part of the key of a run. Each kind of
search is defined in the module that runs it: `radius_search`, `portfolio`, `saturation`, `worst_case`.
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
    """A search with one or several attacks. The subclass `Single` stands for an attack without a search.

    Args:
        inside: the part of the name in brackets: the name of an attack ("foolbox:pgd" or "pgd"), names of several
            attacks separated by commas, or "auto".

    Attributes:
        kind: the word before the brackets of the name; None for an attack without a search.
        searches_radius: whether the search tries several radii. A threat model without a radius then sets no limit.
        finds_smallest: whether the search returns the smallest change of each image, as a minimum-norm attack does.
        stands_for_several: whether the search has several attacks. One implementation then represents all of them.
        runs_once: whether all images must be in one run, because the search has a result that all images share.
        sums_up: whether the result is the worst case of the attacks on each image. Rankings do not compare such a
            search with its attacks.
        chooses_radius: whether the search chooses the radius for each model, whatever radius was requested.
        runs: rough number of attack runs per image.
        options_of_cells: further options of `run` for attack runs that are stored.
        why_no_surrogate: reason why the examples cannot be made on a surrogate; "" if they can.
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
        """Name of the search, for users and for keys of runs. `parse_search` is the inverse."""
        return f"{self.kind}({self.inside})" if self.kind else self.inside

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the attacks of the search."""
        return tuple(each.strip() for each in self.inside.split(","))

    @property
    def is_portfolio(self) -> bool:
        """Whether several attacks search for the smallest change together."""
        return self.finds_smallest and self.stands_for_several

    def around(self, row: Implementation) -> "Search":
        """Return a copy of the search for a different implementation, or for one that represents several attacks."""
        return replace(self, inside=row.attack if self.stands_for_several else row.name)

    def choose_members(self, norm: str, *, targeted: bool) -> "Search":
        """Return a copy of the search in which "auto" is replaced by the attacks that davylamp chooses for a norm.

        Raises:
            Unsupported: if davylamp has no choice for the norm.
        """
        del norm, targeted
        return self

    def find_row(self) -> Implementation:
        """Return the implementation of the attack.

        For several attacks, return an implementation that represents all.
        """
        return find_implementation(self.inside)

    def rows(self, row: Implementation) -> list[Implementation]:
        """Return the implementations to run. `row` is the result of `find_row`."""
        return list(map(find_implementation, self.members)) if self.stands_for_several else [row]

    def attack_kind(self, row: Implementation) -> Kind:
        """Return "minimum-norm" or "fixed-budget": the kind of attack as which the search acts."""
        return "minimum-norm" if self.finds_smallest else canonical_attack(row).kind

    def version(self, row: Implementation) -> str:
        """Return the version of the attack's library, which is part of the key of a run.

        For a user's attack, the version is the digest of the code and the version of the library that the attack
        extends. If the code cannot be identified completely, the digest covers only a part of the code. `Plan.unknown`
        then has the reasons.
        """
        if row.given is None:
            return find_library(row.library).version
        form = row.given.form
        built_on = f", {form} {find_library(form).version}" if form in LIBRARIES else ""
        return f"code {row.given.identity.digest}{built_on}"

    def complete_parameters(
        self, row: Implementation, given: Mapping[str, Any], epsilon: float | None = None, *, defaults: bool = False
    ) -> dict[str, Any]:
        """Complete the given parameters by the matched values, which make an attack comparable between libraries.

        Args:
            row: the implementation, or the one that represents several.
            given: canonical parameters that the user chose.
            epsilon: radius at which a single attack resolves a relative step size. Searches ignore it, because they
                resolve the step size at each of their radii.
            defaults: whether to use the defaults of the library instead of the matched values.
        """
        del epsilon
        return dict(given) if defaults else {**canonical_attack(row).matched, **given}

    def first_rules(self, row: Implementation, threat_model: ThreatModel, components: int) -> ThreatModel:
        """Return the threat model of the search's first run, for images with `components` components."""
        del row, components
        return threat_model

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Raise an error for settings that no run supports, before anything is computed.

        Args:
            row: the implementation, or the one that represents several.
            rules: norm and radius of the threat model. The radius may be None.
            components: C x H x W of an image.
            given: canonical parameters.
            grid: the values to try of further parameters, by parameter.

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
            **options: the options of `run_attack`, the canonical parameters, and the options of this kind of search
                (`eight_bit`, `grid`, `surrogate`). For a worst case, the parameters of each attack are a dict under the
                name of the attack.

        Raises:
            DavylampError: any error of the attack or the search.
        """
        raise NotImplementedError


class Single(Search):
    """A single attack that runs once, without a search."""

    def complete_parameters(
        self, row: Implementation, given: Mapping[str, Any], epsilon: float | None = None, *, defaults: bool = False
    ) -> dict[str, Any]:
        """Return the given parameters, completed as in the base class.

        A relative step size is resolved at the radius.
        """
        shared = super().complete_parameters(row, given, defaults=defaults)
        return resolve_step_size(shared, epsilon)

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Raise an error for settings that the implementation does not support."""
        del components, grid
        check_support(row, rules, given)

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """Run the attack once, on the model or on a surrogate."""
        from .single import run_single

        return run_single(row, *nouns, **options)


def parse_search(name: str) -> Search:
    """Parse the name of a search or of an attack: "foolbox:pgd", "best(foolbox:pgd)", "best(auto)"."""
    name = name_from_record(name)
    kind = kind_in(name)
    if kind is None or not name.endswith(")"):
        return Single(name)
    inside = name[len(kind) + 1 : -1]
    home, search = _HOMES["several" if kind == "best" and ("," in inside or inside == AUTO) else kind]
    return getattr(import_module(f".{home}", __package__), search)(inside)


def kind_in(title: str) -> SearchKind | None:
    """Return the kind of search with which a run's title begins; None for an attack without a search."""
    return next((kind for kind in get_args(SearchKind) if title.startswith(f"{kind}(")), None)


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the values of a grid, as parameters. Without a grid, return one empty combination.

    Raises:
        InvalidInput: if a parameter has no values.
    """
    for name, values in grid.items():
        if isinstance(values, str) or not len(values):
            raise InvalidInput(f"expected a list with at least one value of {name} in the grid, got {values!r}")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def check_learns_nothing(row: Implementation, *, apart: bool = False) -> None:
    """Raise an error for an attack that must be fitted at a radius before it attacks images.

    Args:
        row: the implementation.
        apart: whether the attack would be fitted on images that differ from the attacked images.

    Raises:
        Unsupported: if the attack is such an attack.
    """
    if row.fit and (apart or row.data_free or row.learned):
        raise Unsupported(f"{row.name} is fitted at one radius, so it cannot search for a radius; run it at one radius")


def joint_row(joined: str, rows: Sequence[Implementation], what: str, kind: Kind) -> Implementation:
    """Build one implementation that represents several implementations, with their common norms and capabilities.

    `joined` is its name, and `what` the first word of its title, such as "Best".
    """
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
