"""Radius searches in a comparison: `best(foolbox:pgd)`, `best(A,B)`, `at-saturation(foolbox:pgd)`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from ...adapters import Attack, AttackResult, Classifier, Implementation, ThreatModel, canonical_attack
from ...adapters.catalogue.lookup import accepts_parameter
from ...adapters.running.sampling import sampling_context
from ...errors import InvalidInput, Unsupported
from ..plan.choices import USUAL_SIZE, rows_of
from ..plan.config import AttackChoice
from ..query_estimates import expected_passes
from ..searches.kinds import Search, Single, parse_search
from ..searches.portfolio import MAX_QUERIES

_ALONE = Single("")  # placeholder: dataclass fields after inherited ones need a default


@dataclass(frozen=True)
class SearchImplementation(Implementation):
    """A search over the radius that acts as an implementation, with the norms and parameters of its implementations.

    Args:
        search: search over the radius.
        inner: implementations inside it.
    """

    search: Search = _ALONE
    inner: Implementation | None = None

    @property
    def name(self) -> str:
        """Name in evaluations: "best(foolbox:pgd)"."""
        return self.search.name

    @property
    def around(self) -> Implementation:
        """The implementation inside the search."""
        if self.inner is None:
            raise InvalidInput(f"expected an implementation inside {self.search.name}, got none")
        return self.inner

    @property
    def is_portfolio(self) -> bool:
        """Whether the search combines several attacks, which then choose their own parameters."""
        return self.search.is_portfolio


def is_search(attack: Any) -> bool:
    """Whether a name is that of a search: "best", "best(foolbox:pgd)", "at-saturation(pgd)"."""
    return isinstance(attack, str) and (attack == "best" or parse_search(attack).kind is not None)


def search_rows(
    attack: str, norm: Any = None, libraries: Sequence[str] = (), *, fixed: bool = False
) -> list[Implementation]:
    """Return the implementations of a search: a single one, or for `best(pgd)` one for each library that has PGD.

    Args:
        attack: "best(foolbox:pgd)", "best(A,B)", "best", "at-saturation(pgd)".
        norm: required norm; None for any norm. `best(auto)` chooses its attacks for this norm, or for linf without one.
        libraries: libraries to use; empty for all.
        fixed: whether to include fixed variants.

    Raises:
        UnknownName, InvalidInput, Unsupported: As for `rows_of`. Unsupported for a minimum-norm attack, which has no
            radius.
    """
    choice = AttackChoice(attack, norm)
    search = parse_search(choice.attack)
    return [_search_row(search.around(row), row) for row in rows_of(choice, libraries, fixed=fixed)]


def _search_row(search: Search, row: Implementation) -> SearchImplementation:
    known = canonical_attack(row)
    kind = "minimum-norm" if search.finds_smallest else "fixed-budget"
    title = f"{known.title}, {'best effort' if search.finds_smallest else 'at saturation'}"
    described = Attack(known.name, title, kind, known.knowledge, known.source, known.matched)
    parts = {item.name: getattr(row, item.name) for item in fields(Implementation)}
    return SearchImplementation(**{**parts, "described": described}, search=search, inner=row)


def attack_inside(search: str) -> str:
    """Return the attack inside a search: "pgd" for "best(foolbox:pgd)", "" if there are several.

    Names that are not searches are returned unchanged.
    """
    known = parse_search(search)
    if not is_search(search):
        return search
    return "" if known.is_portfolio or search == "best" else known.inside.rpartition(":")[2].partition("@")[0]


def parameters_of_search(row: SearchImplementation, given: Mapping[str, Any], *, defaults: bool) -> dict[str, Any]:
    """Return the parameters with which an evaluation runs a search. A relative step size is resolved at each radius.

    Args:
        row: search. A search with several attacks chooses its own parameters.
        given: parameters given by the user.
        defaults: whether the attack keeps its library's defaults. Otherwise it gets the parameters that are the same
            in all libraries.
    """
    return row.search.complete_parameters(row, given, defaults=defaults)


def check_searches(
    rows: Sequence[Implementation], threat_model: ThreatModel, given: Mapping[str, Any], *, defaults: bool
) -> None:
    """Raise an error for a search that cannot run on any image, before anything is computed.

    Raises:
        Unsupported: For minimum-norm or universal attacks, a threat model without a radius, or an unsupported request.
        InvalidInput: If a parameter has a wrong value.
    """
    refusals: list[Unsupported] = []
    searches = [row for row in rows if isinstance(row, SearchImplementation) and threat_model.norm in row.classes]
    for row in searches:
        try:
            _check_one(row, threat_model, given, defaults=defaults)
        except Unsupported as error:
            refusals.append(error)
    if refusals and len(refusals) == len(searches):
        raise refusals[0]


def _check_one(
    row: SearchImplementation, threat_model: ThreatModel, given: Mapping[str, Any], *, defaults: bool
) -> None:
    chosen = parameters_of_search(row, given, defaults=defaults)
    parameters = {name: value for name, value in chosen.items() if accepts_parameter(row, name)}
    row.search.check(row.around, threat_model, USUAL_SIZE, parameters, {})


def passes_of_row(row: Implementation, given: Mapping[str, Any], norm: str) -> float:
    """Estimate the model passes per image that an implementation needs, before any measurement.

    Args:
        row: implementation or search.
        given: parameters given by the user.
        norm: norm of the threat model.
    """
    if not isinstance(row, SearchImplementation):
        return expected_passes(row, given, norm)
    if row.is_portfolio:
        return float(given.get("max_queries", MAX_QUERIES))
    return expected_passes(row.around, given, norm) * row.search.runs


def run_search(
    row: SearchImplementation,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    judge_samples: int | None = None,
    eot: int | None = None,
    **options: Any,
) -> AttackResult:
    """Run a search with the arguments of `run_attack`. The result has the name of the search.

    Raises:
        DavylampError: Any error of the search.
    """
    with sampling_context(classifier, draws=judge_samples, eot=eot):
        return row.search.run(row.around, classifier, inputs, labels, threat_model, **options)
