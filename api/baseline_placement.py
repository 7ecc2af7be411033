"""Attack a newcomer as a baseline was attacked, on all images or on those that tell most, and place it among them."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from ..adapters import Classifier
from ..adapters.data.datasets import Data
from ..adapters.models.remote.answer_cache import FILE as ANSWERS
from ..adapters.models.remote.server_usage import ServerUsage
from ..engine import Config, ResultsStore, evaluate, make_plan
from ..engine.attack_run import AttackRun
from ..engine.plan.plan import Plan
from ..engine.plan.rerun import configs_of
from ..engine.run.choose import choose_executor
from ..engine.run.executor import Executor
from ..engine.store.data_frames import load_outcomes
from ..engine.store.plan_records import list_cells
from ..engine.tables.groups import shared_settings
from ..errors import InvalidInput, Unavailable, UnknownName, as_invalid_input
from ..scoring import Placement, build_responses, choose_model, fit_irt, place_results
from ..scoring.adaptive_selection import BATCH, ImageSelector, SelectionResult, Step, choose_images
from ..scoring.placement import align_results
from ..scoring.responses import Responses, build_against
from .evaluation import Evaluation, no_progress
from .evaluation import evaluate as evaluate_models
from .python_inputs import classifiers_from_modules, coerce_data, with_gradients

WIDTH = 1  # default of worst minus best rank of an interval that is enough
_COMPUTED = ("batch_size", "shard_size", "device", "keep_images", "isolate", "time_limit", "memory_limit")
_ASKED = ("rate", "cost", "token", "timeout", "request_size", "no_answers")
FREE = (*_COMPUTED, *_ASKED)  # settings in which a newcomer may differ: they change nothing that is measured
_NAMED = 4  # that a note names


@dataclass(frozen=True)
class AdaptiveSettings:
    """How many images a newcomer is asked about.

    Args:
        adaptive: those that tell most, in batches, until its rank is known closely enough; else all.
        width: worst minus best rank of an interval that is enough.
        batch: images at once.
        seed: random seed of the fit and of every draw.
    """

    adaptive: bool = False
    width: int = WIDTH
    batch: int = BATCH
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("width", 0), ("batch", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInput(f"expected {name} as a whole number >= {least}, got {value!r}")


@dataclass(frozen=True)
class Baseline:
    """What a newcomer is placed by.

    Attributes:
        config: of the baseline, with which its attacks run again.
        frame: of the baseline, as `load` makes it.
        notes: what a reader should know.
    """

    config: Config
    frame: pd.DataFrame
    notes: tuple[str, ...] = field(default=())


def read_baseline(folder: str | Path, *, adaptive: bool = False) -> Baseline:
    """The attacks and results of a folder, to place newcomers among its models.

    Args:
        folder: made by an evaluation of two models or more, on one data set with one group of settings.
        adaptive: for chosen images: without the attacks that look for one perturbation for all images.

    Raises:
        InvalidInput: if it has several data sets or settings, one model, or nothing to choose images by.
        Unavailable: if there is no such folder, or nothing in it.
    """
    frame: Any = load_outcomes(folder)
    done = [state.cell for state in list_cells(folder) if state.status == "done"]
    kept, notes = _usable(done, adaptive=adaptive)
    if not kept:
        raise InvalidInput(f"expected attacks that every model of {folder} met, got none ({'; '.join(notes)})")
    configs = configs_of(kept)
    if len(configs) != 1:
        datas = dict.fromkeys(f"{config.data} ({config.limit or len(config.images)} images)" for config in configs)
        raise InvalidInput(
            f"expected a baseline of one data set and one group of settings, got {len(configs)}: {', '.join(datas)}"
        )
    frame = frame[frame["cell"].isin({cell.key for cell in kept})].reset_index(drop=True)
    return Baseline(configs[0], frame, notes)


def place_on_baseline(
    baseline: Baseline,
    store: ResultsStore,
    config: Config,
    asking: AdaptiveSettings,
    *,
    models: Mapping[str, Classifier] | None = None,
    data: Data | None = None,
    run: Callable[[Any], Any] | None = None,
    tell: Callable[[str, Step], object] = lambda *_: None,
) -> tuple[Placement, ...]:
    """Evaluate each model with the attacks of a baseline, and place it among its models.

    A killed run goes on where it was: the same images are chosen again, and what is there of them is kept.

    Args:
        baseline: of `read_baseline`.
        store: where the newcomers' records go.
        config: of the baseline, with the newcomers as its models and what else may differ: device, batch size.
        asking: about which images.
        models: classifiers by name, in place of those that the config names.
        data: images, in place of those that the config names.
        run: a plan into the store; None: in this process.
        tell: called with a newcomer's name and where it stands after each batch of images.

    Returns:
        A placement for each newcomer; with chosen images its `choice` says which, and where it stood after each batch.

    Raises:
        DavylampError: as `make_plan` and `evaluate`; Unavailable if a newcomer has not one response.
    """
    names = config.models if models is None else tuple(models)
    known = sorted(set(baseline.frame["model"]) & set(names))
    if known:
        raise InvalidInput(f"expected models that the baseline lacks, got {', '.join(known)}: rank the baseline")
    placements = []
    for name in names:
        given = None if models is None else {name: models[name]}
        newcomer = _NewModel(baseline, store, replace(config, models=(name,)), given, data, run or _runner(store))
        placements.append(newcomer.choose(asking, tell) if asking.adaptive else newcomer.place(asking.seed))
    return tuple(placements)


@with_gradients
def place(
    models: nn.Module | str | Mapping[str, nn.Module] | Iterable[str],
    inputs: Any = None,
    labels: Any = None,
    *,
    against: str | Path,
    out: str | Path = "results",
    adaptive: bool = False,
    width: int | None = None,
    batch: int | None = None,
    names: Iterable[str] | None = None,
    executor: str = "local",
    workers: int = 1,
    address: str | None = None,
    seed: int = 0,
    retry_failed: bool = False,
    trust_unknown: bool = False,
    progress: Callable[[Evaluation], AbstractContextManager[Any]] | None = None,
    tell: Callable[[str, Step], object] = lambda *_: None,
    **settings: Any,
) -> tuple[Placement, ...]:
    """Attack new models as those of a folder were, and place each among them (CANARY's fast test).

    Args:
        models: as for `evaluate`; none of the baseline's.
        inputs: the images of the baseline, where it was evaluated on tensors, shape (N, C, H, W).
        labels: ground truth, shape (N,).
        against: the results folder of the baseline: its attacks are run, on its data, with its seeds.
        out: the results folder of the newcomers, from which an interrupted run resumes.
        adaptive: only on the images that tell most about each newcomer, in batches, until its rank interval is narrow
            enough; else on all.
        width: worst minus best rank of the interval that is enough, for `adaptive`; None: 1.
        batch: images at once, for `adaptive`; None: 8.
        names: of the images, as the baseline has them.
        executor: "local" or "ray".
        workers: processes on this machine.
        address: of a Ray cluster; None: one is started here.
        seed: random seed of the fit and of every draw of the ranking.
        retry_failed: run failed cells again.
        trust_unknown: reuse results of code whose identity cannot be fully determined.
        progress: as for `evaluate`, for each batch of images.
        tell: called with a newcomer's name and its ranking after each batch of images, for `adaptive`.
        **settings: of `davylamp.Config` that do not change what is measured: batch_size, shard_size, device,
            keep_images, isolate and its limits, how servers are asked (rate, cost, token, ...).

    Returns:
        A placement for each newcomer; with `adaptive` its `choice` has the images and where it stood after each batch.

    Raises:
        DavylampError: as `evaluate`; InvalidInput if the folder is no baseline, or has the models.
    """
    if given := [name for name, value in (("width", width), ("batch", batch)) if value is not None and not adaptive]:
        raise InvalidInput(f"expected `adaptive` with {', '.join(f'`{name}`' for name in given)}")
    if Path(against).suffix == ".csv" or str(against).startswith("published:"):
        raise InvalidInput(
            f"expected a results folder for `against`, got {against}: tables are for rankings of evaluated folders"
        )
    _refuse_settings(settings)
    asking = AdaptiveSettings(adaptive, WIDTH if width is None else width, BATCH if batch is None else batch, seed)
    baseline = read_baseline(against, adaptive=adaptive)
    images = coerce_data(inputs, labels, names)[0]
    with ExitStack() as stack:
        lent, settings = classifiers_from_modules(models, stack, settings)
        config, store = replace(baseline.config, **settings), ResultsStore(out)
        work = choose_executor(executor, workers=workers, address=address, device=config.device)

        def run(plan: Plan) -> Any:
            with (progress or no_progress)(Evaluation(Path(out), plan=plan)) as advance:
                more = {"retry_failed": retry_failed, "trust_unknown": trust_unknown}
                return evaluate(plan, store, executor=work, progress=advance, **more)

        return place_on_baseline(baseline, store, config, asking, models=lent, data=images, run=run, tell=tell)


def _refuse_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of a newcomer that are the baseline's, and unknown ones."""
    known = {*inspect.signature(evaluate_models).parameters, *(each.name for each in fields(Config))}
    for name in settings:
        if name not in FREE and name in known:
            raise InvalidInput(f"expected `against` without `{name}`: attacks, data and seeds are the baseline's")
        if name not in FREE:
            raise UnknownName("setting", name, ("models", *FREE))


def _runner(store: ResultsStore, executor: Executor | None = None) -> Callable[[Any], Any]:
    return lambda plan: evaluate(plan, store, executor=executor)


class _NewModel:
    """One model, its records so far, and what went wrong."""

    def __init__(
        self,
        baseline: Baseline,
        store: ResultsStore,
        config: Config,
        models: Mapping[str, Classifier] | None,
        data: Data | None,
        run: Callable[[Any], Any],
    ):
        self.baseline, self.store, self.config = baseline, store, config
        self.models, self.data, self.run = models, data, run
        self.keys: set[str] = set()
        self.problems: dict[str, str] = {}
        self.traffic = ServerUsage()

    def ask(self, images: Sequence[str] = ()) -> pd.DataFrame:
        """Run the attacks on these images (none: all of the baseline's); all of the newcomer's records."""
        config = replace(self.config, images=tuple(images)) if images else self.config
        transport = config.transport(self.store.folder / ANSWERS)
        plan = make_plan(config, models=self.models, data=self.data, transport=transport)
        summary = self.run(plan)
        self.traffic += summary.traffic
        self.keys |= {cell.key for cell in plan.cells}
        named = {cell.key: cell.attack for cell in plan.cells}
        self.problems |= {**plan.failed, **{named[key]: reason for key, reason in summary.failed.items()}}
        try:
            frame: Any = load_outcomes(self.store.folder)
        except Unavailable:
            frame = self.baseline.frame.iloc[:0]
        mine = frame[frame["cell"].isin(self.keys)].reset_index(drop=True)
        if mine.empty:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(self.problems.items())[:_NAMED])
            raise Unavailable(f"expected results of {self.config.models[0]}, got none ({reasons})")
        return mine

    def place(self, seed: int, records: pd.DataFrame | None = None, fits: dict[bytes, Any] | None = None) -> Placement:
        """Where it stands by its records, after an evaluation of all images if there are none yet."""
        records = self.ask() if records is None else records
        with as_invalid_input():
            (placed,) = place_results(self.baseline.frame, records, seed=seed, fits=fits)
        failed = [f"failed: {name}: {reason}" for name, reason in self.problems.items()]
        notes = (*self.baseline.notes, *failed, *filter(None, [self.traffic.line]), *placed.notes)
        return replace(placed, notes=notes, ranking=replace(placed.ranking, notes=notes))

    def choose(self, asking: AdaptiveSettings, tell: Callable[[str, Step], object]) -> Placement:
        """Where it stands by the images that tell most about it."""
        with as_invalid_input():
            matrix = build_responses(self.baseline.frame)
            fit = fit_irt(matrix.values, choose_model(matrix.values), seed=asking.seed)
            chooser = ImageSelector(fit, matrix.values, matrix.images, seed=asking.seed)
        names = dict(_names_of_images(self.baseline.frame))
        records, asked = pd.DataFrame(), set()

        def answer(images: list[str]) -> np.ndarray:
            nonlocal records
            fresh = [names[image] for image in images if image not in asked]
            asked.update(images)
            records = self.ask(fresh)
            return _answers(self.baseline.frame, records, matrix)

        def said(step: Step) -> None:
            tell(self.config.models[0], step)

        choice: SelectionResult = choose_images(chooser, answer, width=asking.width, batch=asking.batch, tell=said)
        placed = self.place(asking.seed, records, {matrix.values.tobytes(): fit})
        return replace(placed, choice=choice)


def _answers(baseline: pd.DataFrame, records: pd.DataFrame, matrix: Responses) -> np.ndarray:
    """The newcomer's responses to the items of the baseline's matrix, shape (M,); NaN where there is none."""
    aligned = align_results(baseline, records)
    try:
        (both,) = build_against(aligned.results)
    except ValueError as error:
        raise Unavailable(f"expected responses to choose further images by, got none: {error}") from error
    given = dict(zip(both.items, both.values[-1], strict=True))
    return np.array([given.get(item, np.nan) for item in matrix.items])


def _names_of_images(frame: pd.DataFrame) -> Any:
    """The image as the matrix calls it, and as its data does."""
    pairs = frame[["data", "image"]].drop_duplicates()
    return zip(pairs["data"].astype(str) + " " + pairs["image"].astype(str), pairs["image"].astype(str), strict=True)


def _usable(cells: Sequence[AttackRun], *, adaptive: bool) -> tuple[list[AttackRun], tuple[str, ...]]:
    """The cells that can place a newcomer, and a note for those that cannot."""
    models = {cell.subject.model for cell in cells}
    met: dict[tuple[Any, ...], set[str]] = {}
    setting_of = shared_settings(cells)
    for cell in cells:
        met.setdefault((*setting_of(cell), cell.seed), set()).add(cell.subject.model)
    common = [cell for cell in cells if met[(*setting_of(cell), cell.seed)] == models]
    kept = [cell for cell in common if not (adaptive and cell.row.universal)]
    parts = {"not met by every model": (cells, common), "one perturbation for all images": (common, kept)}
    notes = []
    for why, (before, after) in parts.items():
        left = sorted({cell.attack for cell in before} - {cell.attack for cell in after})
        notes += [f"left out: {', '.join(left)}: {why}"] if left else []
    return kept, tuple(notes)
