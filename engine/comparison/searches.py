"""Searches in a comparison: `best(foolbox:pgd)`, `best(A,B)`, `at-saturation(foolbox:pgd)`."""

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
    """A search that can be compared like an implementation. It has the norms and parameters of the attacks inside it.

    Args:
        search: the search.
        inner: the implementation inside the search, or one that represents all attacks of the search.
    """

    search: Search = _ALONE
    inner: Implementation | None = None

    @property
    def name(self) -> str:
        """Name of the search: "best(foolbox:pgd)"."""
        return self.search.name

    @property
    def around(self) -> Implementation:
        """The implementation inside the search.

        Raises:
            InvalidInput: if there is none.
        """
        if self.inner is None:
            raise InvalidInput(f"the search {self.search.name} names no implementation")
        return self.inner

    @property
    def is_portfolio(self) -> bool:
        """Whether the search combines several attacks. Such a search chooses the parameters of its attacks."""
        return self.search.is_portfolio


def is_search(attack: Any) -> bool:
    """Whether a name denotes a search: "best", "best(foolbox:pgd)", "at-saturation(pgd)"."""
    return isinstance(attack, str) and (attack == "best" or parse_search(attack).kind is not None)


def search_rows(
    attack: str, norm: Any = None, libraries: Sequence[str] = (), *, fixed: bool = False
) -> list[Implementation]:
    """Return the implementations of a search: for `best(pgd)`, one for each library that has PGD; otherwise only one.

    Args:
        attack: "best(foolbox:pgd)", "best(A,B)", "best" or "at-saturation(pgd)".
        norm: required norm. None for any norm. `best(auto)` chooses its attacks for this norm, or for linf without one.
        libraries: names of the libraries to use; empty for all.
        fixed: whether to include fixed variants.

    Raises:
        UnknownName, InvalidInput: the errors of `rows_of`.
        Unsupported: the errors of `rows_of`, and for a minimum-norm attack, which has no radius to search.
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
    """Return the name of the attack inside a search: "pgd" for "best(foolbox:pgd)", "" if there are several attacks.

    A name that is not a search is returned unchanged.
    """
    known = parse_search(search)
    if not is_search(search):
        return search
    return "" if known.is_portfolio or search == "best" else known.inside.rpartition(":")[2].partition("@")[0]


def parameters_of_search(row: SearchImplementation, given: Mapping[str, Any], *, defaults: bool) -> dict[str, Any]:
    """Return the parameters with which a search runs. A relative step size is resolved by the search at each radius.

    Args:
        row: the search. A search with several attacks chooses its own parameters.
        given: canonical parameters that the user chose.
        defaults: whether the attack keeps the default parameters of its library. If False, the attack gets matched
            parameters, which are the same in all libraries.
    """
    return row.search.complete_parameters(row, given, defaults=defaults)


def check_searches(
    rows: Sequence[Implementation], threat_model: ThreatModel, given: Mapping[str, Any], *, defaults: bool
) -> None:
    """Raise an error if no search in a comparison can run, before anything is computed.

    Other implementations are ignored.

    `given` and `defaults` have the same meaning as for `parameters_of_search`.

    Raises:
        Unsupported: if no search supports the settings, for example because its attack is a minimum-norm attack.
        InvalidInput: if a parameter has a wrong value.
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
    """Estimate the passes per image of an implementation or a search, before anything is run.

    Args:
        row: the implementation or search.
        given: canonical parameters that the user chose.
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
        DavylampError: any error of the search.
    """
    with sampling_context(classifier, draws=judge_samples, eot=eot):
        return row.search.run(row.around, classifier, inputs, labels, threat_model, **options)
