"""What an attack is run in: by itself or in a search. What a kind may, what it refuses and how it is named stands here.

A name such as "best(foolbox:pgd)" is read by `parse_search` and written by `Search.name`; keys of cells hash names.
What runs a kind (`single`, `radius_search`, `portfolio`, `saturation`, `worst_case`) is loaded when it is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from ...adapters import IMPLEMENTATIONS, Attack, Implementation, ThreatModel, attack_of, find_implementation
from ...adapters.attack import Kind, Knowledge
from ...adapters.catalogue.lookup import LIBRARIES, check_support, find_library
from ...adapters.catalogue.step_size import resolve_step
from ...adapters.parameters import SUPPLIED
from ...adapters.threat_model import NORMS
from ...adapters.user_file import is_file_name
from ...errors import InvalidInput, UnknownName, Unsupported

if TYPE_CHECKING:
    from ...adapters import AttackResult

AUTO = "auto"
SearchKind = Literal["best", "at-saturation", "worst-case"]
MAX_QUERIES = 2000  # of a portfolio, for each image: AttackBench's limit
_NEAREST_CLASS = "adv-lib:deepfool"
# The attacks of best(auto), chosen on the digits models: tools/best_effort/RESULTS.md.
_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "linf": ("adv-lib:fab-t", "adv-lib:fmn@repaired", "adv-lib:fab", "adv-lib:apgd-dlr"),
    "l2": (
        "adv-lib:ddn@repaired",
        "adv-lib:fmn@repaired",
        _NEAREST_CLASS,
        "adv-lib:pdgd",
        "adv-lib:alma@repaired",
    ),
}
_LIBRARY = "davylamp"  # whose the implementations are that stand for several attacks
# Part of the key of a cell, raised whenever the same attacks would search otherwise:
_PORTFOLIO_VERSION, _WORST_CASE_VERSION = "5", "1"
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
        runs_once: the images cannot be divided: one run finds something for all of them.
        runs: how often an attack is run on an image, roughly.
        options_of_cells: what a cell is run with besides its fields.
        why_no_surrogate: why its examples cannot be made on a surrogate; "": they can.
    """

    inside: str
    kind: ClassVar[SearchKind | None] = None
    searches_radius: ClassVar[bool] = False
    finds_smallest: ClassVar[bool] = False
    runs_once: ClassVar[bool] = False
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
        return isinstance(self, Portfolio)

    def around(self, row: Implementation) -> "Search":
        """The same search with this implementation, which may stand for several."""
        return replace(self, inside=row.name)

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
        """
        return find_implementation(self.inside)

    def rows(self, row: Implementation) -> list[Implementation]:
        """The implementations that are run, of which `row` is the one or stands for all."""
        return [row]

    def attack_kind(self, row: Implementation) -> Kind:
        """What the result is that of: a fixed-budget or a minimum-norm attack."""
        return "minimum-norm" if self.finds_smallest else attack_of(row).kind

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
        return dict(given) if defaults else {**attack_of(row).matched, **given}

    def first_rules(self, row: Implementation, threat_model: ThreatModel, components: int) -> ThreatModel:
        """The threat model that the first run has, on images of so many components."""
        del row, components
        return threat_model

    def check(
        self,
        row: Implementation,
        threat_model: ThreatModel,
        components: int,
        parameters: Mapping[str, Any],
        grid: Mapping[str, Sequence[Any]],
    ) -> None:
        """Refuse what no run could do, before anything is computed.

        Args:
            row: the implementation, or the one that stands for several.
            threat_model: norm and, where it is given, radius.
            components: C x H x W of an image.
            parameters: canonical ones.
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
        return resolve_step(shared, epsilon)

    def check(
        self,
        row: Implementation,
        threat_model: ThreatModel,
        components: int,
        parameters: Mapping[str, Any],
        grid: Mapping[str, Sequence[Any]],
    ) -> None:
        """Refuse what the implementation cannot do."""
        del components, grid
        check_support(row, threat_model, parameters)

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """Run it once, on the classifier or on a surrogate."""
        from .single import run_single

        return run_single(row, *nouns, **options)


class RadiusSearch(Search):
    """`best(A)`: of each image the smallest radius at which a fixed-budget attack succeeds."""

    kind = "best"
    searches_radius = finds_smallest = True
    runs = 8
    why_no_surrogate = "the smallest change there just fools the surrogate, not the model"
    options_of_cells: ClassVar[Mapping[str, Any]] = {"reach": False}  # it runs with no other step size than it says

    def first_rules(self, row: Implementation, threat_model: ThreatModel, components: int) -> ThreatModel:
        """At the largest radius of the search."""
        from .radius_search import radii_of

        return replace(threat_model, epsilon=radii_of(row, threat_model, components).upper)

    def check(
        self,
        row: Implementation,
        threat_model: ThreatModel,
        components: int,
        parameters: Mapping[str, Any],
        grid: Mapping[str, Sequence[Any]],
    ) -> None:
        """Refuse minimum-norm and universal attacks, a threat model without a ball, and what the attack cannot do."""
        from .radius_search import check_search

        check_search(row, threat_model, components, [{**parameters, **values} for values in combinations(grid)])

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """As `best_effort`."""
        from .radius_search import best_effort

        return best_effort(row, *nouns, **options)


class Portfolio(Search):
    """`best(A,B,...)`: several attacks that look for the smallest change together; `best(auto)`: davylamp's choice."""

    kind = "best"
    searches_radius = finds_smallest = True
    runs = 8
    why_no_surrogate = RadiusSearch.why_no_surrogate

    def around(self, row: Implementation) -> "Portfolio":
        """The same search with the attacks that an implementation stands for."""
        return replace(self, inside=row.attack)

    def choose_members(self, norm: str, *, targeted: bool) -> "Portfolio":
        """Of `best(auto)` the attacks in the norm; DeepFool, which cannot be aimed at a class, in no targeted search.

        Raises:
            Unsupported: for a norm in which no attacks were compared.
        """
        return Portfolio(",".join(default_names(norm, targeted=targeted))) if self.inside == AUTO else self

    def find_row(self) -> Implementation:
        """The implementation that stands for all.

        Raises:
            UnknownName: also for attacks that cannot search together: a spec that another version or hand wrote.
        """
        try:
            return portfolio_row(self.members)
        except (InvalidInput, Unsupported) as error:
            raise UnknownName("implementation", self.inside, IMPLEMENTATIONS) from error

    def rows(self, row: Implementation) -> list[Implementation]:
        """The implementations that an implementation stands for."""
        return [find_implementation(name) for name in Portfolio(row.attack).members]

    def version(self, row: Implementation) -> str:
        """Of the search, and of every library in it."""
        libraries = dict.fromkeys(each.library for each in self.rows(row))
        versions = [f"{name} {find_library(name).version}" for name in libraries]
        return f"search {_PORTFOLIO_VERSION}, {', '.join(versions)}"

    def complete_parameters(
        self, row: Implementation, given: Mapping[str, Any], epsilon: float | None = None, *, defaults: bool = False
    ) -> dict[str, Any]:
        """With what an image may cost, which is part of what the search is; the attacks' parameters it chooses."""
        del row, epsilon, defaults
        return {"max_queries": MAX_QUERIES, **given}

    def check(
        self,
        row: Implementation,
        threat_model: ThreatModel,
        components: int,
        parameters: Mapping[str, Any],
        grid: Mapping[str, Sequence[Any]],
    ) -> None:
        """Refuse fewer than two attacks, too few queries, and what one of the attacks cannot do."""
        from .portfolio import check_portfolio

        settings = [{**parameters, **values} for values in combinations(grid)]
        check_portfolio(row, threat_model, components, settings, parameters["max_queries"])

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """As `best_of`."""
        from .portfolio import best_of

        return best_of(Portfolio(row.attack).members, *nouns, **options)


class AtSaturation(Search):
    """`at-saturation(A)`: a fixed-budget attack at the radius where its success stops growing, one for all images."""

    kind = "at-saturation"
    searches_radius = runs_once = True
    runs = 8
    why_no_surrogate = "the radius would be chosen by asking the model, which the attacker cannot"

    def first_rules(self, row: Implementation, threat_model: ThreatModel, components: int) -> ThreatModel:
        """At the largest of the radii that are run whatever comes of them."""
        from .saturation import saturation_radii

        del row
        return replace(threat_model, epsilon=max(saturation_radii(threat_model, components)))

    def check(
        self,
        row: Implementation,
        threat_model: ThreatModel,
        components: int,
        parameters: Mapping[str, Any],
        grid: Mapping[str, Sequence[Any]],
    ) -> None:
        """Refuse minimum-norm attacks, a threat model without a ball, and what the attack cannot do at a radius."""
        from .saturation import check_saturation

        del grid
        check_saturation(row, threat_model, components, parameters)

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """As `at_saturation`."""
        from .saturation import at_saturation

        return at_saturation(row, *nouns, **options)


class WorstCase(Search):
    """`worst-case(A,B,...)`: attacks one after the other, each on the images that none before it has fooled."""

    kind = "worst-case"

    def around(self, row: Implementation) -> "WorstCase":
        """The same search with the attacks that an implementation stands for."""
        return replace(self, inside=row.attack)

    def find_row(self) -> Implementation:
        """The implementation that stands for all: it has the norms that all of them have."""
        rows = [find_implementation(each) for each in self.members]
        return _joint_row(",".join(row.name for row in rows), rows, "Worst case", "fixed-budget")

    def rows(self, row: Implementation) -> list[Implementation]:
        """The implementations that are run, in their order."""
        del row
        return [find_implementation(name) for name in self.members]

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> "AttackResult":
        """As `attack_in_turn`."""
        from .worst_case import attack_in_turn

        return attack_in_turn(dict(zip(self.members, self.rows(row), strict=True)), *nouns, **options)

    def version(self, row: Implementation, versions: Sequence[str] = ()) -> str:
        """Of what is made of several attacks, of every library in it, and of the code of users' attacks.

        Args:
            row: stands for all.
            versions: of each member, in order.
        """
        parts = [
            version if each.given is not None else f"{each.library} {version}"
            for each, version in zip(self.rows(row), versions, strict=True)
        ]
        return f"worst case {_WORST_CASE_VERSION}, {', '.join(dict.fromkeys(parts))}"

    @staticmethod
    def check_member(search: Search, row: Implementation, threat_model: ThreatModel) -> None:
        """Refuse what cannot be one of several attacks of which the first success counts.

        Raises:
            InvalidInput: for a search, or a minimum-norm attack without a radius.
            Unsupported: if it learns from all images, or is known as an object only.
        """
        if search.searches_radius:
            raise InvalidInput(
                f"expected attacks at one radius with --stop-when-fooled, got {search.name}: run it apart"
            )
        if attack_of(row).kind == "minimum-norm" and threat_model.epsilon is None:
            raise InvalidInput(
                f"expected --epsilon with --stop-when-fooled and {search.name}, which looks for the smallest change: "
                "without a radius any change counts"
            )
        if row.universal or row.fit:
            raise Unsupported(f"{row.name} learns from all images, not from those that others leave: run it apart")
        if set(row.name) & set(",()"):
            raise Unsupported(
                f"expected a file without commas and brackets in its name with --stop-when-fooled: {row.name}"
            )
        if row.given is not None and row.library == "user":
            raise Unsupported(f"{row.name} was handed over: with --stop-when-fooled name it, my_file.py:{row.attack}")


def parse_search(name: str) -> Search:
    """What a name means: "foolbox:pgd", "best(foolbox:pgd)", "best(adv-lib:fmn,foolbox:pgd)", "best(auto)"."""
    kind = kind_in(name)
    if kind is None or not name.endswith(")"):
        return Single(name)
    inside = name[len(kind) + 1 : -1]
    if kind == "best":
        return Portfolio(inside) if "," in inside or inside == AUTO else RadiusSearch(inside)
    return AtSaturation(inside) if kind == "at-saturation" else WorstCase(inside)


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


def default_names(norm: str, *, targeted: bool = False) -> tuple[str, ...]:
    """The attacks of `best(auto)`; Unsupported for a norm in which none were compared.

    DeepFool, which cannot be aimed at a class, is left out of a targeted search.
    """
    if norm not in _DEFAULTS:
        raise Unsupported(f"best(auto) knows {' and '.join(_DEFAULTS)}, not {norm}: name the attacks, best(A,B)")
    return tuple(name for name in _DEFAULTS[norm] if not (targeted and name == _NEAREST_CLASS))


def portfolio_row(names: Sequence[str]) -> Implementation:
    """The implementation that stands for a search by several attacks: it has the norms that all of them have.

    Raises:
        InvalidInput: if a name is missing, occurs twice, or is no `library:attack`.
        Unsupported: for a user's attack, or one that makes one perturbation for all images, or if no norm is common.
        UnknownName: if there is no such attack.
    """
    for name in names:
        if ":" not in name or set(name) & set("()"):
            raise InvalidInput(f"expected best(...) of several attacks as LIBRARY:NAME each, got {name!r}")
        if is_file_name(name):
            raise Unsupported(_run_users_attack(name))
    if len(set(names)) < len(names):
        raise InvalidInput(f"expected different attacks in best(...), got {', '.join(names)}")
    rows = [find_implementation(name) for name in names]
    if universal := next((row.name for row in rows if row.universal), ""):
        raise Unsupported(f"{universal} makes one perturbation for all images: no image has a radius of its own")
    joint = _joint_row(",".join(names), rows, "Best", "minimum-norm")
    if not joint.classes:
        raise Unsupported(f"{', '.join(names)} have no norm in common")
    return replace(joint, params={name: name for row in rows for name in row.params if name not in SUPPLIED})


def _run_users_attack(name: str) -> str:
    """How a user's attack can be run, which does not search together with others."""
    refused = f"{name}: expected attacks of libraries in best(A,B), got one of a file"
    row = find_implementation(name)
    if row.universal:
        return f"{refused}; it makes one perturbation for all images: run it without best(...)"
    if attack_of(row).kind == "minimum-norm":
        return f"{refused}; it looks for the smallest change by itself: run it without best(...)"
    return f"{refused}; search it alone: best({name})"


def _joint_row(joined: str, rows: Sequence[Implementation], what: str, kind: Kind) -> Implementation:
    """An implementation that stands for several: it can do what all of them can."""
    known = [attack_of(row) for row in rows]
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
