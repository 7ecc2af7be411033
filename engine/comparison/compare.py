"""Runs an attack in every library that implements it, with matched parameters, on the same model and images."""

import html
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd
from torch import Tensor

from ...adapters import (
    ATTACKS,
    AttackResult,
    Classifier,
    Implementation,
    ThreatModel,
    canonical_attack,
    implementations_of,
    run_attack,
)
from ...adapters.catalogue.known_issues import known_issues_of
from ...adapters.catalogue.lookup import (
    accepts_parameter,
    check_parameter_names,
    library_defaults,
    resolve_implementation,
)
from ...adapters.catalogue.step_size import resolve_step_size
from ...adapters.data.duplicates import duplicate_warning
from ...adapters.display_text import counted, format_threat_model
from ...adapters.result import UNSTEADY
from ...adapters.running.judge import quantise
from ...adapters.running.requirements import check_any_access
from ...adapters.running.sampling import clean_logits
from ...adapters.running.targets import targets_for
from ...adapters.threat_model import Norm
from ...deprecation import takes_old_names
from ...errors import AttackFailed, MissingLibrary, ModelFailed, Unsupported
from ...intervals import proportion_interval
from ...metrics import euclidean_distortion, maximum_distortion
from ..checks.standings import listed
from ..checks.verdicts import AttackResultSummary, PairComparison, contender_of_result, judge_comparison
from ..run.local_executor import Count
from .searches import SearchImplementation, attack_inside, is_search, parameters_of_search, run_search, search_rows

_LOW = 0.1  # a comparison can show little if all success rates are below this, or above 1 minus this


@dataclass(frozen=True)
class ImplementationResult:
    """Result of one implementation in a comparison, or the reason why there is no result.

    Args:
        implementation: the implementation.
        result: result of the attack. None if the attack did not run or failed.
        error: the reason why there is no result; "" if there is one.
        excused: whether the library is not at fault for the missing result, but the model, the machine or the request.
        left_out: names of the shared parameters that the implementation does not support.
        findings: known issues of the implementation in this norm.
        metrics: rates and distances, see `measure`. Empty without a result.
    """

    implementation: Implementation
    result: AttackResult | None = None
    error: str = ""
    excused: bool = False
    left_out: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Results of all implementations of one attack under one threat model, and the comparison of every two of them.

    Args:
        attack: name of the attack or search.
        threat_model: norm, epsilon, targeted.
        parameters: canonical parameters for every library.
        seed: random seed.
        rows: results of the implementations.
        pairs: comparison of every two implementations.
        notes: sentences on automatic choices, roundings and images.
        model: name of the model.
        data: name of the data.
        chosen: norm, epsilon and parameters that davylamp chose.
        defaults: whether every library ran with its own default parameters.
    """

    attack: str
    threat_model: ThreatModel
    parameters: Mapping[str, Any]
    seed: int
    rows: tuple[ImplementationResult, ...]
    pairs: tuple[PairComparison, ...]
    notes: tuple[str, ...] = ()  # automatic choices and roundings
    model: str = ""  # name
    data: str = ""  # name
    model_digest: str = ""  # identity of the model and of the images, as in the records of `evaluate`; "" if unknown
    data_digest: str = ""
    chosen: Mapping[str, Any] = field(default_factory=dict)  # defaults that were used: norm, epsilon, parameters
    defaults: bool = False  # whether every library ran with its default parameters

    @property
    def success_metric(self) -> str:
        """Symbol of the success metric: "MR" (misclassification), or "TAS" (target predicted) for targeted attacks."""
        return success_metric(self.threat_model)

    @property
    def pairs_that_ran(self) -> list[PairComparison]:
        """Pairs of implementations that both ran.

        Implementations that could not run, such as missing libraries, are omitted.
        """
        omitted = {row.implementation.name for row in self.rows if row.excused}
        return [pair for pair in self.pairs if not omitted & {pair.a, pair.b}]

    @property
    def minimum_norm(self) -> bool:
        """Whether the attack is a minimum-norm attack. Verdicts then also compare distances."""
        return canonical_attack(self.rows[0].implementation).kind == "minimum-norm"

    @property
    def cautions(self) -> list[str]:
        """Notes on rates that cannot separate implementations, distances over different images, and corrected tests."""
        name, bounded = self.success_metric, self.threat_model.epsilon is not None
        rates = {row.metrics[name] for row in self.rows if not math.isnan(row.metrics.get(name, math.nan))}
        lines = []
        if rates and bounded and (max(rates) < _LOW or min(rates) > 1 - _LOW):
            small = max(rates) < _LOW
            found = f"no {name} reaches {_LOW:g}" if small else f"each {name} is above {1 - _LOW:g}"
            better = "larger" if small else "smaller"
            lines.append(f"{found}: such rates hardly distinguish implementations; try a {better} epsilon")
        if self.minimum_norm and len(rates) > 1:
            lines.append(
                "each median distance is over the images that the implementation fooled, which are different "
                f"images if {name} differs. The verdicts use the images that both implementations fooled"
            )
        alone = [pair for pair in self.pairs_that_ran if pair.judgement.pairs > 1 and pair.judgement.p_alone >= 0]
        if alone:
            said = listed([f"{pair.a} and {pair.b} (p = {pair.judgement.p_alone:.2g})" for pair in alone])
            lines.append(
                f"not significant among {alone[0].judgement.pairs} pairs (Bonferroni), but significant if only "
                f"two implementations are compared: {said}"
            )
        return lines

    def differing_defaults(self) -> pd.DataFrame:
        """Return the parameters whose default values differ between the libraries.

        The data frame has a row for each implementation and a column for each such parameter. There are no columns if
        no default differs, or if the libraries did not run with their `defaults`.
        """
        rows = [row.implementation for row in self.rows if not isinstance(row.implementation, SearchImplementation)]
        norm = self.threat_model.norm
        defaults = {row.name: library_defaults(row, norm) for row in rows} if self.defaults else {}
        names = dict.fromkeys(name for values in defaults.values() for name in values)
        names = [name for name in names if name not in self.parameters]  # which replaced the defaults
        differing = [name for name in names if len({str(values.get(name)) for values in defaults.values()}) > 1]
        cells = [[values.get(name) for name in differing] for values in defaults.values()]
        return pd.DataFrame(cells, index=pd.Index(defaults, name="implementation"), columns=differing, dtype=object)

    def __repr__(self) -> str:
        head = f"Comparison: {self.attack}, {format_threat_model(self.threat_model)}"
        rates = [f"{row.implementation.name}: {_rate_text(row, self.success_metric)}" for row in self.rows]
        defaults = self.differing_defaults()
        table = f"Defaults that differ\n{defaults.fillna('-').to_string()}" if len(defaults.columns) else ""
        notes = [f"- {note}" for note in (*self.cautions, *self.notes)]
        return "\n".join([head, *verdict_groups(self, "(all in `pairs`)"), *rates, *[table] * bool(table), *notes])

    def _repr_html_(self) -> str:
        head = f"Comparison: {self.attack}, {format_threat_model(self.threat_model)}"
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in (head, *verdict_groups(self, "(all in `pairs`)")))
        defaults = self.differing_defaults()
        table = f"<p>Defaults that differ</p>{defaults.to_html(na_rep='-')}" if len(defaults.columns) else ""
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in (*self.cautions, *self.notes))
        return f"{lines}{self.to_frame().to_html(index=False)}{table}<ul>{notes}</ul>"

    def to_frame(self) -> pd.DataFrame:
        """Return the results as a data frame with a row for each implementation.

        Columns: `implementation`; the numbers of `measure`; `MR_low` and `MR_high`, the bounds of the 95 % interval of
        `MR`; `findings` (known issues); and `error` (the reason without a result). For targeted attacks, the names have
        `TAS` instead of `MR`. Without a result, the numbers are missing.
        """
        lines = []
        for row in self.rows:
            numbers = {name: value for name, value in row.metrics.items() if not isinstance(value, (tuple, dict))}
            low, high = row.metrics.get(f"{self.success_metric}_interval", (math.nan, math.nan))
            remarks = {"findings": " ".join(row.findings), "error": row.error}
            name = {"implementation": row.implementation.name}
            lines.append(
                {**name, **numbers, f"{self.success_metric}_low": low, f"{self.success_metric}_high": high, **remarks}
            )
        return pd.DataFrame(lines)


def verdict_groups(comparison: Comparison, rest: str = "") -> list[str]:
    """Summarise the verdicts of a comparison, in a line for each verdict.

    Examples are "identical: art, foolbox, torchattacks" and "weaker: art than foolbox". Implementations are listed
    together if the verdict holds for every two of them. "a / b, c" means that the verdict holds for a and b, and for a
    and c, but not for b and c. If several implementations are identical, only the first one is listed in other lines.
    The largest differences come first.

    Args:
        comparison: the comparison.
        rest: a text that says where all pairs are listed. If given, each weaker implementation is named once, with one
            stronger implementation and the number of the others, and the text follows. "" to list all pairs.
    """
    implementations = [row.implementation for row in comparison.rows]
    libraries = [each.library for each in implementations]
    alone = len(set(libraries)) == len(libraries) and len({each.attack for each in implementations}) == 1
    short = {each.name: each.library if alone else each.name for each in implementations}
    worse: dict[tuple[str, str], list[str]] = {}
    effects: dict[tuple[str, str], tuple[float, float]] = {}
    alike: dict[str, list[tuple[str, str]]] = {}
    for pair in comparison.pairs_that_ran:
        a, b, judgement = short.get(pair.a, pair.a), short.get(pair.b, pair.b), pair.judgement
        if pair.verdict == "weaker":
            worst, other = (a, b) if pair.weaker == pair.a else (b, a)
            clause = worst, f" ({judgement.costs})" if judgement.costs else ""
            worse.setdefault(clause, []).append(other)
            effects[clause] = max(effects.get(clause, (0.0, 0.0)), judgement.effect)
        elif pair.verdict == "broken":
            for name in pair.weaker.split(" and "):
                worse.setdefault((short.get(name, name), ""), [])
        else:
            alike.setdefault(judgement.text, []).append((a, b))
    sides = {each.name: each.side for pair in comparison.pairs_that_ran for each in pair.contenders}
    faults = {short.get(name, name): side.invalid_summary for name, side in sides.items() if side is not None}
    broken = [name for (name, _), others in worse.items() if not others]
    broken = [f"{name} (invalid results: {faults[name]})" if faults.get(name) else name for name in broken]
    lines = [f"broken: {', '.join(broken)}"] * bool(broken)
    largest_first = sorted(effects, key=lambda clause: effects[clause], reverse=True)
    said = [f"{name} than {', '.join(worse[name, costs])}{costs}" for name, costs in largest_first]
    if rest and len(said) > len({name for name, _ in effects}):
        said = [_short_clause(name, worse, largest_first) for name in dict.fromkeys(name for name, _ in largest_first)]
        said[-1] += f" {rest}"
    lines += [f"weaker: {'; '.join(said)}"] * bool(said)
    same = alike.get("identical", [])
    alike = {text: edges if edges is same else _with_one_of_identical(edges, same) for text, edges in alike.items()}
    return lines + [f"{text}: {'; '.join(_cover(edges))}" for text, edges in sorted(alike.items())]


def _short_clause(name: str, worse: dict[tuple[str, str], list[str]], largest_first: Sequence[tuple[str, str]]) -> str:
    """Return a text about a weaker implementation: "a than b", or "a than b (with 0.1 times the queries) and 3 others".

    The implementation b is the one that differs most from a.
    """
    clauses = [clause for clause in largest_first if clause[0] == name]
    others = [other for clause in clauses for other in worse[clause]]
    more = f" and {counted(len(others) - 1, 'other')}" if len(others) > 1 else ""
    return f"{name} than {others[0]}{clauses[0][1]}{more}"


def _with_one_of_identical(edges: Sequence[tuple[str, str]], same: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Replace identical implementations in pairs by the first of them, if all of them are in such pairs."""
    order = list(dict.fromkeys(name for edge in (*same, *edges) for name in edge))
    classes = {name: {name} for name in order}
    for a, b in same:
        joined = classes[a] | classes[b]
        classes |= dict.fromkeys(joined, joined)
    pairs, kept = {frozenset(edge) for edge in edges}, dict[frozenset[str], tuple[str, str]]()
    for a, b in edges:
        whole = all({x, y} in pairs for x in classes[a] for y in classes[b])
        first, second = (min(classes[name], key=order.index) if whole else name for name in (a, b))
        kept.setdefault(frozenset((first, second)), (first, second))
    return list(kept.values())


def _cover(edges: Sequence[tuple[str, str]]) -> list[str]:
    """Summarise pairs in few texts: names of which every two form a pair, or a name with its partners ("a / b, c")."""
    left, texts = dict.fromkeys(edges), []
    while left:
        partners: dict[str, list[str]] = {}
        for a, b in left:
            partners.setdefault(a, []).append(b)
            partners.setdefault(b, []).append(a)
        first = max(partners, key=lambda name: len(partners[name]))
        clique = [first]
        for name in partners[first]:
            if all(name in partners[other] for other in clique):
                clique.append(name)
        star = len(clique) == 2 and len(partners[first]) > 1
        members = [first, *partners[first]] if star else clique
        texts.append(f"{first} / {', '.join(members[1:])}" if star else ", ".join(_as_met(members, edges)))
        inside = {first} if star else {*clique}
        left = {(a, b): None for a, b in left if not ((a in inside or b in inside) if star else {a, b} <= inside)}
    return texts


def _as_met(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[str]:
    return [name for name in dict.fromkeys(name for edge in edges for name in edge) if name in names]


def success_metric(threat_model: ThreatModel) -> str:
    """Return the symbol of the success metric: "MR" (misclassification), or "TAS" (target predicted) if targeted."""
    return "TAS" if threat_model.targeted else "MR"


def _rate_text(row: ImplementationResult, rate: str) -> str:
    if not row.metrics:
        return f"{'omitted' if row.excused else 'no result'} ({row.error})"
    low, high = row.metrics[f"{rate}_interval"]
    violations = f", {row.metrics['violations']} invalid" if row.metrics["violations"] else ""
    return f"{rate} {row.metrics[rate]:.3g} [{low:.3g}, {high:.3g}] of {row.metrics['images']} images{violations}"


@takes_old_names()
def compare(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
    attack: Any,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    parameters: Mapping[str, Any] | None = None,
    rows: Sequence[Implementation] | None = None,
    defaults: bool = False,
    target: str = "second-likely",
    seed: int = 0,
    judge_samples: int | None = None,
    eot: int | None = None,
    progress: Callable[[str, int], object] | None = None,
) -> Comparison:
    """Run every implementation of an attack, and compare every two of them image by image.

    Args:
        attack: name of a canonical attack ("pgd"), a user's attack or its file ("path/to/file.py:NAME"), or a search
            ("best(pgd)", "at-saturation(foolbox:pgd)").
        classifier: model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, shape (N,).
        threat_model: norm, epsilon, targeted.
        parameters: canonical parameters for every library. They override the matched parameters of the attack. If a
            library does not support a parameter, it runs without this parameter, and its result lists it.
        rows: implementations, or searches over implementations (`search_rows`). None for all implementations of
            davylamp that support the norm.
        defaults: whether to use the default parameters of each library and pass only `parameters`.
        target: "second-likely", "least-likely", "random" or a class number, for a targeted threat model.
        seed: random seed.
        judge_samples: number of samples on which a random model is judged, as for `run_attack`.
        eot: number of samples of a random model that the attacks average, as for `run_attack`.
        progress: called with the name of an implementation and the number of images that were just finished.

    Returns:
        Results in the order of the libraries, and a verdict for every two implementations that ran or failed.

    Raises:
        UnknownName: if there is no such attack or parameter.
        Unsupported: if no implementation supports the norm or a given parameter.
        InvalidInput: if an argument has a wrong value.
        ModelFailed: if the model fails on the clean images.
        KeyboardInterrupt: if the user interrupts the call. If implementations have finished, its argument is their
            `Comparison`.
    """
    chosen = list(rows) if rows is not None else _implementations_of(attack)
    attack = attack if isinstance(attack, str) else chosen[0].attack
    fitting = [row for row in chosen if threat_model.norm in row.classes]
    if not fitting:
        norms = sorted({norm for row in chosen for norm in row.classes})
        raise Unsupported(f"no implementation of {attack} supports norm {threat_model.norm}, only {', '.join(norms)}")
    given = dict(parameters or {})
    check_parameter_names(
        given, attack, fitting, {name: parameter for row in fitting for name, parameter in row.more.items()}
    )
    unresolved = shared_parameters(attack, given, defaults=defaults)
    shared = resolve_step_size(unresolved, threat_model.epsilon)

    def conclude(lines: Sequence[ImplementationResult], notes: tuple[str, ...] = ()) -> Comparison:
        notes += ((UNSTEADY,) if classifier.steady is False else ()) + tuple(duplicate_warning(inputs, labels))
        pairs = judge_comparison([contender(line) for line in lines])
        return Comparison(
            attack, threat_model, shared, seed, tuple(lines), pairs, notes, classifier.name, defaults=defaults
        )

    with classifier.frozen():
        logits = clean_logits(classifier, inputs, labels)  # a model that fails here fails for every library
        targets = targets_for(classifier, logits, labels, target, seed) if threat_model.targeted else None
        check_any_access(fitting, classifier, inputs, norm=threat_model.norm, aimed=threat_model.targeted)
        lines = []
        for row in fitting:
            given_to_all: dict[str, Any] = {"targets": targets, "seed": seed, "logits": logits}
            given_to_all |= {"judge_samples": judge_samples, "eot": eot}
            given_to_all["progress"] = Count(row.name, progress) if progress else None
            search = isinstance(row, SearchImplementation)
            run = partial(run_search if search else run_attack, row, classifier, inputs, labels, threat_model)  # type: ignore[arg-type]
            values = parameters_of_search(row, given, defaults=defaults) if search else shared
            try:
                lines.append(_line(row, threat_model.norm, inputs, values, partial(run, **given_to_all)))
            except KeyboardInterrupt:
                if not lines:
                    raise
                late = f"interrupted: {', '.join(row.name for row in fitting[len(lines) :])} did not finish"
                raise KeyboardInterrupt(conclude(lines, (late,))) from None
    return conclude(lines)


def _implementations_of(attack: Any) -> list[Implementation]:
    if is_search(attack):
        return search_rows(attack)
    if isinstance(attack, str) and attack in ATTACKS:
        return [row for row in implementations_of(attack) if not row.variant]
    return (
        implementations_of(attack)
        if isinstance(attack, str) and ":" not in attack
        else [resolve_implementation(attack)]
    )


def _line(
    row: Implementation, norm: Norm, inputs: Tensor, shared: Mapping[str, Any], run: Callable[..., AttackResult]
) -> ImplementationResult:
    """Run an implementation with those of the `shared` parameters that it supports.

    If it fails, the result has the error.
    """
    parameters = {name: value for name, value in shared.items() if accepts_parameter(row, name)}
    left_out = tuple(name for name in shared if name not in parameters)
    findings = known_issues_of(row, norm)
    try:
        result = run(**parameters)
    except (AttackFailed, MissingLibrary, ModelFailed, Unsupported) as error:
        excused = not isinstance(error, AttackFailed)
        return ImplementationResult(row, error=str(error), excused=excused, left_out=left_out, findings=findings)
    return ImplementationResult(row, result, left_out=left_out, findings=findings, metrics=measure(result, inputs))


def matched_parameters(attack: str, threat_model: ThreatModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters for every library: the matched parameters of an attack, overridden by `given`.

    A relative step size is resolved at the radius.
    """
    return resolve_step_size(shared_parameters(attack, given, defaults=False), threat_model.epsilon)


def shared_parameters(attack: str, given: Mapping[str, Any], *, defaults: bool) -> dict[str, Any]:
    """Return the parameters that all libraries get: the attack's common values, replaced by those in `given`.

    With `defaults`, return only `given`. A relative step size ("2.5 epsilon / steps") stays a string.
    """
    name = attack_inside(attack)
    return {**(ATTACKS[name].matched if name in ATTACKS and not defaults else {}), **given}


def contender(row: ImplementationResult) -> AttackResultSummary:
    """Convert the result of an implementation to an `AttackResultSummary`, which `judge_comparison` compares."""
    if row.result is None:
        return AttackResultSummary(
            row.implementation.name, reason=row.error, crashed=bool(row.error) and not row.excused
        )
    return contender_of_result(row.implementation, row.result)


def measure(result: AttackResult, inputs: Tensor) -> dict[str, Any]:
    """Compute the rates and distances of one implementation.

    Rates are over all attacked images: an invalid result counts neither as fooled nor as robust. The upper bound of the
    interval of the fooled rate (`success_metric`) counts invalid results as fooled, except those that are the library's
    fault. Distances are over the successes, and NaN without successes.

    Args:
        result: result of the implementation.
        inputs: clean images, shape (N, C, H, W).
    """
    attacked, success = result.attacked, result.success
    count, fooled, total = int(attacked.sum()), int(success.sum()), float(result.fooled_rate.sum())
    rate, hidden = success_metric(result.threat_model), result.undecided
    clean, adv = inputs.float(), result.adv_inputs
    broken = [set(kinds) for kinds, hit in zip(result.violations, attacked.tolist(), strict=True) if hit and kinds]
    grid = (quantise(clean) == quantise(adv)).flatten(1).all(1)
    numbers: dict[str, Any] = {
        "images": count,
        rate: total / count if count else math.nan,
        f"{rate}_interval": (proportion_interval(total, count)[0], proportion_interval(total + hidden, count)[1]),
        f"{rate}_8bit": int(result.success_8bit.sum()) / count if count else math.nan,
        "robust": float(result.robust_rate.sum()) / count if count else math.nan,
        "AMD": float(maximum_distortion(clean, adv, success)),
        "AED": float(euclidean_distortion(clean, adv, success)),
        "seconds_per_image": float(result.seconds.sum()) / count if count else math.nan,
        "below_grey_level": int((success & grid).sum()),
        "violations": len(broken),
        "violation_kinds": dict(sorted(Counter(kind for kinds in broken for kind in kinds).items())),
    }
    for norm in ("l0", "l1", "l2", "linf"):
        values = getattr(result.distances, norm)[success]
        numbers[f"{norm}_median"] = float(values.quantile(0.5)) if fooled else math.nan
        numbers[f"{norm}_mean"] = float(values.mean()) if fooled else math.nan
    for kind in ("forwards", "backwards"):
        values = getattr(result, kind)[attacked]
        numbers[f"{kind}_median"] = float(values.double().quantile(0.5)) if count else math.nan
        numbers[f"{kind}_max"] = int(values.max()) if count else 0
    return numbers
