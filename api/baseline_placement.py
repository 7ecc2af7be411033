"""Ranks a new model among the models of a baseline, an existing results folder, by running the baseline's attacks."""

import inspect
import os
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
from ..adapters.torch_state import with_gradients
from ..deprecation import takes_old_names
from ..engine import Config, ResultsStore, evaluate, make_plan
from ..engine.attack_run import AttackRun
from ..engine.plan.plan import Plan
from ..engine.plan.rerun import configs_of
from ..engine.run.choose import choose_executor, spread_over_devices
from ..engine.run.executor import Executor
from ..engine.run.run_index import with_stored_runs
from ..engine.store.data_frames import load_outcomes
from ..engine.store.plan_records import list_cells
from ..engine.tables.groups import shared_settings
from ..errors import InvalidInput, Unavailable, UnknownName, as_invalid_input
from ..scoring import Placement, build_responses, choose_model, fit_irt, place_results
from ..scoring.adaptive_selection import BATCH, ImageSelector, SelectionResult, Step, choose_images
from ..scoring.placement import align_results
from ..scoring.responses import Responses, build_against
from .evaluation import Evaluation, show_evaluation
from .evaluation import evaluate as evaluate_models
from .python_inputs import classifiers_from_modules, coerce_data, progress_of

WIDTH = 1  # default of worst minus best rank of an interval that is enough
_COMPUTED = ("batch_size", "shard_size", "device", "keep_images", "isolate", "time_limit", "memory_limit")
_ASKED = ("request_rate", "price_per_image", "token", "timeout", "request_size", "no_cache")
FREE = (*_COMPUTED, *_ASKED)  # settings in which a newcomer may differ: they change nothing that is measured
_NAMED = 4  # that a note names


@dataclass(frozen=True)
class AdaptiveSettings:
    """Settings for the choice of the images on which a new model is attacked.

    Args:
        adaptive: whether to attack only the most informative images, batch by batch. The selection stops when the
            interval of the model's rank is narrow enough. If False, all images are attacked.
        max_rank_width: the interval of the rank is narrow enough if its worst rank minus its best rank is at most this
            number. Used only if `adaptive` is True.
        batch_images: number of images in each batch. Used only if `adaptive` is True.
        seed: random seed of the ranking.
    """

    adaptive: bool = False
    max_rank_width: int = WIDTH
    batch_images: int = BATCH
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("max_rank_width", 0), ("batch_images", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInput(f"expected {name} as a whole number >= {least}, got {value!r}")


@dataclass(frozen=True)
class Baseline:
    """Content of a finished results folder. New models are attacked with its attacks and ranked among its models.

    Attributes:
        config: config of the finished evaluation. New models are attacked with the same config.
        frame: results of the finished evaluation, as returned by `load`.
        notes: notes on attacks of the folder that are not used for the ranking.
    """

    config: Config
    frame: pd.DataFrame
    notes: tuple[str, ...] = field(default=())


def read_baseline(folder: str | os.PathLike[str], *, adaptive: bool = False) -> Baseline:
    """Read the attacks and results of a baseline folder.

    Args:
        folder: results folder of an evaluation of at least two models. All models must have been evaluated on one data
            set, with the same settings.
        adaptive: whether the images for new models will be selected batch by batch. If True, attacks that compute one
            perturbation for all images are omitted.

    Raises:
        InvalidInput: if the folder has several data sets or settings, or no attack that was run on every model.
        Unavailable: if the folder does not exist or is empty.
    """
    frame: Any = load_outcomes(folder)
    done = [state.cell for state in list_cells(folder) if state.status == "done"]
    kept, notes = _usable(done, adaptive=adaptive)
    if not kept:
        raise InvalidInput(f"no attack was run on every model of {os.fspath(folder)} ({'; '.join(notes)})")
    shared = set.intersection(*({*cell.measured} for cell in kept))
    measures = tuple(each for each in kept[0].measured if each in shared)
    alike = [replace(cell, measures=measures, added=()) for cell in kept]
    configs = configs_of(alike)
    if len(configs) != 1:
        datas = dict.fromkeys(f"{config.data} ({config.limit or len(config.images)} images)" for config in configs)
        raise InvalidInput(
            f"expected all models of the baseline to have the same data and settings, got {len(configs)} "
            f"groups of settings, on {', '.join(datas)}"
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
    """Run a baseline's attacks on each new model, and find each new model's rank among the baseline's models.

    After an interruption, a second call with the same arguments selects the same images, and reuses finished results.

    Args:
        baseline: result of `read_baseline`.
        store: results folder into which the results of the new models are written.
        config: config of the baseline, with the new models in place of the baseline's models. Settings that do not
            affect results, such as device and batch size, may differ.
        asking: settings for the selection of images.
        models: the new models by name. None to load the models that the config names.
        data: the images. None to load the data that the config names.
        run: function that runs a plan and writes its results into `store`. None to run plans in this process.
        tell: called after each batch of images, with the name of the new model and its current placement.

    Returns:
        One placement (rank and its interval) for each new model. With `asking.adaptive`, the placement's `choice` lists
        the selected images, and the placement after each batch.

    Raises:
        InvalidInput: if the baseline already contains one of the models.
        Unavailable: if no attack on a new model succeeded in producing results.
        DavylampError: if the evaluation fails, see `make_plan` and `evaluate`.
    """
    names = config.models if models is None else tuple(models)
    known = sorted(set(baseline.frame["model"]) & set(names))
    if known:
        raise InvalidInput(
            f"the baseline already contains {', '.join(known)}; `davylamp rank` ranks the models of the baseline"
        )
    placements = []
    for name in names:
        given = None if models is None else {name: models[name]}
        newcomer = _NewModel(baseline, store, replace(config, models=(name,)), given, data, run or _runner(store))
        placements.append(newcomer.choose(asking, tell) if asking.adaptive else newcomer.place(asking.seed))
    return tuple(placements)


@takes_old_names(Config)
@with_gradients
def place(
    models: nn.Module | str | Mapping[str, nn.Module] | Iterable[str],
    inputs: Any = None,
    labels: Any = None,
    *,
    against: str | os.PathLike[str],
    out: str | Path = "results",
    adaptive: bool = False,
    max_rank_width: int | None = None,
    batch_images: int | None = None,
    names: Iterable[str] | None = None,
    executor: str = "local",
    workers: int = 1,
    address: str | None = None,
    seed: int = 0,
    retry_failed: bool = False,
    trust_unknown: bool = False,
    progress: Callable[[Evaluation], AbstractContextManager[Any]] | bool = True,
    tell: Callable[[str, Step], object] = lambda *_: None,
    **settings: Any,
) -> tuple[Placement, ...]:
    """Attack new models with the attacks of a baseline, and rank each among the baseline's models (CANARY's fast test).

    Args:
        models: the new models, in a form that `evaluate` accepts. They must not be models of the baseline.
        inputs: the images on which the baseline was evaluated, shape (N, C, H, W). None if the baseline was evaluated
            on data given by name.
        labels: ground truth, shape (N,).
        against: results folder of the baseline. The new models are attacked with the attacks, data and seeds of this
            folder.
        out: results folder of the new models. An interrupted call resumes from this folder.
        adaptive: whether to attack only the most informative images, batch by batch. The selection for a model stops
            when the interval of its rank is narrow enough. If False, all images are attacked.
        max_rank_width: with `adaptive`, largest accepted difference between the worst and the best rank of the
            interval, >= 0. None for 1.
        batch_images: with `adaptive`, number of images in each batch. None for 8.
        names: names of the images, as in the baseline.
        executor: "local" to run in processes on this machine, or "ray" to run on a Ray cluster.
        workers: number of processes on this machine.
        address: address of a Ray cluster. None to start a cluster on this machine.
        seed: random seed of the ranking.
        retry_failed: whether to repeat failed runs.
        trust_unknown: whether to reuse results of code whose identity cannot be fully determined.
        progress: see `evaluate`. Progress is shown for each batch of images.
        tell: with `adaptive`, called after each batch of images with the name of the new model and its placement.
        **settings: settings of `davylamp.Config` that do not affect the results: batch_size, shard_size, device,
            keep_images, isolate, time_limit, memory_limit, and settings for servers (request_rate, token, ...).

    Returns:
        A placement (rank and its interval) for each new model. With `adaptive`, the placement's `choice` lists the
        selected images, and the placement after each batch.

    Raises:
        InvalidInput: if `against` cannot be used as a baseline, or already contains one of the models.
        DavylampError: see `evaluate`.
    """
    chosen = {"max_rank_width": max_rank_width, "batch_images": batch_images}
    if given := [name for name, value in chosen.items() if value is not None and not adaptive]:
        raise InvalidInput(f"{' and '.join(f'`{name}`' for name in given)} cannot be used without `adaptive`")
    if Path(against).suffix == ".csv" or str(against).startswith("published:"):
        raise InvalidInput(
            f"expected a results folder for `against`, got {against}; a table can be a baseline only for `rank`"
        )
    _refuse_settings(settings)
    width = WIDTH if max_rank_width is None else max_rank_width
    asking = AdaptiveSettings(adaptive, width, BATCH if batch_images is None else batch_images, seed)
    baseline = read_baseline(against, adaptive=adaptive)
    images, show = coerce_data(inputs, labels, names)[0], progress_of(progress, show_evaluation)
    with ExitStack() as stack:
        lent, settings = classifiers_from_modules(models, stack, settings)
        config, store = replace(baseline.config, **settings), ResultsStore(out)
        config, workers, devices = spread_over_devices(config, workers, executor)
        work = choose_executor(executor, workers=workers, address=address, devices=devices)

        def run(plan: Plan) -> Any:
            with show(Evaluation(Path(out), plan=plan)) as advance:
                more = {"retry_failed": retry_failed, "trust_unknown": trust_unknown}
                return evaluate(plan, store, executor=work, progress=advance, **more)

        return place_on_baseline(baseline, store, config, asking, models=lent, data=images, run=run, tell=tell)


def _refuse_settings(settings: Mapping[str, Any]) -> None:
    """Raise an error for unknown settings, and for settings whose values are determined by the baseline."""
    known = {*inspect.signature(evaluate_models).parameters, *(each.name for each in fields(Config))}
    for name in settings:
        if name not in FREE and name in known:
            raise InvalidInput(
                f"`against` and `{name}` cannot be combined: the baseline determines the attacks, data and seeds"
            )
        if name not in FREE:
            raise UnknownName("setting", name, ("models", *FREE))


def _runner(store: ResultsStore, executor: Executor | None = None) -> Callable[[Any], Any]:
    return lambda plan: evaluate(plan, store, executor=executor)


class _NewModel:
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
        """Attack the new model on some images, and return the model's results on all images attacked so far.

        If `images` is empty, every image of the data is attacked.
        """
        config = replace(self.config, images=tuple(images)) if images else self.config
        transport = config.transport(self.store.folder / ANSWERS)
        plan = make_plan(config, models=self.models, data=self.data, transport=transport)
        plan = with_stored_runs(plan, self.store)
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
            raise Unavailable(f"no attack on {self.config.models[0]} has results ({reasons})")
        return mine

    def place(self, seed: int, records: pd.DataFrame | None = None, fits: dict[bytes, Any] | None = None) -> Placement:
        """Rank the new model by its results. If `records` is None, all images are attacked first."""
        records = self.ask() if records is None else records
        with as_invalid_input():
            (placed,) = place_results(self.baseline.frame, records, seed=seed, fits=fits)
        failed = [f"failed: {name}: {reason}" for name, reason in self.problems.items()]
        notes = (*self.baseline.notes, *failed, *filter(None, [self.traffic.line]), *placed.notes)
        return replace(placed, notes=notes, ranking=replace(placed.ranking, notes=notes))

    def choose(self, asking: AdaptiveSettings, tell: Callable[[str, Step], object]) -> Placement:
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

        choice: SelectionResult = choose_images(
            chooser, answer, width=asking.max_rank_width, batch=asking.batch_images, tell=said
        )
        placed = self.place(asking.seed, records, {matrix.values.tobytes(): fit})
        return replace(placed, choice=choice)


def _answers(baseline: pd.DataFrame, records: pd.DataFrame, matrix: Responses) -> np.ndarray:
    """Return the new model's response to each item of the baseline's response matrix, shape (M,).

    NaN if the new model has no result for an item.
    """
    aligned = align_results(baseline, records)
    try:
        (both,) = build_against(aligned.results)
    except ValueError as error:
        raise Unavailable(f"further images cannot be selected, because there are no responses: {error}") from error
    given = dict(zip(both.items, both.values[-1], strict=True))
    return np.array([given.get(item, np.nan) for item in matrix.items])


def _names_of_images(frame: pd.DataFrame) -> Any:
    """Return two names for each image: the name in the response matrix, and the name in the data set."""
    pairs = frame[["data", "image"]].drop_duplicates()
    return zip(pairs["data"].astype(str) + " " + pairs["image"].astype(str), pairs["image"].astype(str), strict=True)


def _usable(cells: Sequence[AttackRun], *, adaptive: bool) -> tuple[list[AttackRun], tuple[str, ...]]:
    """Return the runs of attacks that were run on every model of the baseline, and notes on the omitted attacks.

    With `adaptive`, attacks that compute one perturbation for all images are omitted, too.
    """
    models = {cell.subject.model for cell in cells}
    met: dict[tuple[Any, ...], set[str]] = {}
    setting_of = shared_settings(cells)
    for cell in cells:
        met.setdefault((*setting_of(cell), cell.seed), set()).add(cell.subject.model)
    common = [cell for cell in cells if met[(*setting_of(cell), cell.seed)] == models]
    kept = [cell for cell in common if not (adaptive and cell.row.universal)]
    parts = {"not run on every model": (cells, common), "one perturbation for all images": (common, kept)}
    notes = []
    for why, (before, after) in parts.items():
        left = sorted({cell.attack for cell in before} - {cell.attack for cell in after})
        notes += [f"omitted: {', '.join(left)}: {why}"] if left else []
    return kept, tuple(notes)
