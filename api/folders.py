"""Functions that read an existing results folder: curves, failure indicators, detectors, export and import."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn

from ..adapters.coercion import read_int, read_mapping, read_path, read_seed, read_text
from ..adapters.data.datasets import Data
from ..adapters.display_text import counted, format_bytes
from ..adapters.paths import expand_path
from ..deprecation import takes_old_names
from ..engine.checks.check_folder import STATES, check_folder, describe_folder
from ..engine.detection.detect import measure_detectors, models_to_score, read_detectors
from ..engine.detection.detection_rates import RATES, Detection
from ..engine.exchange.attackbench_export import export_attackbench
from ..engine.exchange.attackbench_import import import_attackbench
from ..engine.exchange.robustbench_import import boards_of, import_robustbench
from ..engine.plan.config import Config
from ..engine.probes.probe_folder import probe_folder
from ..engine.run.measure_folder import measure_folder
from ..engine.sharing.bundle import write_bundle
from ..engine.sharing.describe import SharingTerms
from ..engine.sharing.merge import describe_counts
from ..engine.sharing.signed_archive import read_private_key
from ..engine.sharing.unpack import unpack_bundle
from ..engine.sharing.verdict_check import claim_row, describe_claim
from ..engine.sharing.verdict_writer import WrittenVerdict, write_verdict_file
from ..engine.store.results import as_results, read_outcomes
from ..engine.tables.budget_curves import Against, Curves, build_curves
from ..engine.tables.distance_curves import DistanceCurves, build_distance_curves
from ..errors import InvalidInput, UnknownName
from .python_inputs import (
    Progress,
    check_loading,
    classifiers_from_modules,
    coerce_labelled,
    loading_of,
    progress_of,
    read_limit,
    read_names,
    read_numbers,
    read_several,
)
from .verb_result import VerbResult

FORMATS = ("attackbench", "robustbench")  # of other programs


@takes_old_names()
def curves(
    folder: str | os.PathLike[str],
    *,
    x_axis: Literal["epsilon", "grey-levels", "queries", "passes"] = "epsilon",
    norm: str | None = None,
    model: str | Iterable[str] | None = None,
    budget: float | str | Iterable[float | str] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
    out: str | Path | None = None,
) -> Curves | DistanceCurves:
    """Compute robust accuracy as a function of the radius or of the number of queries.

    The result also has the half distortion and the optimality of each attack. With x_axis="passes", the median distance
    of adversarial examples is computed instead, as a function of the number of queries.

    Args:
        folder: results folder made by `evaluate`.
        x_axis: quantity on the x axis. "epsilon" is the radius, and "queries" the number of queries. "grey-levels" is
            the radius in grey levels: linf times 255, or in l2 the root mean square change times 255. "passes" selects
            curves of the median distance by number of queries.
        norm: norm of the curves. None for all norms.
        model: names of models. Empty for all models.
        budget: x values at which the table has entries: numbers, or fractions such as "4/255". None for round numbers.
        bootstrap: number of bootstrap replicates, over images. 0 for no intervals.
        seed: random seed of the bootstrap.
        out: file into which a plot of the curves is written: .svg, .png or .pdf. None for no plot.

    Raises:
        DavylampError: see `build_curves` and `build_distance_curves`.
    """
    models, budgets = read_names(model, "model"), read_numbers(budget, "budget")
    norm, seed = read_text(norm, "`norm` as text") or None, read_seed(seed)
    bootstrap = read_int(bootstrap, "`bootstrap` as a whole number from 0", 0, 2**31 - 1)
    if x_axis not in (known := (*get_args(Against), "passes")):
        raise InvalidInput(f"expected `x_axis` as {', '.join(known)}, got {x_axis!r}")
    if x_axis == "passes":
        if out is not None or budgets:
            raise InvalidInput(
                "x_axis='passes' cannot be combined with `out` or `budget`; the report contains figures of these curves"
            )
        return build_distance_curves(folder, norm=norm, models=models)
    how: dict[str, Any] = {"norm": norm, "models": models, "budgets": budgets, "bootstrap": bootstrap, "seed": seed}
    made = build_curves(folder, against=x_axis, **how)
    if out is not None:
        from ..report.parts.curve_figure import write_curve_figure

        write_curve_figure(made, read_path(out, "out as a file"))
    return made


@takes_old_names(Config)
def check(
    folder: str | os.PathLike[str],
    *,
    probe: bool = False,
    model: str | Iterable[str] | Mapping[str, nn.Module] | None = None,
    data: Any = None,
    limit: int = 8,
    device: str = "cpu",
    version: str = "",
    progress: Progress | bool = True,
    **loading: Any,
) -> VerbResult:
    """Compute failure indicators, which show that the numbers in a results folder may be wrong.

    The causes can be masked gradients, weak or broken attacks, or models that were loaded wrongly.

    Args:
        folder: results folder made by `evaluate`.
        probe: whether to run each attack again on a few images. Some indicators cannot be computed from stored results
            and need this.
        model: names of models. Empty for all models. With `probe`, modules by name are also accepted.
        data: with `probe`, images and labels. None to load the data by name.
        limit: with `probe`, number of images on which each attack is run again.
        device: with `probe`, device of models that are loaded by name.
        version: version label with which the modules in `model` were evaluated.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function as for
            `corrupt_table`. It is called with the number of models instead of images.
        **loading: settings of `Config` for models loaded by name: isolate, request_rate, ...

    Returns:
        One row per indicator. The attribute `made` of the result has the indicator results and the repeated runs. The
        `notes` name the runs that could not be repeated.

    Raises:
        DavylampError: see `check_folder` and `probe_folder`.
    """
    check_loading(check, loading)
    only, limit = read_names(model, "model"), read_limit(limit) or 8
    if data is not None and not probe:
        raise InvalidInput("`data` needs `probe`: without `probe`, only stored results are read, and no images")
    if version and not (probe and isinstance(model, Mapping)):
        raise InvalidInput(
            "`version` applies only to modules in `model`, with `probe`. For other models, the name contains "
            "the version"
        )
    outcomes = read_outcomes(folder, ["OTR"])
    notes: list[str] = []
    probed = None
    if probe:
        asked = dict.fromkeys(outcome.cell.subject.model for outcome in outcomes.done)
        names = [name for name in asked if only is None or name in only]
        with ExitStack() as stack:
            lent, _ = classifiers_from_modules(model, stack, {}, version) if isinstance(model, Mapping) else (None, {})
            only = only if lent is None else list(lent)
            images = _labelled(data)
            how = loading_of(loading, () if lent else names, outcomes.store.folder)
            count = stack.enter_context(progress_of(progress)(len(names)))
            where: dict[str, Any] = {"images": limit, "device": device, "loading": how, "progress": count}
            probed = probe_folder(outcomes, models=lent, data=images, only=only, **where)
        notes = probed.notes
    findings = check_folder(outcomes, models=only)
    counts = Counter(each.state for each in findings)
    document = {
        "counts": {state: counts[state] for state in STATES},
        "checks": [each.document() for each in findings],
        **describe_folder(outcomes),
        "notes": notes,
    }
    headline = f"{os.fspath(folder)}: {', '.join(f'{counts[state]} {state}' for state in STATES)}"
    worst = sorted(findings, key=lambda each: STATES.index(each.state))
    rows = [{name: getattr(each, name) for name in ("state", "name", "subject", "detail", "advice")} for each in worst]
    wanted = Counter(each.advice or each.detail for each in findings if each.state == "unknown")
    problems = [row for row in rows if row["state"] in ("fail", "warn")]
    traffic = [] if probed is None else [probed.traffic.line]
    said = (*outcomes.unsteady, *notes, *filter(None, traffic))
    lines = [f"{count} unknown: {advice}" for advice, count in wanted.most_common()]
    return VerbResult(headline, rows, document, said, (findings, probed), (problems, (*said, *lines)))


def measure(
    folder: str | os.PathLike[str],
    metric: str | Iterable[str],
    *,
    model: str | Iterable[str] | Mapping[str, nn.Module] | None = None,
    data: Any = None,
    neuron_profile: str = "",
    hierarchy: str = "",
    device: str = "cpu",
    version: str = "",
    progress: Progress | bool = True,
    **loading: Any,
) -> VerbResult:
    """Compute further metrics for the finished runs of a results folder, and add the values to the folder.

    The folder then has the same columns as if the evaluation had computed these metrics.

    Args:
        folder: results folder made by `evaluate`. Most metrics need stored adversarial examples (`keep_images=True`).
        metric: metrics or groups of metrics: "ALMS", "attention", "coverage:sections=100", "my_metrics.py:f", "all".
        model: names of models, or modules by name. Empty for all models, which are then loaded by name.
        data: images and labels. None to load the data by name.
        neuron_profile: for "coverage", name of the data that define the ranges of the neurons' outputs.
        hierarchy: for semantic confusion, file with the hierarchy of classes.
        device: device of models that are loaded by name.
        version: version label with which the modules in `model` were evaluated.
        progress: see `check`.
        **loading: settings of `Config` for models loaded by name: isolate, request_rate, ...

    Returns:
        One row per run. The column `state` is "measured", "kept" for a run that had the metrics before, or "refused".
        The column `reason` says why a run was refused.

    Raises:
        InvalidInput: if all runs were refused.
        DavylampError: see `davylamp.engine.run.measure_folder.measure_folder`.
    """
    check_loading(measure, loading)
    names = read_several(metric, "at least one metric by name", str)
    _check_version(version, model)
    outcomes, only, images = read_outcomes(folder), read_names(model, "model"), _labelled(data)
    with ExitStack() as stack:
        lent, _ = classifiers_from_modules(model, stack, {}, version) if isinstance(model, Mapping) else (None, {})
        only = only if lent is None else list(lent)
        asked = dict.fromkeys(each.cell.subject.model for each in outcomes.done)
        how = loading_of(loading, () if lent else [name for name in asked if not only or name in only], folder)
        count = stack.enter_context(progress_of(progress)(len(asked)))
        where: dict[str, Any] = {"models": lent, "data": images, "only": only, "loading": how, "progress": count}
        where |= {"neuron_profile": neuron_profile, "hierarchy": hierarchy, "device": device}
        done = measure_folder(outcomes, names, **where)
    counts = Counter(each.state for each in done.runs)
    rows = [
        {"model": each.cell.subject.name, "attack": each.cell.title, "state": each.state, "reason": each.reason}
        for each in done.runs
    ]
    reasons = Counter(each.reason for each in done.runs if each.reason)
    if reasons and set(counts) == {"refused"}:
        raise InvalidInput(f"{os.fspath(folder)}: nothing could be measured: {'; '.join(reasons)}")
    notes = [f"refused: {count} run{'s' * (count > 1)}: {reason}" for reason, count in reasons.items()]
    unmeasured = dict.fromkeys(line for each in done.runs for line in each.unmeasured.items())
    notes += [f"without a value: {symbol}: {reason}" for symbol, reason in unmeasured]
    notes += [done.traffic.line] if done.traffic else []
    headline = f"{os.fspath(folder)}: {', '.join(names)}: {counted(counts['measured'], 'run')} measured, "
    headline += f"{counts['kept']} had it before, {counts['refused']} refused"
    return VerbResult(headline, rows, {"runs": rows, "notes": notes}, tuple(notes), done)


def _labelled(data: Any) -> Any:
    """Convert a pair of images and labels to `Data`. None is returned unchanged. Raises InvalidInput for a name."""
    images = None if data is None else coerce_labelled(data)
    if isinstance(images, str):
        raise InvalidInput(f"expected `data` as images and labels, got the name {images!r}")
    return images


def _check_version(version: str, model: Any) -> None:
    if version and not (model and isinstance(model, Mapping)):
        raise InvalidInput(
            "`version` applies only to modules in `model`. For other models, the name contains the version"
        )


@takes_old_names(Config)
def detect(
    folder: str | os.PathLike[str],
    detector: str | Path | Iterable[str | Path],
    *,
    false_positive_rates: float | str | Iterable[float | str] | None = None,
    model: Mapping[str, nn.Module] | None = None,
    data: Any = None,
    device: str = "cpu",
    version: str = "",
    **loading: Any,
) -> VerbResult:
    """Measure how well trained detectors find the adversarial examples that a results folder stores.

    Args:
        folder: results folder made by `evaluate` with `keep_images=True`.
        detector: one or several detector files, made by `fit`.
        false_positive_rates: false-positive rates in [0, 1) at which detection is measured. None for 0.01 and 0.05.
        model: the evaluated modules by name. None to load the models by name.
        data: images and labels. None to load the data by name.
        device: device of models that are loaded by name.
        version: version label with which the modules in `model` were evaluated.
        **loading: settings of `Config` for models loaded by name: isolate, request_rate, ...

    Returns:
        One row per detector, run and false-positive rate. The attribute `made` of the result has the `Detection`s.

    Raises:
        DavylampError: see `davylamp.engine.detection.detect.detect_folder`.
    """
    check_loading(detect, loading)
    files = [detector] if isinstance(detector, Path) else read_several(detector, "detectors as files", (str, Path))
    modules = read_mapping(model, "`model` as modules by name")
    _check_version(version, modules)
    rates = tuple(read_numbers(false_positive_rates, "false_positive_rates") or RATES)
    detectors, outcomes = read_detectors(files, rates), as_results(folder)
    with ExitStack() as stack:
        lent = None if model is None else classifiers_from_modules(modules, stack, {}, version)[0]
        unscored = [] if lent else models_to_score(outcomes, detectors)
        how: dict[str, Any] = {"device": device, "loading": loading_of(loading, unscored, outcomes.store.folder)}
        images: Any = None if data is None else coerce_labelled(data)
        measured = measure_detectors(outcomes, detectors, rates=rates, models=lent, data=images, **how)
    document = measured.document()
    count = len(measured.rows)
    headline = (
        f"{os.fspath(folder)}: {len(detectors)} detector{'s' * (len(detectors) > 1)} on {count} run{'s' * (count != 1)}"
    )
    rows = [line for row in measured.rows for line in _rates_of(row)]
    if not rows:
        why = next(iter(measured.notes), "no finished run; evaluate with `keep_images`")
        line = f"no examples in {os.fspath(folder)} on which the detectors can be measured: {why}"
        raise InvalidInput(line)
    return VerbResult(headline, rows, document, tuple(document["notes"]), measured)


def export(
    folder: str | os.PathLike[str],
    out: str | Path,
    *,
    form: Literal["bundle", "attackbench", "verdict"] = "bundle",
    licence: str = "",
    creator: str = "",
    name: str = "",
    description: str = "",
    images: bool = True,
    data: Any = None,
    model: str | None = None,
    key: str | Path | None = None,
) -> VerbResult:
    """Write a results folder to a file that others can read: a bundle, a verdict, or files for AttackBench.

    A bundle is a ZIP file of the whole folder, with tables, a data card, a licence and checksums. A verdict is a ZIP
    file with the adversarial examples that fooled one model. `verify` checks a verdict on the model.

    Args:
        folder: results folder made by `evaluate`.
        out: the ZIP file to write. For "attackbench", a folder for the files.
        form: output format.
        licence: for a bundle, an SPDX identifier such as "CC-BY-4.0".
        creator: for a bundle, the author of the results.
        name: for a bundle, its title. "" for a title made from the names of models and data.
        description: for a bundle, a sentence that describes it. "" for a summary of its content.
        images: for a bundle, whether to include the stored adversarial images.
        data: for "attackbench" and "verdict", the evaluated images: images and labels, or a name. None to load the
            data by the name that the folder has.
        model: for "verdict", name of the model. "" for the only model of the folder.
        key: for "verdict", a PEM file with an Ed25519 private key, with which the verdict is signed. None for a verdict
            without a signature.

    Returns:
        For a bundle, one row per kind of record; for a verdict, one row per claim; for AttackBench, one row per file.
        The attribute `made` of the result is the written object.

    Raises:
        DavylampError: see `write_bundle`, `write_verdict_file` and `export_attackbench`.
    """
    terms = SharingTerms(licence, creator, name, description)
    if form != "verdict" and (model is not None or key is not None):
        raise InvalidInput("`model` and `key` need form='verdict'")
    if form == "bundle":
        if data is not None:
            raise InvalidInput("`data` needs form='attackbench' or 'verdict': a bundle has no images of the data set")
        bundled = write_bundle(expand_path(folder), out, terms=terms, images=images)
        unstated = () if licence else ("no licence is given, and the bundle says so; give one: `licence=CC-BY-4.0`",)
        size = format_bytes(bundled.path.stat().st_size)
        headline = f"{bundled.path}: {size}, {describe_counts(bundled.records)}; `davylamp import` reads it"
        document = {"file": str(bundled.path), "records": bundled.records, "notes": [*bundled.notes, *unstated]}
        return VerbResult(headline, _records(bundled.records), document, (*bundled.notes, *unstated), bundled)
    if form not in ("attackbench", "verdict"):
        raise UnknownName("format", form, ("bundle", "attackbench", "verdict"))
    if wrong := [f"`{field}`" for field, value in vars(terms).items() if value]:
        raise InvalidInput(f"form='{form}' cannot be combined with {', '.join(wrong)}")
    if not images:
        raise InvalidInput(f"form='{form}' cannot be combined with `images`, which needs form='bundle'")
    if form == "verdict":
        secret = None if key is None else read_private_key(key)
        return _written(
            write_verdict_file(
                folder, out, model=model, data=data if data is None else coerce_labelled(data), key=secret
            )
        )
    if expand_path(out).resolve() == expand_path(folder).resolve():
        raise InvalidInput(f"the output folder must differ from the results folder, got {out}")
    exported = export_attackbench(folder, out, data=data if data is None else coerce_labelled(data))
    files = [{"file": str(file)} for file in exported.files]
    headline = f"{len(files)} file{'' if len(files) == 1 else 's'} for AttackBench"
    return VerbResult(headline, files, {"files": [*map(str, exported.files)]}, tuple(exported.notes), exported)


def _written(verdict: WrittenVerdict) -> VerbResult:
    subject, rows = verdict.manifest.subject, [claim_row(claim) for claim in verdict.manifest.claims]
    size = format_bytes(verdict.path.stat().st_size)
    signed = f"signed by {verdict.signed_by}" if verdict.signed_by else "not signed"
    claims = "; ".join(describe_claim(claim, claim.fooled, subject.images) for claim in verdict.manifest.claims)
    headline = f"{verdict.path}: {size}, {signed}: {claims}; `davylamp verify` judges it again"
    document = {"file": str(verdict.path), "model": subject.model, "signed_by": verdict.signed_by, "claims": rows}
    return VerbResult(headline, rows, {**document, "notes": verdict.notes}, tuple(verdict.notes), verdict)


def import_results(
    what: str | Path,
    out: str | Path,
    *,
    form: Literal["bundle", "attackbench", "robustbench"] = "bundle",
    model: str | None = None,
    data: Any = None,
) -> VerbResult:
    """Unpack a bundle into a new folder, or add results of AttackBench or RobustBench to a results folder.

    Imported results are stored as they are. The adversarial examples are not checked on a model.

    Args:
        what: the bundle, or a file or folder written by AttackBench or RobustBench.
        out: for a bundle, a new folder. Otherwise an existing results folder.
        form: input format.
        model: for "attackbench", name of the model in the folder. None to find the model by its predictions.
        data: for "attackbench", the evaluated images: images and labels, or a name. None to load the data by the name
            that the folder has.

    Returns:
        For a bundle, one row per kind of record; for AttackBench, one row per run; for RobustBench, one row per
        leaderboard. The attribute `made` of the result is the imported object.

    Raises:
        DavylampError: see `unpack_bundle`, `import_attackbench` and `import_robustbench`.
    """
    if form != "attackbench" and (model is not None or data is not None):
        raise InvalidInput(f"`model` and `data` need form='attackbench', got form='{form}'")
    if form == "bundle":
        merged = unpack_bundle(what, out)
        headline = f"{out}: {describe_counts(merged.records)}; all checksums match"
        document = {"folder": str(out), "records": merged.records, "notes": merged.notes}
        return VerbResult(headline, _records(merged.records), document, tuple(merged.notes), merged)
    if form == "robustbench":
        published = import_robustbench(what, out)
        boards: list[dict[str, Any]] = [
            dict(zip(("data", "norm", "models", "images"), line, strict=True)) for line in boards_of(published)
        ]
        headline, refused = f"RobustBench, published rows in {out}", published.refused
        shown = "`davylamp table FOLDER --with-leaderboard`"
        beside = f"published numbers without per-image results, not verified by davylamp: {shown}"
        return _imported(headline, boards, refused, [beside], published)
    if form != "attackbench":
        raise UnknownName("format", form, ("bundle", *FORMATS))
    images: Data | str | None = data if data is None else coerce_labelled(data)
    done, refused = import_attackbench(what, out, model=model, data=images)
    notes = []
    if any(each.left_out for each in done):
        notes.append("omitted: images that are not in the folder, or that the folder's model classifies differently")
    if any(each.crashed for each in done):
        notes.append(
            "crashed: the attack failed or never queried the model. This is a missing result, not a success rate of 0"
        )
    notes.append("`davylamp table FOLDER --with-imported` compares them with davylamp's results")
    return _imported(f"{len(done)} runs of attackbench in {out}", [vars(each) for each in done], refused, notes, done)


def _imported(
    headline: str, rows: Sequence[Mapping[str, Any]], refused: list[str], notes: list[str], made: Any
) -> VerbResult:
    document = {"imported": [*rows], "refused": refused}
    return VerbResult(headline, rows, document, (*notes, *(f"refused: {line}" for line in refused)), made)


def _rates_of(row: Detection) -> list[dict[str, Any]]:
    head = {"detector": row.detector, "name": row.name, "model": row.cell.subject.name, "attack": row.cell.title}
    head |= {"auc": row.area.value, "fooled": row.fooled}
    shares = ("detected", "false_alarms", "missed")
    return [{**head, "rate": at.rate, **{name: getattr(at, name).value for name in shares}} for at in row.rates]


def _records(records: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"kind": kind, "records": count} for kind, count in records.items()]
