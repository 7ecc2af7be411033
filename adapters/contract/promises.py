"""What every attack promises, held against a linear model whose least perturbations are known."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ...errors import DavylampError, MissingLibrary
from ..attack import Implementation, Parameter
from ..catalogue.lookup import UNIVERSAL, accepted, accepts, attack_of, check_support, library_defaults, row_of
from ..parameters import PARAMETERS
from ..result import AttackResult
from ..running.judge import OF_THE_MODEL
from ..running.run import run_attack
from ..threat_model import Norm, ThreatModel
from .linear import DUAL, LinearCase, make_linear_case

State = Literal["kept", "broken", "weak", "not shown", "not promised"]
BUDGET = 7  # forward plus backward passes an image
_MOST = {
    **{"steps": 100, "restarts": 2, "binary_search_steps": 5, "samples": 5, "population": 10, "directions": 200},
    **{"initial_evaluations": 100, "max_evaluations": 200, "tolerance": 1e-5},
}
_STEPS = 40  # of an attack whose radius is given
_NEAR = 1.25  # times the least perturbation: what a minimum-norm attack is expected to find
_IDLE = {"unchanged", "barely-moved"}
_TOLERANCE = 1e-4
_ALONE = 0.05  # relative: rounding differs with the size of a batch, and iterations may go on from there
_ROUNDING = 1e-3  # of the clean margin: an example this close is on the boundary


class Promise(NamedTuple):
    """One promise of a row under one norm, whether it is kept, and what was seen.

    "weak": no rule is broken, but the attack does not find what is known to be there; "not shown": no rule is broken,
    by an attack that did nothing; "not promised": the row does not say that it can.
    """

    implementation: str
    norm: str
    promise: str
    state: State
    detail: str


class _Trial(NamedTuple):
    row: Implementation
    norm: Norm
    words: Mapping[str, Any]
    case: LinearCase
    done: dict[Any, AttackResult]  # runs that several promises look at

    @property
    def bound(self) -> bool:
        return attack_of(self.row).kind == "fixed-budget"

    def run(self, times: float = 2.0, *, images: slice = slice(None), **more: Any) -> AttackResult:
        """The attack at a radius of so many least perturbations (of the image that takes most)."""
        return self.run_at(times * float(self.case.least[self.norm][images].max()), images, **more)

    @property
    def idle(self) -> bool:
        """Whether the attack hands every image back, more or less: it keeps rules that it never came near."""
        return all(_IDLE & set(kinds) for kinds in self.run().violations)

    def run_at(self, radius: float, images: slice = slice(None), **more: Any) -> AttackResult:
        """The attack at a radius, if it takes one; targeted if there are `targets`."""
        rules = ThreatModel(self.norm, radius if self.bound else None, "targets" in more)
        inputs, labels = self.case.inputs[images], self.case.labels[images]
        words = {**self.words, **more, "first": images.start or 0}  # the place seeds an image: alone as in the batch
        key = radius, str(images), repr(sorted(words.items()))
        if key not in self.done:
            self.done[key] = run_attack(self.row, self.case.classifier, inputs, labels, rules, **words)
        return self.done[key]


def check_contract(
    attack: Any, *, norms: Sequence[Norm] | None = None, parameters: Mapping[str, Any] | None = None
) -> Iterator[Promise]:
    """Run an attack on the linear model and hold what it promises against what is known there.

    Args:
        attack: a row, its name, or a user's attack.
        norms: of these; None: all of the row that are balls (l0 and unrestricted ones have no closed form).
        parameters: in place of quick ones.

    Yields:
        One `Promise` after the other.

    Raises:
        UnknownName, Unavailable, InvalidInput: if there is no such attack.
        MissingLibrary: if its library is not installed.
        Unsupported: if it cannot run at all.
    """
    row = row_of(attack)
    if not (norms or norms_of(row)):
        reason = f"{', '.join(row.classes)}: no norm whose least perturbation is known (linf, l2, l1)"
        yield Promise(row.name, next(iter(row.classes)), "runs", "not promised", f"not checked, {reason}")
    for norm in norms or norms_of(row):
        done: dict[Any, AttackResult] = {}
        for name in PROMISES:
            promise = check_promise(row, norm, name, parameters=parameters, done=done)
            yield promise
            if name == "runs" and promise.state == "broken":
                break


def norms_of(attack: Any) -> list[Norm]:
    """The norms in which the contract of an attack can be checked."""
    return [norm for norm in row_of(attack).classes if norm in DUAL]  # type: ignore[misc]


def check_promise(
    attack: Any,
    norm: Norm,
    name: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    done: dict[Any, AttackResult] | None = None,
) -> Promise:
    """One promise of an attack, one of `PROMISES`; arguments and errors as for `check_contract`.

    `done` keeps runs that several promises of one attack in one norm look at.
    """
    row = row_of(attack)
    words = _quick(row) if parameters is None else dict(parameters)
    check_support(row, ThreatModel(norm, 0.1 if attack_of(row).kind == "fixed-budget" else None), words)
    try:
        trial = _Trial(row, norm, words, make_linear_case(), {} if done is None else done)
        state, detail = _CHECKS[name](trial)
        if state == "kept" and trial.idle:
            state, detail = "not shown", f"the attack did nothing; {detail}"
    except MissingLibrary:
        raise
    except DavylampError as error:
        state, detail = "broken", " ".join(str(error).split())[:200]
    return Promise(row.name, norm, name, state, detail)


def _quick(row: Implementation) -> dict[str, Any]:
    """Few steps for a radius that is given, more for a search; the rest as the attack has it."""
    fixed = attack_of(row).kind == "fixed-budget"
    words = {name: value for name, value in _MOST.items() if accepts(row, name) and name != "restarts"}
    return words | ({"steps": _STEPS} if fixed and "steps" in words else {})


def _runs(trial: _Trial) -> tuple[State, str]:
    result = trial.run()
    return "kept", f"{int(result.success.sum())} of {len(result.labels)} images fooled at twice the least perturbation"


def _keeps_the_rules(trial: _Trial) -> tuple[State, str]:
    """In the ball and in [0, 1], finite, not of another image, the model untouched: every violation that it causes."""
    kinds = [kind for each in trial.run().violations for kind in each if kind not in OF_THE_MODEL]
    return ("broken", ", ".join(sorted(set(kinds)))) if kinds else ("kept", "no violation")


def _repeats(trial: _Trial) -> tuple[State, str]:
    first = trial.run(seed=5)
    trial.done.clear()
    second = trial.run(seed=5)
    same = torch.equal(first.adv_inputs, second.adv_inputs) and torch.equal(first.forwards, second.forwards)
    return ("kept", "the same seed gives the same images and counts") if same else (
        "broken", "two runs with one seed differ: name its sources in `random`, or take `seed`"
    )  # fmt: skip


def _alone(trial: _Trial) -> tuple[State, str]:
    """A deterministic attack finds the same for an image alone as in a batch."""
    if trial.row.random or trial.row.universal:
        return (
            "not promised",
            "it draws random numbers" if trial.row.random else "it looks for one perturbation for all",
        )
    radius = 2.0 * float(trial.case.least[trial.norm].max())
    together = trial.run_at(radius)
    single = [trial.run_at(radius, slice(place, place + 1)) for place in range(len(trial.case.labels))]
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
    detail = f"distances differ by {change:.2%} at most, success on {int(flipped.sum())} of {len(both)} images"
    detail += f", {missed} of them off the boundary" if flipped.any() else ""
    return ("kept" if kept else "broken"), f"alone or in a batch, {detail}"


def _margin(logits: Tensor) -> Tensor:
    """How far the largest logit is above the next, of each image."""
    highest = logits.topk(2, dim=1).values
    return highest[:, 0] - highest[:, 1]


def _budget(trial: _Trial) -> tuple[State, str]:
    result = trial.run(max_queries=BUDGET)
    spent = int((result.forwards + result.backwards).max())
    crashed = any("crashed" in kinds for kinds in result.violations)
    return ("broken" if crashed or spent > BUDGET else "kept"), f"at most {spent} of {BUDGET} passes" + (
        "; crashed at the end of the budget" if crashed else ""
    )


def _nothing_impossible(trial: _Trial) -> tuple[State, str]:
    """No success where there is none, no distance below the least one."""
    least = trial.case.least[trial.norm]
    if trial.bound:
        impossible = trial.run(times=0.9 * float(least.min() / least.max()))
        count = int(impossible.success.sum())
        return ("broken" if count else "kept"), f"{count} successes at 0.9 times the least perturbation"
    result = trial.run()
    nearer = int((result.distance[result.success] < least[result.success] * (1 - _TOLERANCE)).sum())
    return ("broken" if nearer else "kept"), f"{nearer} examples nearer than the least perturbation"


def _finds_it(trial: _Trial) -> tuple[State, str]:
    least = trial.case.least[trial.norm]
    if trial.bound:
        each = [trial.run(times=1.1, images=slice(place, place + 1)) for place in range(len(least))]
        count = sum(int(result.success.sum()) for result in each)
        return (
            "kept" if count == len(least) else "weak"
        ), f"{count} of {len(least)} at 1.1 times the least perturbation"
    result = trial.run()
    ratio = float((result.distance / least)[result.success].max()) if result.success.all() else float("inf")
    return ("kept" if ratio <= _NEAR else "weak"), f"{ratio:.3g} times the least perturbation at most"


def _aims(trial: _Trial) -> tuple[State, str]:
    if trial.row.targeted == "no":
        return "not promised", "it has no targeted mode"
    targets = (trial.case.labels + 1) % 4
    result = trial.run(times=4.0, targets=targets)
    hit = result.adv_logits.argmax(1)[result.success] == targets[result.success]
    wrong = int((~hit).sum())
    state: State = "broken" if wrong else "kept" if result.success.any() else "weak"
    return state, f"{int(result.success.sum())} of {len(targets)} images taken for their target class"


def _parameters(trial: _Trial) -> tuple[State, str]:
    """Every parameter that it says it has can be given: its default, or where it has none some value."""
    defaults = library_defaults(trial.row, trial.norm)
    given = {}
    for name in accepted(trial.row):
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
        return "kept", f"{len(given) + len(trial.words)} parameters given"
    each = {name: _complaint(trial, {name: value}) for name, value in given.items()}
    reasons = "; ".join(f"{name}: {reason}" for name, reason in each.items() if reason) or f"all together: {complaint}"
    return "broken", reasons[:200]


def _complaint(trial: _Trial, given: Mapping[str, Any]) -> str | None:
    """Why the attack does not run with these parameters."""
    try:
        result = trial.run(**given)
    except DavylampError as error:
        return " ".join(str(error).split())
    return next((error for error in result.errors), None)


def _some_value(trial: _Trial, name: str) -> Any:
    """A value of a parameter that has no default; None: there is no telling which."""
    if name == "step_size":
        return 0.2 * float(trial.case.least[trial.norm].max())
    parameter = _parameter(trial, name)
    if parameter.type is float:
        return min(parameter.high, 0.5)
    return {bool: True, int: max(int(parameter.low), 2)}.get(parameter.type)


def _parameter(trial: _Trial, name: str) -> Parameter:
    return trial.row.more.get(name) or PARAMETERS[name]


_CHECKS: Mapping[str, Callable[[_Trial], tuple[State, str]]] = {
    "runs": _runs,
    "keeps the rules": _keeps_the_rules,
    "repeats with its seed": _repeats,
    "attacks each image alone": _alone,
    "keeps a budget": _budget,
    "takes its parameters": _parameters,
    "never passes the known optimum": _nothing_impossible,
    "finds the known optimum": _finds_it,
    "aims at a class": _aims,
}
PROMISES = tuple(_CHECKS)
