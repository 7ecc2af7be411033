"""Measures the robustness of models to corruptions. Results are stored in a folder, and tables are built from it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, get_args

from torch import nn

from ..adapters import Classifier
from ..adapters.coercion import read_int, read_list, read_text
from ..adapters.data.corruptions.corrupted_sets import list_sets
from ..adapters.data.corruptions.published import BENCHMARK, CORRUPTIONS, find_corruption
from ..adapters.data.corruptions.sequences import SEQUENCES
from ..adapters.models.remote.server_usage import total_usage
from ..deprecation import takes_old_names
from ..engine import Config, ResultsStore, Table
from ..engine.plan.config_file import expand_models
from ..engine.run.corruptions import CorruptionPlan, count_images, measure_corruptions
from ..engine.tables.corruption_table import ALEXNET, CorruptionsBy, build_corruptions
from ..errors import DavylampError, InvalidInput, Unavailable, UnknownName
from .python_inputs import Progress, check_loading, classifiers_from_modules, loading_of, name_of, progress_of

_SEVERITIES = (1, 2, 3, 4, 5)


@takes_old_names(Config)
def corrupt_table(
    models: nn.Module | str | Mapping[str, nn.Module] | Iterable[str] = (),
    *,
    data: str = "demo:imagenet",
    clean: str = "",
    corruption: str | Iterable[str] | None = None,
    severity: int | Iterable[int] | None = None,
    sequence: str | Iterable[str] = (),
    baseline: str = "",
    limit: int | None = None,
    out: str | Path = "results",
    by: CorruptionsBy = "models",
    bootstrap: int = 1000,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | bool = True,
    tell: Callable[[str], object] = lambda _: None,
    **loading: Any,
) -> Table:
    """Measure the errors of models on corrupted images, store them in a folder, and return a table of metrics.

    The metrics are the errors by severity, CE, mCE, RmCE, FP and mFR (Hendrycks and Dietterich 2019).

    Args:
        models: a module, modules by name, or names that `evaluate` accepts, including "demo:*". If empty, nothing is
            measured, and the table is built from the results in `out`.
        data: name of clean images, which davylamp corrupts. Or "imagenet-c:PATH" or "cifar-10-c:PATH" for images that
            are already corrupted.
        clean: name of the clean images that belong to already corrupted data. RmCE needs these images.
        corruption: names of corruptions, such as "fog", or "all". None for the 15 corruptions of the benchmark.
        severity: severities from 1 to 5. None for all five.
        sequence: names of perturbation sequences, such as "translate", or "all". FP and mFR need sequences.
        baseline: name of the model by whose errors CE and FP are divided. This model is measured, too. "alexnet" stands
            for AlexNet's published errors. "" means "alexnet" on ImageNet, and no baseline on other data.
        limit: largest number of images.
        out: the results folder.
        by: whether each table row is about a model, a corruption, or a model with a corruption.
        bootstrap: number of bootstrap replicates, over images; 0 for no intervals.
        seed: random seed of corruptions and bootstrap.
        device: device of models that are loaded by name.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function that is called
            with the number of images and returns a context manager. The value of the `with` statement is a function,
            which is called with a name and the number of images done since the previous call.
        tell: called with each message about measurements or failed models.
        **loading: settings of `Config` for models loaded by name: isolate, request_rate, ...

    Raises:
        Unavailable: if no model could be measured.
        DavylampError: see `measure_corruptions` and `build_corruptions`.
    """
    check_loading(corrupt_table, loading)
    data = read_text(data, "the name of data as text")
    if by not in get_args(CorruptionsBy):
        raise UnknownName("rows of the table", str(by), get_args(CorruptionsBy))
    given: Mapping[str, nn.Module] = {}
    if isinstance(models, (nn.Module, Mapping)):
        given = {name_of(models): models} if isinstance(models, nn.Module) else models
        names = list[str]()
    elif names := read_list(models, "models as modules, or names", str):
        names = list(expand_models(Config(models=tuple(names), data=data)).models)
    if given or names:
        if baseline not in ("", ALEXNET, *given, *names):
            names.append(baseline)
        plan = _plan(data, clean, corruption, severity, sequence, limit, seed)
        _measure(given, names, plan, ResultsStore(out), device, progress_of(progress), {**loading, "tell": tell})
    return build_corruptions(out, by=by, baseline=baseline, bootstrap=bootstrap, seed=seed)


def _plan(
    data: str, clean: str, corruption: Any, severity: Any, sequence: Any, limit: int | None, seed: int
) -> CorruptionPlan:
    on_disk = list_sets(data)
    asked = read_list(sequence, "sequences as names", str)
    chosen = tuple(SEQUENCES) if asked == ["all"] else tuple(name.replace("-", "_") for name in asked)
    several = [severity] if isinstance(severity, int) else severity or _SEVERITIES
    levels = read_list(several, "severities as whole numbers", int)
    if corruption is None:
        # Of a published set without the four that its authors keep for tuning, unless there is nothing else.
        meant = tuple(name for name in on_disk if name in BENCHMARK or name not in CORRUPTIONS)
        named = meant or on_disk or (() if chosen and severity is None else BENCHMARK)
    else:
        named = tuple(read_list(corruption, "corruptions as names", str))
        named = (on_disk or tuple(CORRUPTIONS)) if named == ("all",) else named
    if not on_disk:
        named = tuple(find_corruption(name).name for name in named)
    if clean and not on_disk:
        raise InvalidInput(
            f"`clean` needs corrupted data (imagenet-c:PATH or cifar-10-c:PATH), but `data={data}` is clean data"
        )
    limit = None if limit is None else read_int(limit, "`limit` as a whole number >= 1", 1, 2**31 - 1)
    plan = CorruptionPlan(data, tuple(dict.fromkeys(named)), tuple(dict.fromkeys(levels)), chosen, clean, limit, seed)
    plan.check()
    return plan


def _measure(
    given: Mapping[str, nn.Module],
    names: list[str],
    plan: CorruptionPlan,
    store: ResultsStore,
    device: str,
    progress: Progress,
    loading: dict[str, Any],
) -> None:
    """Predict the corrupted images for which the folder has no predictions yet, and store the predictions.

    If a model cannot be loaded, the other models are still measured.
    """
    tell, failed = loading["tell"], dict[str, str]()
    with ExitStack() as stack:
        ready: dict[str, Classifier] = dict((classifiers_from_modules(given, stack, {})[0] if given else None) or {})
        loaded = loading_of(loading, names, store.folder)
        for name in names:
            try:
                ready[name] = loaded.load(name, device)
            except DavylampError as error:
                failed[name] = str(error)
        total = len(ready) + len(failed)
        if ready:
            count: AbstractContextManager[Any] = progress(count_images(ready, plan))
            summary = measure_corruptions(ready, plan, store, stack.enter_context(count))
            failed |= summary.failed
            if line := total_usage(*ready.values()).line:
                tell(line)
            tell(f"{summary.done} records written, {summary.kept} reused: {store.folder}")
    for name, reason in failed.items():
        tell(f"{name}: {reason}")
    if failed and len(failed) == total:
        reason, often = Counter(failed.values()).most_common(1)[0]
        count_of = f" ({often} of {total})" if often < total else ""
        raise Unavailable(f"all {total} models failed{count_of}: {reason}" if total > 1 else f"failed: {reason}")
