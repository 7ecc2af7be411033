"""Estimates the time, memory and price of an evaluation before it runs, for `davylamp.estimate` and `--estimate`."""

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
    """Estimate the time, memory and price of a call of `evaluate` or `robust_accuracy`, without running its attacks.

    The duration of one pass is measured for each model. It is multiplied by the number of passes that the attacks need
    if no image is fooled early. The computation of the attack libraries and the metrics is not included. Models are
    loaded for the estimate. A model behind a server is queried only to identify it. Finished runs in the results folder
    are not counted, because they are reused.

    Args:
        verb: the function `davylamp.evaluate` or `davylamp.robust_accuracy`.
        *arguments: positional arguments for `verb`.
        **keywords: keyword arguments for `verb`.

    Returns:
        One row per model. The attribute `made` of the result has the `ModelCost`s. The columns are:

        - `runs`: number of unfinished runs
        - `passes`: number of forward and backward passes, over all images
        - `seconds`: time with one worker
        - `memory`: peak memory of a pass with gradients, in bytes
        - `price`: price of the queries

    Raises:
        InvalidInput: if `verb` is a different function.
        DavylampError: see `verb`.
    """
    if verb not in _VERBS:
        raise InvalidInput("expected davylamp.evaluate or davylamp.robust_accuracy, got a different function")

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
        notes.append(f"the number of queries of {', '.join(guessed)} is a rough guess; `max_queries` limits it")
    notes.append(
        "the estimate is for one worker and for images that are not fooled early. It excludes the libraries' own "
        "computation and the metrics"
    )
    rows = [each._asdict() for each in costs]
    total = {"seconds": sum(timed) if len(timed) == len(costs) else math.nan, "memory": memory, "price": price}
    document = {"runs": runs, "reused": finished, "passes": passes, **total, "models": rows, "notes": notes}
    return VerbResult(headline, rows, plain(document), tuple(notes), tuple(costs))
