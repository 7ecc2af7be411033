"""Checks an attack on a linear model, for which the smallest adversarial perturbation of every image is known."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ...errors import DavylampError, InvalidInput, MissingLibrary
from ..attack import Implementation, Parameter, RunSetting
from ..catalogue.lookup import (
    UNIVERSAL,
    accepted_parameters,
    accepts_parameter,
    canonical_attack,
    check_support,
    library_defaults,
    resolve_implementation,
    why_not_on,
)
from ..models.classifier import Classifier
from ..parameters import PARAMETERS
from ..result import OF_THE_LIBRARY, AttackResult
from ..running.library_call import LibraryOutput
from ..running.run import run_attack
from ..running.seeding import NotedSeedings, seeded
from ..threat_model import Norm, ThreatModel
from .linear_model import DUAL, ContractCase, make_coarse_case, make_linear_case
from .misbehaving_models import run_misbehaving_model_checks
from .query_tally import QueryTally, with_tally

State = Literal["passed", "failed", "weak", "inconclusive", "not applicable"]
BUDGET = 7  # forward plus backward passes an image
_MOST = {
    **{"steps": 100, "restarts": 2, "binary_search_steps": 5, "samples": 5, "population": 10, "directions": 200},
    **{"initial_evaluations": 100, "max_evaluations": 200, "tolerance": 1e-5},
}
_STEPS = 40  # of a fixed-budget attack
_NEAR = 1.25  # times the least perturbation: what a minimum-norm attack is expected to find
_SEED = 1_866_453_297  # a value that other code is unlikely to use as a seed
_GREY_LEVELS = "truncates-levels"  # the known issue of an attack that moves in whole grey levels of 8 bits
_IDLE = {"unchanged", "barely-moved"}
_TOLERANCE = 1e-4
_ALONE = 0.05  # relative: rounding differs with the size of a batch, and iterations may go on from there
_ROUNDING = 1e-3  # of the clean margin: an example this close is on the boundary


class ContractCheck(NamedTuple):
    """Result of one contract check of an implementation under one norm.

    Attributes:
        implementation: name of the implementation.
        norm: the norm.
        promise: name of the check, one of `PROMISES`.
        state: "passed" or "failed". "weak" if the attack breaks no rule but misses examples that are known to exist.
            "inconclusive" if the attack returned every image nearly unchanged. "not applicable" if the implementation
            does not declare the checked property.
        detail: what was observed.
    """

    implementation: str
    norm: str
    promise: str
    state: State
    detail: str


class _CallObservation(NamedTuple):
    """Observations during one call of a library.

    Attributes:
        counted: numbers of forward and backward passes that davylamp counted.
        seen: numbers of forward and backward passes that the model received.
        changed: names of the global settings that the library changed.
    """

    counted: tuple[int, int]
    seen: tuple[int, int]
    changed: tuple[str, ...]


class _Run(NamedTuple):
    result: AttackResult
    calls: tuple[_CallObservation, ...]


class _CheckSetup(NamedTuple):
    row: Implementation
    norm: Norm
    words: Mapping[str, Any]
    case: ContractCase
    epsilon: float | None
    done: dict[Any, _Run]  # runs that several checks use

    @property
    def bound(self) -> bool:
        return canonical_attack(self.row).kind == "fixed-budget" and self.norm != "unrestricted"

    @property
    def least(self) -> Tensor:
        """Size of the smallest adversarial perturbation of each image, shape (N,)."""
        if self.norm not in self.case.least:
            raise InvalidInput(f"the smallest adversarial {self.norm} perturbations of this model are not known")
        return self.case.least[self.norm]

    @property
    def idle(self) -> bool:
        """Whether the attack returns every image nearly unchanged, so that it cannot break a rule."""
        return all(_IDLE & set(kinds) for kinds in self.run().violations)

    @property
    def radius(self) -> float:
        """Radius of the checks: `epsilon`, or else twice the largest of the smallest adversarial perturbations."""
        if self.epsilon is not None or not self.bound:
            return self.epsilon or 0.0
        return 2 * float(self.least.max())

    def run(self, times: float | None = None, *, images: slice = slice(None), **more: Any) -> AttackResult:
        """Run the attack at the default radius.

        If `times` is given, the radius is `times` times the largest of the smallest adversarial perturbations of
        `images`.
        """
        radius = self.radius if times is None else times * float(self.least[images].max())
        return self.watched(radius, images, **more).result

    def watched(self, radius: float | None = None, images: slice = slice(None), **more: Any) -> _Run:
        """Run the attack, and return the result with observations on each library call.

        If `targets` are given, the attack is targeted.
        """
        rules = ThreatModel(self.norm, (radius or self.radius) if self.bound else None, "targets" in more)
        # The place seeds an image: alone as in the batch.
        words = {"seed": _SEED, **self.words, **more, "first": images.start or 0}
        key = rules.epsilon, str(images), repr(sorted(words.items()))
        if key not in self.done:
            self.done[key] = self._attack(rules, images, words)
        return self.done[key]

    def again(self) -> AttackResult:
        with seeded(_SEED + 1):
            rules = ThreatModel(self.norm, self.radius if self.bound else None)
            return self._attack(rules, slice(None), {"seed": _SEED, **self.words}).result

    def _attack(self, rules: ThreatModel, images: slice, words: Mapping[str, Any]) -> _Run:
        inputs, labels = self.case.inputs[images], self.case.labels[images]
        tally, calls, seedings = QueryTally(), [], NotedSeedings()
        classifier = Classifier(with_tally(self.case.module, tally), outputs="logits")
        classifier.steady = True  # no clean logits are computed either: the model sees the attack alone
        classifier.answers.note_gradients(there=True)

        def watch(call: LibraryOutput) -> None:
            counted = int(call.forwards.sum()), int(call.backwards.sum())
            seeds = seedings.take()
            seeds += ["the seed of torch's random generator"] if len({*call.torch_seeds}) > 1 else []
            calls.append(_CallObservation(counted, tally.take(), (*call.put_back, *seeds)))

        with torch.no_grad():
            logits = self.case.module(inputs)
        with seedings.noting():
            result = run_attack(self.row, classifier, inputs, labels, rules, logits=logits, watch=watch, **words)
        return _Run(result, tuple(calls))


def run_contract_checks(
    attack: Any, *, norms: Sequence[Norm] | None = None, parameters: Mapping[str, Any] | None = None
) -> Iterator[ContractCheck]:
    """Run the contract checks of an attack on the linear model.

    Args:
        attack: an implementation, its name, or a user's attack.
        norms: norms to check. None for all norms that the implementation supports. l0 and "unrestricted" are not
            checked, because there the smallest adversarial perturbations are not known.
        parameters: canonical parameters with which the attack is run. None for default values of the checks, which are
            chosen for speed.

    Yields:
        The result of each check, as soon as the check is finished.

    Raises:
        UnknownName, Unavailable, InvalidInput: if there is no such attack.
        MissingLibrary: if the attack's library is not installed.
        Unsupported: if the attack cannot run.
    """
    row = resolve_implementation(attack)
    chosen: list[Norm] = [norm for norm in norms_of(row) if norms is None or norm in norms]
    if not chosen:
        first, *_ = asked = list(row.classes) if norms is None else norms
        reason = f"{', '.join(asked)}: the smallest perturbation is known only for linf, l2 and l1"
        yield ContractCheck(row.name, first, "runs", "not applicable", f"not checked, {reason}")
    for norm in chosen:
        done: dict[Any, Any] = {}
        for name in PROMISES:
            promise = run_contract_check(row, norm, name, parameters=parameters, done=done)
            yield promise
            if name == "runs" and promise.state == "failed":
                break


def check_contracts(
    rows: Iterable[Implementation],
    *,
    norms: Collection[str] = (),
    parameters: Mapping[str, Any] | None = None,
    quick: bool = False,
    progress: Callable[[str], object] = lambda _: None,
) -> list[ContractCheck]:
    """Run the contract checks of several implementations, on the linear model and on misbehaving models.

    Args:
        rows: the implementations.
        norms: norms to check. Empty for all norms.
        parameters: canonical parameters with which the attacks are run. None for default values of the checks, which
            are chosen for speed.
        quick: whether to skip the misbehaving models.
        progress: called with the name of each implementation before the implementation is checked.
    """
    checks: list[ContractCheck] = []
    for row in rows:
        progress(row.name)
        tested: list[Any] = [each for each in row.classes if not norms or each in norms]
        of_row = list(run_contract_checks(row, norms=tested, parameters=parameters))
        idle = {each.norm for each in of_row if (each.promise, each.state) == ("runs", "failed")}
        checks += of_row
        for lapse in [] if quick else run_misbehaving_model_checks([row], norms=tested, parameters=parameters):
            if lapse.norm in idle and not lapse.complaint:  # implementations that do not run cannot be tested
                continue
            state, detail = ("failed", lapse.complaint) if lapse.complaint else ("passed", lapse.outcome)
            checks.append(ContractCheck(row.name, lapse.norm, f"tells the truth on {lapse.plant}", state, detail))
    return checks


def norms_of(attack: Any) -> list[Norm]:
    """Return the norms for which the contract of an attack can be checked."""
    return [norm for norm in resolve_implementation(attack).classes if norm in DUAL]  # type: ignore[misc]


def run_contract_check(
    attack: Any,
    norm: Norm,
    name: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    case: ContractCase | None = None,
    epsilon: float | None = None,
    done: dict[Any, Any] | None = None,
) -> ContractCheck:
    """Run one contract check of an attack, and return its result.

    Args:
        attack: an implementation, its name, or a user's attack.
        norm: a norm that the attack supports. For the linear model (`case` is None), linf, l2 or l1.
        name: name of the check, one of `PROMISES`.
        parameters: canonical parameters with which the attack is run. None for default values of the checks, which are
            chosen for speed.
        case: a model with images. None for the linear model. If the smallest adversarial perturbations of the case are
            not known, checks that need them cannot be run, and a fixed-budget attack needs `epsilon`.
        epsilon: radius of a fixed-budget attack. None for twice the largest of the smallest adversarial perturbations.
        done: cache of runs. Checks of the same attack with the same norm, case and epsilon can share one cache.

    Raises:
        DavylampError: see `run_contract_checks`.
    """
    row = resolve_implementation(attack)
    words = _quick(row) if parameters is None else dict(parameters)
    if case is None:
        case = make_coarse_case() if _GREY_LEVELS in row.findings else make_linear_case()
    trial = _CheckSetup(row, norm, words, case, epsilon, {} if done is None else done)
    rules = ThreatModel(norm, trial.radius if trial.bound else None)
    check_support(row, rules, words)
    classes = int(case.module(case.inputs[:1]).shape[1])
    if why := why_not_on(row, RunSetting(case.module, classes, tuple(case.inputs.shape[1:]), rules, words)):
        return ContractCheck(row.name, norm, name, "inconclusive", f"{row.name} {why}")
    try:
        state, detail = _CHECKS[name](trial)
        if state == "passed" and trial.idle:
            state, detail = "inconclusive", f"the attack changed no image; {detail}"
    except MissingLibrary:
        raise
    except DavylampError as error:
        state, detail = "failed", " ".join(str(error).split())[:200]
    return ContractCheck(row.name, norm, name, state, detail)


def _quick(row: Implementation) -> dict[str, Any]:
    fixed = canonical_attack(row).kind == "fixed-budget"
    words = {name: value for name, value in _MOST.items() if accepts_parameter(row, name) and name != "restarts"}
    return words | ({"steps": _STEPS} if fixed and "steps" in words else {})


def _runs(trial: _CheckSetup) -> tuple[State, str]:
    result = trial.run()
    return (
        "passed",
        f"{int(result.success.sum())} of {len(result.labels)} images fooled at twice the least perturbation",
    )


def _keeps_the_rules(trial: _CheckSetup) -> tuple[State, str]:
    """Check that examples are finite, within the radius, in [0, 1] and in the order of the images.

    Also check that the model is unchanged.
    """
    kinds = [kind for each in trial.run().violations for kind in each if kind in OF_THE_LIBRARY]
    return ("failed", ", ".join(sorted(set(kinds)))) if kinds else ("passed", "no violation")


def _repeats(trial: _CheckSetup) -> tuple[State, str]:
    first, second = trial.run(), trial.again()
    same = torch.equal(first.adv_inputs, second.adv_inputs) and torch.equal(first.forwards, second.forwards)
    return ("passed", "the same seed gives the same images and counts") if same else (
        "failed", "two runs with one seed differ. Declare the random sources in `random`, or accept a `seed` argument"
    )  # fmt: skip


def _alone(trial: _CheckSetup) -> tuple[State, str]:
    """Check that a deterministic attack returns the same example whether an image is attacked alone or in a batch."""
    if trial.row.random or trial.row.universal:
        return (
            "not applicable",
            "it draws random numbers" if trial.row.random else "it searches for one perturbation for all images",
        )
    together = trial.run()
    single = [trial.watched(None, slice(place, place + 1)).result for place in range(len(trial.case.labels))]
    sizes = torch.stack([together.distance, torch.cat([one.distance for one in single])])
    fooled = torch.stack([together.success, torch.cat([one.success for one in single])])
    both = torch.ones_like(together.success) if trial.bound else fooled.all(0)
    change = float(((sizes[0] - sizes[1]).abs() / sizes.amax(0).clamp(min=1e-9))[both].max()) if both.any() else 0.0
    # A search that ends on the boundary may miss it by rounding, which differs with the size of the batch.
    flipped = fooled[0] != fooled[1]
    alone = torch.cat([one.adv_logits for one in single])
    margin = _margin(torch.where(fooled[0][:, None], together.adv_logits, alone))
    missed = int((flipped & (margin > _ROUNDING * _margin(together.logits))).sum())
    kept = change <= _ALONE and not missed
    detail = (
        f"distances differ by at most {change:.2%}, and success differs on {int(flipped.sum())} of {len(both)} images"
    )
    detail += f" ({missed} of these images are not near the decision boundary)" if flipped.any() else ""
    return ("passed" if kept else "failed"), f"between one image per call and a batch, {detail}"


def _margin(logits: Tensor) -> Tensor:
    highest = logits.topk(2, dim=1).values
    return highest[:, 0] - highest[:, 1]


def _budget(trial: _CheckSetup) -> tuple[State, str]:
    result = trial.run(max_queries=BUDGET)
    spent = int((result.forwards + result.backwards).max())
    crashed = any("crashed" in kinds for kinds in result.violations)
    return (
        "failed" if crashed or spent > BUDGET else "passed"
    ), f"used at most {spent} of {BUDGET} allowed queries" + (
        "; the library crashed when the budget was used up" if crashed else ""
    )


def _honest_count(trial: _CheckSetup) -> tuple[State, str]:
    """Check that davylamp counts every pass of the model, for a batch, for one image, and with a query budget."""
    whole = trial.watched()
    alone, limited = trial.watched(None, slice(0, 1)), trial.watched(max_queries=BUDGET)
    runs = [(whole, "forward"), (whole, "backward"), (alone, "forward"), (alone, "backward"), (limited, "forward")]
    for (
        run,
        kind,
    ) in runs:  # within a budget, uncounted zero gradients pass through the model together with granted ones
        for call in run.calls:
            counted, seen = call.counted[kind == "backward"], call.seen[kind == "backward"]
            if counted != seen:
                return "failed", f"only {counted} of {seen} {kind} passes were counted"
    total = [sum(call.seen[place] for call in whole.calls) for place in (0, 1)]
    return "passed", f"all {total[0]} forward and {total[1]} backward passes were counted"


def _restores(trial: _CheckSetup) -> tuple[State, str]:
    """Check that the attack does not change global settings, and does not seed the global random generators."""
    first, later = trial.watched(), trial.watched(None, slice(0, 1))
    changed = dict.fromkeys(name for run in (first, later) for call in run.calls for name in call.changed)
    if not any("warning filters" in call.changed for call in later.calls):
        changed.pop("warning filters", None)  # by a module that the first call imported, once
    if changed:
        return "failed", f"it changed {', '.join(changed)} (davylamp restores this after each call)"
    return "passed", "settings of torch and NumPy, seeds, warning filters and the working folder are unchanged"


def _nothing_impossible(trial: _CheckSetup) -> tuple[State, str]:
    """Check that the attack reports no success below the smallest adversarial perturbation, which is impossible."""
    least = trial.least
    if trial.bound:
        impossible = trial.run(times=0.9 * float(least.min() / least.max()))
        count = int(impossible.success.sum())
        return ("failed" if count else "passed"), f"{count} images fooled at 0.9 times the least perturbation"
    result = trial.run()
    nearer = int((result.distance[result.success] < least[result.success] * (1 - _TOLERANCE)).sum())
    return ("failed" if nearer else "passed"), f"{nearer} examples with a distance below the least perturbation"


def _finds_it(trial: _CheckSetup) -> tuple[State, str]:
    least = trial.least
    if trial.bound:
        each = [trial.run(times=1.1, images=slice(place, place + 1)) for place in range(len(least))]
        count = sum(int(result.success.sum()) for result in each)
        return (
            "passed" if count == len(least) else "weak"
        ), f"{count} of {len(least)} images fooled at 1.1 times the least perturbation"
    result = trial.run()
    ratio = float((result.distance / least)[result.success].max()) if result.success.all() else float("inf")
    return ("passed" if ratio <= _NEAR else "weak"), f"distances of at most {ratio:.3g} times the least perturbation"


def _aims(trial: _CheckSetup) -> tuple[State, str]:
    if trial.row.targeted == "no":
        return "not applicable", "it has no targeted mode"
    targets = (trial.case.labels + 1) % trial.run().logits.shape[1]
    result = trial.run(times=None if trial.epsilon else 4.0, targets=targets)
    hit = result.adv_logits.argmax(1)[result.success] == targets[result.success]
    wrong = int((~hit).sum())
    state: State = "failed" if wrong else "passed" if result.success.any() else "weak"
    return state, f"{int(result.success.sum())} of {len(targets)} examples are classified as their target class"


def _parameters(trial: _CheckSetup) -> tuple[State, str]:
    """Check that the attack accepts each declared parameter, with its default value if it has one."""
    defaults = library_defaults(trial.row, trial.norm)
    given = {}
    for name in accepted_parameters(trial.row):
        value = defaults.get(name)
        if name in trial.words or name in (*UNIVERSAL, "restarts"):
            continue
        if type(value) not in (bool, int, float):
            given[name] = _some_value(trial, name)
        else:  # ART writes 0 for False
            given[name] = bool(value) if _parameter(trial, name).type is bool else value
    given = {name: value for name, value in given.items() if value is not None}
    complaint = _complaint(trial, given)
    if complaint is None:
        return "passed", f"{len(given) + len(trial.words)} parameters accepted"
    each = {name: _complaint(trial, {name: value}) for name, value in given.items()}
    reasons = "; ".join(f"{name}: {reason}" for name, reason in each.items() if reason) or f"all together: {complaint}"
    return "failed", reasons[:200]


def _complaint(trial: _CheckSetup, given: Mapping[str, Any]) -> str | None:
    try:
        result = trial.run(**given)
    except DavylampError as error:
        return " ".join(str(error).split())
    return next((error for error in result.errors), None)


def _some_value(trial: _CheckSetup, name: str) -> Any:
    if name == "step_size":
        return 0.1 * (trial.radius or 2 * float(trial.least.max()))
    parameter = _parameter(trial, name)
    if parameter.type is float:
        return min(parameter.high, 0.5)
    return {bool: True, int: max(int(parameter.low), 2)}.get(parameter.type)


def _parameter(trial: _CheckSetup, name: str) -> Parameter:
    return trial.row.more.get(name) or PARAMETERS[name]


_CHECKS: Mapping[str, Callable[[_CheckSetup], tuple[State, str]]] = {
    "runs": _runs,
    "keeps the rules": _keeps_the_rules,
    "repeats with its seed": _repeats,
    "attacks each image alone": _alone,
    "restores global state": _restores,
    "keeps a budget": _budget,
    "honest query count": _honest_count,
    "takes its parameters": _parameters,
    "never passes the known optimum": _nothing_impossible,
    "finds the known optimum": _finds_it,
    "aims at a class": _aims,
}
PROMISES = tuple(_CHECKS)
