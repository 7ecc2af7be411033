"""Estimates what an evaluation would cost, before it runs: `davylamp.estimate`, and `--estimate` of the commands."""

import math
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NoReturn

from ..adapters.coercion import read_path
from ..adapters.display_text import counted, duration
from ..engine import ResultsStore
from ..engine.finding import plain
from ..engine.plan.plan import Plan
from ..engine.query_estimates import is_guess
from ..engine.run.cost_estimate import ModelCost, estimate_plan
from ..engine.sequential.question import parse_question
from ..errors import InvalidInput
from .evaluation import evaluate
from .measuring import robust_accuracy
from .verb_result import VerbResult

_VERBS: tuple[Callable[..., Any], ...] = (evaluate, robust_accuracy)


class _PlanReady(Exception):
    """Stops a call of `evaluate` or `robust_accuracy` as soon as its plan is ready, before anything runs."""

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan


def estimate(verb: Callable[..., Any], *arguments: Any, **keywords: Any) -> VerbResult:
    """Estimate time, memory and price of a call of `evaluate` or `robust_accuracy`, without running its attacks.

    The time is the duration of one pass, measured for each model, times the number of passes that each attack needs if
    no image is fooled early. It includes neither the libraries' own computation nor the metrics. Models are loaded, and
    a server is queried only to identify its model. Finished runs of the results folder cost nothing.

    Args:
        verb: `davylamp.evaluate` or `davylamp.robust_accuracy`.
        *arguments: positional arguments of that call.
        **keywords: keyword arguments of that call.

    Returns:
        One row per model, with the unfinished `runs`, `passes` (forward and backward, for all images), `seconds` (with
        one worker), `memory` (peak bytes of a pass with gradients) and `price`. Its attribute `made` has the
        `ModelCost`s.

    Raises:
        InvalidInput: if `verb` is a different function.
        DavylampError: as for the call itself.
    """
    if verb not in _VERBS:
        raise InvalidInput("expected davylamp.evaluate or davylamp.robust_accuracy as the verb, got a different one")

    def stop(planned: Any) -> AbstractContextManager[Any]:
        return _stop(planned if isinstance(planned, Plan) else planned.plan)

    until = keywords.pop("until", None)
    if until is not None:
        parse_question(until)
    with ExitStack() as stack:
        folder = keywords.get("out", "results" if verb is evaluate else None)
        if folder is None or not read_path(folder, "a results folder").exists():  # nothing is left behind
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "results"
        try:
            verb(*arguments, **{**keywords, "out": folder, "progress": stop})
        except _PlanReady as ready:
            notes = () if until is None else ("estimated for all images; with `until`, fewer may suffice",)
            return _result(ready.plan, estimate_plan(ready.plan, ResultsStore(folder)), notes)
    raise InvalidInput("the call ended before its plan was ready")


def _stop(plan: Plan) -> NoReturn:
    raise _PlanReady(plan)


def _result(plan: Plan, costs: list[ModelCost], more: tuple[str, ...]) -> VerbResult:
    runs, passes = sum(each.runs for each in costs), sum(each.passes for each in costs)
    timed = [each.seconds for each in costs if not math.isnan(each.seconds)]
    memory = max((each.memory for each in costs if not math.isnan(each.memory)), default=math.nan)
    price = sum(each.price for each in costs)
    parts = [f"about {duration(sum(timed))} of model passes" if timed else "time unknown"]
    parts += [f"at least {memory / 1e9:.1f} GB"] if not math.isnan(memory) else []
    parts += [f"price up to {price:.6g}"] if price else []
    finished = sum(each.finished for each in costs)
    reused = f", {finished} reused" if finished else ""
    headline = f"{', '.join(parts)}: {counted(runs, 'run')}{reused}, {passes:.3g} passes; nothing was run"
    notes = [*more, *(f"{each.model}: {each.note}" for each in costs if each.note)]
    notes += [f"omitted: {name}: {reason}" for name, reason in plan.failed.items()]
    if guessed := dict.fromkeys(cell.attack for cell in plan.runs_in_this_part if is_guess(cell)):
        notes.append(f"the queries of {', '.join(guessed)} are a rough guess: `max_queries` limits them")
    notes.append("for one worker, if no image is fooled early; without the libraries' own computation and the metrics")
    rows = [each._asdict() for each in costs]
    total = {"seconds": sum(timed) if len(timed) == len(costs) else math.nan, "memory": memory, "price": price}
    document = {"runs": runs, "reused": finished, "passes": passes, **total, "models": rows, "notes": notes}
    return VerbResult(headline, rows, plain(document), tuple(notes), tuple(costs))
