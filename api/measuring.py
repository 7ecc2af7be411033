"""Functions that measure one model: AutoAttack, adaptive attacks, certificates, saturation radius, published tables."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from ..adapters import Classifier, Implementation, canonical_attack
from ..adapters.catalogue.lookup import accepts_parameter
from ..adapters.coercion import read_int, read_list, read_mapping, read_radius, read_seed, read_text
from ..adapters.data.datasets import Data
from ..adapters.data.duplicates import note_fewer
from ..adapters.models.images import check_labels
from ..adapters.models.remote.server_usage import total_usage
from ..adapters.models.temporary_classifier import as_classifier
from ..adapters.models.zoo.load import add_parts
from ..adapters.paths import expand_path
from ..adapters.running.requirements import check_any_access
from ..adapters.torch_state import with_gradients
from ..benchmarks.reproductions import find_table
from ..benchmarks.shared.counterpart import split_rows
from ..benchmarks.shared.paper_table import Options, PaperTable
from ..deprecation import current_settings, takes_old_names
from ..engine.certify import certified_accuracy, check_radii, count_classes, split_smoothed
from ..engine.certify import certify as certify_images
from ..engine.challenge.attempts import AttackOutcome
from ..engine.challenge.challenge import challenge as challenge_model
from ..engine.challenge.challenge_result import ChallengeResult
from ..engine.challenge.robust_accuracy import RobustAccuracy, measure_robust_accuracy
from ..engine.challenge.suite import ChallengeBudget
from ..engine.plan.config import Config
from ..engine.plan.plan import Plan
from ..engine.searches.saturation import check_has_radius, saturating_budget
from ..engine.sequential.question import parse_question
from ..errors import DavylampError, InvalidInput, UnknownName, Unsupported
from ..report.text.challenge import attempt_text
from ..report.text.console import print_error
from ..report.text.progress import show_plan
from .python_inputs import (
    Progress,
    check_loading,
    coerce_labelled,
    images_of,
    lend_model,
    loading_of,
    progress_of,
    read_limit,
    read_number,
    read_numbers,
    take_source,
)
from .verb_result import VerbResult
from .verbs import hints_before, rows_of

_MOST = 10**7  # largest number of noise samples, and of any effort per image


@takes_old_names(Config)
@with_gradients
def robust_accuracy(
    model: nn.Module | str,
    inputs: Any = None,
    labels: Any = None,
    *,
    epsilon: float | str | None = None,
    norm: str = "linf",
    data: str | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    out: str | Path | None = None,
    version: str = "",
    until: str | None = None,
    progress: Callable[[Plan], AbstractContextManager[Any]] | bool = True,
    **loading: Any,
) -> RobustAccuracy:
    """Measure a model's accuracy under AutoAttack, with warnings about reasons to doubt the result.

    The attacks are those of AutoAttack's standard version. If `pyautoattack` is installed, the code of AutoAttack's
    authors is used. Each attack runs only on images that no earlier attack fooled. For a random model
    (`Classifier(random=True)`), AutoAttack's rand version is used. AutoAttack needs at least four classes. For models
    with fewer classes, its attacks are run with the margin between two logits as the loss.

    Args:
        model: a module that returns logits for images in [0, 1], or a name that `load_model` accepts.
        inputs: images in [0, 1], shape (N, C, H, W). None for the images of `data`.
        labels: ground truth, shape (N,).
        epsilon: radius, a number or a fraction such as "8/255". None for the radius that papers use in this norm.
        norm: "linf" or "l2".
        data: name of data that `load_data` accepts, in place of `inputs`. None for "demo:imagenet".
        limit: largest number of images.
        batch_size: number of images per call of an attack library. None for the default.
        seed: random seed.
        device: device of a model given by its name. A module stays on its device.
        out: results folder, from which an interrupted call resumes. None to store nothing.
        version: version label of the model, see `davylamp.evaluate`.
        until: rule for stopping before all images are attacked. "RA >= 0.6" stops when it is decided whether the robust
            accuracy on all images is at least 0.6. "width <= 0.05" stops when its interval has at most this width.
            Images are attacked in random order. The intervals remain valid although the number of images is not fixed
            in advance (Waudby-Smith and Ramdas 2024). None to attack all images.
        progress: True for a progress bar on a terminal or a line in a notebook, False for no progress. Or a function,
            see `measure_robust_accuracy`.
        **loading: settings of `Config` for a model loaded by name: isolate, request_rate, ...

    Returns:
        The clean and the robust accuracy with 95 % intervals, the result of each attack, and the warnings.

    Raises:
        DavylampError: see `davylamp.engine.challenge.robust_accuracy.measure_robust_accuracy`.
    """
    check_loading(robust_accuracy, loading)
    limit, (source, rounded) = read_limit(limit), take_source(inputs, labels, data)
    with ExitStack() as stack:
        lent: Any = (
            add_parts(model, version=version)
            if isinstance(model, str)
            else stack.enter_context(as_classifier(model, version))
        )
        measured = measure_robust_accuracy(
            lent,
            source,
            norm=norm,
            epsilon=read_radius(epsilon),
            limit=limit,
            batch_size=batch_size,
            seed=read_seed(seed),
            device=device,
            out=None if out is None else expand_path(out),
            loading=loading_of(loading, [model] if isinstance(model, str) else (), out),
            until=None if until is None else parse_question(read_text(until, "`until` as text")),
            progress=progress_of(progress, show_plan),
        )
    return replace(measured, warnings=(*measured.warnings, *filter(None, [rounded])))


@takes_old_names(Config)
@with_gradients
def challenge(
    model: nn.Module | str,
    inputs: Any = None,
    labels: Any = None,
    *,
    data: str | None = None,
    original: nn.Module | str | None = None,
    surrogates: Mapping[str, nn.Module] | Iterable[str] = (),
    out: str | Path = "challenge",
    norm: str = "linf",
    epsilon: float | str | None = None,
    limit: int | None = None,
    quick: bool = False,
    steps: int | None = None,
    queries: int | None = None,
    eot: int | None = None,
    judge_samples: int | None = None,
    effort: Mapping[str, int] | None = None,
    seed: int = 0,
    device: str = "cpu",
    version: str = "",
    progress: Callable[[AttackOutcome], object] | bool = True,
    **loading: Any,
) -> ChallengeResult:
    """Attack a defended model with adaptive attacks, and decide whether the defence works.

    The verdict is that the defence falls, masks gradients, holds, or that the question is undecided.

    Args:
        model: a name "MODEL+DEFENCE", or a module. For a name, the attacks use every kind of gradient that davylamp
            knows for the defence. For a module, the attacks use only the module's own gradients.
        inputs: images in [0, 1], shape (N, C, H, W). None for the images of `data`.
        labels: ground truth, shape (N,).
        data: name of data that `load_data` accepts, in place of `inputs`. None for "demo:imagenet".
        original: the undefended model. None if the name "MODEL+DEFENCE" contains it.
        surrogates: further models for transfer attacks, on which examples are made: modules by name, or one or several
            names.
        out: results folder. `davylamp.report(out)` has a section on the challenge.
        norm: "linf" or "l2".
        epsilon: radius, a number or a fraction such as "8/255". None for the radius that papers use in this norm.
        limit: largest number of images.
        quick: whether to make only a quick trial with 10 images and 10 steps.
        steps: iterations of the gradient attacks. None for the default.
        queries: largest number of queries of each black-box attack. None for the default.
        eot: for a random model, number of outputs that are averaged for each query of an attack. None for the default.
        judge_samples: for a random model, number of outputs by which each example is judged. None for the default.
        effort: `steps`, `queries`, `eot` and `judge_samples` as a mapping, in place of the keywords. The mapping may
            also contain `candidates`, the number of classes that the targeted attack considers.
        seed: random seed.
        device: device of models that are loaded by name. A module stays on its device.
        version: version label of the model, see `davylamp.evaluate`.
        progress: True to print a line after each attack on a terminal or in a notebook, False to print nothing. Or a
            function that is called with the outcome of each finished attack.
        **loading: settings of `Config` for models loaded by name: isolate, request_rate, ...

    Raises:
        DavylampError: see `davylamp.engine.challenge.challenge.challenge`.
    """
    check_loading(challenge, loading)
    limit, (source, rounded) = read_limit(limit), take_source(inputs, labels, data)
    given = {"steps": steps, "queries": queries, "eot": eot, "judge_samples": judge_samples}
    spent, seed = _read_effort(effort, given), read_seed(seed)
    several: Any = surrogates
    if not isinstance(surrogates, Mapping):
        several = read_list(surrogates, "surrogates as modules by name, or as names", str)
    named = [each for each in (model, original, *several) if isinstance(each, str)]
    with ExitStack() as stack:

        def lend(given: Any, name: str, version: str = "") -> Classifier:
            lent = stack.enter_context(as_classifier(given, version))
            if not isinstance(given, Classifier):
                lent.name = name
            return lent

        if isinstance(several, Mapping):
            several = {name: lend(each, name) for name, each in several.items()}
        done = challenge_model(
            add_parts(model, version=version) if isinstance(model, str) else lend(model, "defended", version),
            source,
            original=original if original is None or isinstance(original, str) else lend(original, "undefended"),
            surrogates=several,
            out=out,
            norm=norm,
            epsilon=read_radius(epsilon),
            limit=limit,
            quick=quick,
            effort=spent,
            seed=seed,
            device=device,
            loading=loading_of(loading, named, out),
            say=progress_of(progress, _print_attempt),
        )
    return replace(done, notes=(*filter(None, [rounded]), *done.notes))


def _print_attempt(attempt: AttackOutcome) -> None:
    print_error(attempt_text(attempt))


def _read_effort(effort: Any, keywords: Mapping[str, Any]) -> dict[str, int]:
    """Combine the values of the argument `effort` and of the keywords, by name.

    Raises:
        InvalidInput: if a value is given twice, or is not a positive whole number.
        UnknownName: if `effort` has an unknown name.
    """
    known = [field.name for field in fields(ChallengeBudget)]
    given = current_settings(read_mapping(effort, "effort as whole numbers by name"), known)
    keywords = {name: value for name, value in keywords.items() if value is not None}
    if twice := sorted(given.keys() & keywords.keys()):
        raise InvalidInput(f"`{twice[0]}` is given twice, as a keyword and in `effort`; give it once")
    given |= keywords
    for name in given:
        if name not in known:
            raise UnknownName("effort", str(name), known)
    return {name: read_int(value, f"`{name}` as a whole number from 1", 1, _MOST) for name, value in given.items()}


@takes_old_names(Config)
@with_gradients
def certify(
    model: nn.Module | str,
    inputs: Any = None,
    labels: Any = None,
    *,
    sigma: float | str | None = None,
    data: str | None = None,
    limit: int | None = None,
    n0: int = 100,
    n: int = 1000,
    alpha: float = 0.001,
    radius: float | str | Iterable[float | str] | None = None,
    seed: int = 0,
    device: str = "cpu",
    version: str = "",
    progress: Progress | bool = True,
    **loading: Any,
) -> VerbResult:
    """Certify the predictions of a model with randomized smoothing (Cohen et al. 2019).

    For each image, the smoothed model's prediction and the l2 radius in which this prediction is constant are computed.

    Args:
        model: a module to which this function adds noise, or a name with the noise: "MODEL+smoothing:sigma=0.25".
        inputs: images in [0, 1], shape (N, C, H, W). None for the images of `data`.
        labels: ground truth, shape (N,).
        sigma: for a module, standard deviation of the noise for pixels in [0, 1], a number or a fraction. None for a
            model given by its name, which contains sigma.
        data: name of data that `load_data` accepts, in place of `inputs`. None for "demo:imagenet".
        limit: largest number of images.
        n0: number of noise samples by which the predicted class is selected.
        n: number of noise samples by which the probability of the predicted class is bounded.
        alpha: largest probability that the certificate of an image is wrong, in (0, 1).
        radius: l2 radii at which certified accuracy is reported, numbers or fractions. None for 0 to 4 sigma.
        seed: random seed of the noise.
        device: device of a model given by its name.
        version: version label of the model, see `davylamp.evaluate`.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function as for
            `corrupt_table`.
        **loading: settings of `Config` for a model loaded by name: isolate, request_rate, ...

    Returns:
        One row per radius, with the certified accuracy. The attribute `made` of the result has the `Certificates` of
        the images.

    Raises:
        DavylampError: see `davylamp.engine.certify.certify`.
    """
    check_loading(certify, loading)
    asked: Any = model
    if isinstance(model, str):
        if sigma is not None:
            raise InvalidInput(f"the noise is given twice, in the name {model} and as `sigma={sigma}`; give it once")
        model = add_parts(model, version=version)
        asked, sigma = split_smoothed(model)
    if sigma is None:
        raise InvalidInput(
            "a module needs `sigma`, the standard deviation of the noise; a name such as MODEL+smoothing:sigma=0.25 "
            "contains it"
        )
    if not 0 < (deviation := read_number(sigma, "sigma")) < math.inf:
        raise InvalidInput(f"expected `sigma` above 0 and finite, got {deviation:g}")
    radii = tuple(read_numbers(radius, "radius") or (deviation * step for step in range(5)))
    check_radii(radii)
    settings: dict[str, Any] = {
        "sigma": deviation,
        "first": read_int(n0, f"`n0` as a whole number from 1 to {_MOST}", 1, _MOST),
        "draws": read_int(n, f"`n` as a whole number from 1 to {_MOST}", 1, _MOST),
        "alpha": read_number(alpha, "alpha"),
        "seed": read_seed(seed),
    }
    limit, (source, rounded) = read_limit(limit), take_source(inputs, labels, data)
    with ExitStack() as stack:
        classifier = lend_model(asked, stack, device, loading, version)
        name = model if isinstance(model, str) else classifier.name
        images = images_of(classifier, source, limit)
        fewer = _fewer(source, images, limit)
        shown = images.inputs.to(classifier.device)
        check_labels(images.labels, len(images.labels), count_classes(classifier, shown))
        count = stack.enter_context(progress_of(progress)(len(images.labels)))
        certificates = certify_images(classifier, shown, **settings, progress=partial(count, name))
        traffic = total_usage(classifier).line
    lines = [line._asdict() for line in certified_accuracy(certificates, images.labels, radii)]
    columns = (images.names, images.labels.tolist(), *(values.tolist() for values in certificates))
    names = ("image", "label", "predicted", "radius", "chance", "not_finite")
    rows: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    for row in rows:
        row["predicted"] = None if row["predicted"] < 0 else row["predicted"]
    about = {"model": name, "data": source if isinstance(source, str) else "given", **settings}
    at = next((line for line in lines if line["radius"] > 0), lines[0])
    answer = "certified accuracy {accuracy:.3f} [{low:.2f}, {high:.2f}] at l2 {radius:g}, n = {n}".format(**at)
    how = "noise {sigma:g}, {first} + {draws} draws, alpha {alpha:g}".format(**about)
    headline = f"{name} on {about['data']}: {answer}; {how}"
    unusable = _not_finite(rows, settings["first"] + settings["draws"])
    notes = tuple(filter(None, (rounded, *fewer, classifier.output_note, unusable, traffic)))
    document = {**about, "images": rows, "certified_accuracy": lines, "notes": list(notes)}
    return VerbResult(headline, lines, document, notes, certificates)


def _not_finite(rows: list[dict[str, Any]], draws: int) -> str:
    """Return a note on noise samples for which the model's logits are not finite. "" if there are no such samples."""
    of = [row for row in rows if row["not_finite"]]
    count = sum(row["not_finite"] for row in of)
    text = f"{count} of {draws * len(rows)} samples have logits that are NaN or infinite, for {len(of)} of {len(rows)}"
    return f"{text} images. Such samples count towards no class, but remain in the total" if of else ""


@takes_old_names(Config)
@with_gradients
def saturation(
    attack: Any,
    model: nn.Module | str = "demo:efficientnet-lite0",
    inputs: Any = None,
    labels: Any = None,
    *,
    data: str | None = None,
    limit: int | None = None,
    norm: str | None = None,
    epsilon: float | str | Iterable[float | str] | None = None,
    threshold: float = 0.01,
    parameters: Mapping[str, Any] | None = None,
    libraries: Iterable[str] = (),
    fixed: bool = False,
    seed: int = 0,
    device: str = "cpu",
    version: str = "",
    progress: Progress | bool = True,
    **loading: Any,
) -> VerbResult:
    """Find the saturation radius of an attack in each library: a larger radius fools hardly any further images.

    The saturation radius is defined in section 3.2.1 of the CANARY paper.

    Args:
        attack: a fixed-budget attack, such as "pgd" or "foolbox:pgd".
        model: a module that returns logits for images in [0, 1], or a name that `load_model` accepts.
        inputs: images in [0, 1], shape (N, C, H, W). None for the images of `data`.
        labels: ground truth, shape (N,).
        data: name of data that `load_data` accepts, in place of `inputs`. None for "demo:imagenet".
        limit: largest number of images.
        norm: norm of the attack. None for the first norm of the attack.
        epsilon: radii to try, numbers or fractions. None for 9 radii around the radius that papers use in this norm.
        threshold: largest accepted difference between the rate of fooled images at the saturation radius and the
            highest rate at any radius.
        parameters: parameters of the attack by their canonical names. A parameter that is not given has the same value
            in all libraries.
        libraries: names of the libraries to use. Empty for all libraries.
        fixed: whether to include variants in which davylamp has fixed an issue of the library.
        seed: random seed.
        device: device of a model given by its name.
        version: version label of the model, see `davylamp.evaluate`.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function as for
            `corrupt_table`. An image counts once for each radius.
        **loading: settings of `Config` for a model loaded by name: isolate, request_rate, ...

    Returns:
        One row per implementation. The `notes` name the implementations that failed.

    Raises:
        DavylampError: if no implementation can be run, see `davylamp.engine.search_saturation_radius`.
    """
    check_loading(saturation, loading)
    radii, seed, limit = read_numbers(epsilon, "epsilon"), read_seed(seed), read_limit(limit)
    given, threshold = read_mapping(parameters, "parameters by name"), read_number(threshold, "threshold")
    rows = rows_of(attack, read_list(libraries, "libraries as names", str), fixed=fixed)
    norm = norm or next(iter(rows[0].classes))
    rows = [row for row in rows if norm in row.classes]
    if not rows:
        raise InvalidInput(f"{attack} does not support the norm {norm}; choose a different `norm`")
    if all(canonical_attack(row).kind != "fixed-budget" for row in rows):
        check_has_radius(rows[0])
    source, rounded = take_source(inputs, labels, data)
    model = add_parts(model, version=version) if isinstance(model, str) else model
    lines: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        classifier = lend_model(model, stack, device, loading, version)
        name = model if isinstance(model, str) else classifier.name
        images = images_of(classifier, source, limit)
        doubts = [*_fewer(source, images, limit), *hints_before(classifier, images.inputs, images.labels)]
        check_any_access(rows, classifier, images.inputs, norm=norm)
        total = len(rows) * (len(radii) if radii else 9) * len(images.labels)
        count = stack.enter_context(progress_of(progress)(total))
        for row in rows:
            how = {"budgets": radii, "threshold": threshold, "seed": seed, "progress": partial(count, row.name)}
            how |= {**_matched(row), **given}
            try:
                reached = saturating_budget(row, classifier, images.inputs, images.labels, norm, **how)  # type: ignore[arg-type]
            except DavylampError as error:
                failed[row.name] = str(error)
            else:
                lines.append({"implementation": row.name, **reached._asdict()})
        traffic = total_usage(classifier).line
    if not lines:
        raise Unsupported("; ".join(dict.fromkeys(failed.values())))
    about = f"{attack} on {name}, {source if isinstance(source, str) else 'given'}"
    headline = "; ".join([*doubts, about])
    notes = [note for note in (rounded, traffic) if note]
    notes += [f"omitted: {row}: {reason}" for row, reason in failed.items()]
    document = {"norm": norm, "rows": lines, "failed": failed, "notes": [*doubts, *notes]}
    return VerbResult(headline, lines, document, tuple(notes))


def _fewer(source: Any, images: Data, limit: int | None) -> list[str]:
    """Return a list with a warning if there are fewer images than `limit`. Otherwise an empty list."""
    return note_fewer(source if isinstance(source, str) else "given", len(images.labels), limit)


def _matched(row: Implementation) -> dict[str, Any]:
    return {name: value for name, value in canonical_attack(row).matched.items() if accepts_parameter(row, name)}


def reproduce(
    name: str,
    *,
    quick: bool = False,
    full: bool = False,
    published: bool = False,
    models: Any = None,
    data: Any = None,
    rows: Mapping[str, Any] | None = None,
    limit: int | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    seed: int = 0,
    progress: Callable[[str, int], object] | None = None,
) -> VerbResult:
    """Recompute a table of a paper, and compare the numbers with the published numbers.

    Args:
        name: name of a table, such as "canary-table4" or "FILE.py:TABLE". `davylamp reproduce` lists the names.
        quick: whether to compute only a small part of the table, as a trial.
        full: whether to use the paper's budgets and number of images, instead of smaller ones.
        published: whether to return the paper's numbers and run nothing. Other options cannot be combined with this.
        models: names of models, or modules by name, in place of the default models. If the name of a module is the
            paper's name of a model, the module stands for this model.
        data: images and labels, or a name, in place of the default images.
        rows: your own versions of the paper's models and data, by their names in the paper. The name of a model is
            mapped to a module or to a name that `load_model` accepts. The name of the data set is mapped to images and
            labels or to a name that `load_data` accepts. Use "data" if the table does not name the data set. For these
            models, the result has the differences from the published numbers.
        limit: largest number of images.
        out: folder for the results, from which an interrupted call resumes. None for a temporary folder.
        device: device of the computation. None for the CPU.
        seed: random seed.
        progress: called with the name of an attack and the number of images attacked since the previous call.

    Returns:
        One row per number of the table. With `published`, one row per row of the paper's table. The attribute `made` of
        the result is the `PaperTable`. Its method `print` compares the numbers with the published ones, and its method
        `grid` arranges the numbers as in the paper.

    Raises:
        InvalidInput: if an option does not apply to the table.
        DavylampError: if the table cannot be recomputed.
    """
    table: PaperTable = find_table(name)
    limit = read_limit(limit)
    if quick and full:
        raise InvalidInput("`quick` and `full` cannot be combined")
    asked = {"full": full or None, "models": models, "data": data, "rows": rows or None}
    asked |= {"limit": limit, "out": out, "device": device}
    given: dict[str, Any] = {option: value for option, value in asked.items() if value is not None}
    if published and (given or quick):
        raise InvalidInput(
            f"`published` and `{next(iter(given), 'quick')}` cannot be combined: `published` runs nothing"
        )
    if published:
        document = table.published_result()
        lines = [record for part in table.grid(document) for record in part.records("published")]
        return VerbResult(f"{name}: {document['source']}", lines, {**document, "rows": lines}, (), table)
    if given and not table.runs_models:
        option = next(iter(given))
        raise InvalidInput(f"{name} cannot be combined with `{option}`, because this table is computed without models")
    with ExitStack() as stack:
        if rows:
            given |= _named_rows(rows, models)
        if isinstance(given.get("models"), Mapping):
            lent = given["models"].items()
            given["models"] = {each: stack.enter_context(as_classifier(model)) for each, model in lent}
        if given.get("data") is not None:
            given["data"] = coerce_labelled(given["data"])
        result = table.run(Options(quick=quick, seed=seed, progress=progress, **given))
    lines = result["lines"] if "lines" in result else [*_records_in(result)]
    notes = tuple(map(str, result.get("notes", ())))
    return VerbResult(f"{name}: {table.title}", lines, result, notes, table)


def _named_rows(rows: Mapping[str, Any], models: Any) -> dict[str, Any]:
    """Split the keyword `rows` of `reproduce` into keywords `rows`, `models` and `data`.

    The new `rows` has only names. Modules in `rows` are moved to `models`, and images and labels to `data`.
    """
    said, data_set, images = split_rows(rows)
    modules = {name: ours for name, ours in said.items() if not isinstance(ours, str)}
    given: dict[str, Any] = {"rows": {name: name if name in modules else ours for name, ours in rows.items()}}
    if modules:
        lent = models if isinstance(models, Mapping) else {}
        named = [name for name in said.values() if isinstance(name, str) and name not in lent]
        named += [] if lent else [*(models or ())]
        if named:
            raise InvalidInput(f"expected all models as modules or all as names, got modules, and the name {named[0]}")
        given["models"] = {**lent, **modules}
    if data_set and not isinstance(images, str):
        given["data"], given["rows"][data_set] = images, "given"
    return given


def _records_in(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for value in document.values():
        if isinstance(value, Mapping):
            yield from _records_in(value)
        elif isinstance(value, list):
            yield from (each for each in value if isinstance(each, Mapping))
