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
    """Measure a model's accuracy under AutoAttack, with all warnings about the result.

    The attacks are those of AutoAttack's standard version, by the authors' code if `pyautoattack` is installed. Each
    one attacks the images that are not yet fooled. For a random model (`Classifier(random=True)`), AutoAttack's rand
    version is used. AutoAttack is not defined for fewer than four classes; the same attacks are then run on the plain
    margin of the logits.

    Args:
        model: a module that returns logits for images in [0, 1], or a name that `load_model` knows.
        inputs: images in [0, 1], shape (N, C, H, W), or None for those of `data`.
        labels: ground truth, shape (N,).
        epsilon: radius, a number or a fraction such as "8/255", or None for the usual one.
        norm: "linf" or "l2".
        data: a name that `load_data` knows, in place of `inputs`, or None for "demo:imagenet".
        limit: largest number of images.
        batch_size: images per call of a library.
        seed: random seed.
        device: device of a model given by its name; a module is not moved.
        out: the results folder, from which an interrupted call resumes; None to store nothing.
        version: version of the model, as in `davylamp.evaluate`.
        until: rule for stopping early. "RA >= 0.6" stops when it is decided whether that holds on all images,
            "width <= 0.05" when the interval is that narrow. Images are attacked in random order. The intervals hold at
            every number of images, so that stopping early does not bias them (Waudby-Smith and Ramdas 2024).
        progress: True for a bar on a terminal or a line in a notebook, False for none, or a function as for
            `measure_robust_accuracy`.
        **loading: settings of `Config` for a model loaded by name: isolate, request_rate, ...

    Returns:
        The clean and the robust accuracy with 95 % intervals, the result of each attack, and the warnings.

    Raises:
        DavylampError: as for `davylamp.engine.challenge.robust_accuracy.measure_robust_accuracy`.
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
    """Attack a defence with adaptive attacks. The verdict is that it falls, masks gradients, holds or is undecided.

    Args:
        model: a name "MODEL+DEFENCE", which is attacked with every kind of gradient of its defence; or a module, which
            is attacked with its own gradients.
        inputs: images in [0, 1], shape (N, C, H, W), or None for those of `data`.
        labels: ground truth, shape (N,).
        data: a name that `load_data` knows, in place of `inputs`, or None for "demo:imagenet".
        original: the undefended model, if it does not follow from the name.
        surrogates: additional source models of examples: modules by name, or one or several names.
        out: the results folder; `davylamp.report(out)` has a section on the challenge.
        norm: "linf" or "l2".
        epsilon: the radius, a number or a fraction such as "8/255", or None for the usual one.
        limit: largest number of images.
        quick: whether to make only a quick trial with 10 images and 10 steps.
        steps: iterations of the gradient attacks; None for the default.
        queries: queries of each black-box attack; None for the default.
        eot: for a random model, number of samples whose mean an attack sees; None for the default.
        judge_samples: for a random model, number of samples on which an example is judged; None for the default.
        effort: these values by name, and `candidates`, the classes that the targeted attack considers.
        seed: random seed.
        device: device of loaded models; a module is not moved.
        version: version of the model, as in `davylamp.evaluate`.
        progress: True for a line after each attack on a terminal or in a notebook, False for none, or a function. It is
            called with each attack's outcome when the attack is finished.
        **loading: settings of `Config` for models loaded by name: isolate, request_rate, ...

    Raises:
        DavylampError: as for `davylamp.engine.challenge.challenge.challenge`.
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
    """Convert to whole numbers by name, which replace the challenge's default effort. Raises InvalidInput."""
    known = [field.name for field in fields(ChallengeBudget)]
    given = current_settings(read_mapping(effort, "effort as whole numbers by name"), known)
    keywords = {name: value for name, value in keywords.items() if value is not None}
    if twice := sorted(given.keys() & keywords.keys()):
        raise InvalidInput(f"expected `{twice[0]}` once, got it as a keyword and in `effort`")
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
    """Certify a model behind randomized smoothing (Cohen et al. 2019): prediction and l2 radius of each image.

    Args:
        model: a module without the noise, or a name with it: "MODEL+smoothing:sigma=0.25".
        inputs: images in [0, 1], shape (N, C, H, W), or None for those of `data`.
        labels: ground truth, shape (N,).
        sigma: for a module, standard deviation of the noise, on pixels in [0, 1], a number or a fraction. A name
            contains its sigma.
        data: a name that `load_data` knows, in place of `inputs`, or None for "demo:imagenet".
        limit: largest number of images.
        n0: noise samples that select the class.
        n: noise samples that bound its probability.
        alpha: largest probability that the certificate of an image is wrong, in (0, 1).
        radius: l2 radii at which certified accuracy is reported, numbers or fractions, or None for 0 to 4 sigma.
        seed: random seed of the noise.
        device: device of a model given by its name.
        version: version of the model, as in `davylamp.evaluate`.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function, as for
            `corrupt_table`.
        **loading: settings of `Config` for a model loaded by name: isolate, request_rate, ...

    Returns:
        One row per radius. Its attribute `made` has the `Certificates` of the images.

    Raises:
        DavylampError: as `davylamp.engine.certify.certify`.
    """
    check_loading(certify, loading)
    asked: Any = model
    if isinstance(model, str):
        if sigma is not None:
            raise InvalidInput(
                f"give the noise in the name of the model or as `sigma`, got both: {model} and `sigma={sigma}`"
            )
        model = add_parts(model, version=version)
        asked, sigma = split_smoothed(model)
    if sigma is None:
        raise InvalidInput("a module needs `sigma`, the standard deviation of the noise; a name may contain it")
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
    """Return a note on samples with non-finite logits; "" if there are none."""
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
    """Find the smallest radius beyond which an attack fools no more images, by library (CANARY, section 3.2.1).

    Args:
        attack: a fixed-budget attack: "pgd", "foolbox:pgd".
        model: a module that returns logits for images in [0, 1], or a name that `load_model` knows.
        inputs: images in [0, 1], shape (N, C, H, W), or None for those of `data`.
        labels: ground truth, shape (N,).
        data: a name that `load_data` knows, in place of `inputs`, or None for "demo:imagenet".
        limit: largest number of images.
        norm: norm of the attack; None for the attack's first norm.
        epsilon: radii to try, numbers or fractions, or None for 9 around the usual one.
        threshold: largest difference between the highest rate of fooled images and the rate at the saturation radius.
        parameters: parameters of the attack by their canonical names. Others have the same values in all libraries.
        libraries: names of the libraries to use; empty for all.
        fixed: whether to include variants in which davylamp has fixed an issue of the library.
        seed: random seed.
        device: device of a model given by its name.
        version: version of the model, as in `davylamp.evaluate`.
        progress: whether to show a progress bar on a terminal, or a line in a notebook. Or a function, as for
            `corrupt_table`. It is called with the number of attacked images, summed over all radii.
        **loading: settings of `Config` for a model loaded by name: isolate, request_rate, ...

    Returns:
        One row per implementation. `notes` name the implementations that failed.

    Raises:
        DavylampError: as for `davylamp.engine.search_saturation_radius`, if no implementation can be run.
    """
    check_loading(saturation, loading)
    radii, seed, limit = read_numbers(epsilon, "epsilon"), read_seed(seed), read_limit(limit)
    given, threshold = read_mapping(parameters, "parameters by name"), read_number(threshold, "threshold")
    rows = rows_of(attack, read_list(libraries, "libraries as names", str), fixed=fixed)
    norm = norm or next(iter(rows[0].classes))
    rows = [row for row in rows if norm in row.classes]
    if not rows:
        raise InvalidInput(f"expected a norm that {attack} has, got {norm}")
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
    """Return a warning if there are fewer images than requested."""
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
    """Recompute a published table and compare it with the published numbers.

    Args:
        name: name of a table: "canary-table4", "FILE.py:TABLE"; `davylamp reproduce` lists them.
        quick: whether to compute a small part only, as a trial.
        full: whether to use the paper's budgets and number of images.
        published: whether to return the paper's numbers and run nothing. No other option may then be given.
        models: names, or modules by name, in place of the default models. A module whose name is the paper's name of a
            model replaces that model.
        data: a name or images and labels, in place of the default images.
        rows: your models and data by their names in the paper. A model of the paper maps to a name or a module. Its
            data set ("CIFAR-10", or "data" if the table does not name it) maps to a name or to images and labels. For
            these models, and for networks that the paper names, the result has the difference from the published
            number.
        limit: largest number of images.
        out: folder that stores the results and from which the call resumes, or None for a temporary one.
        device: device of the computation, or None for the CPU.
        seed: random seed.
        progress: called with an attack and the number of images just attacked.

    Returns:
        One row per number of the table. Its attribute `made` is the `PaperTable`: its method `print` compares it with
        the published numbers, and `grid` arranges it as in the paper. With `published`, one row per row of the paper.

    Raises:
        DavylampError: if the table cannot be recomputed; InvalidInput for an option that does not apply to the table.
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
        raise InvalidInput(f"{name} cannot be combined with `{option}`, because it runs no model")
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
    """Return the keyword `rows` with names only, and keywords `models` and `data` with the modules and images in it."""
    said, data_set, images = split_rows(rows)
    modules = {name: ours for name, ours in said.items() if not isinstance(ours, str)}
    given: dict[str, Any] = {"rows": {name: name if name in modules else ours for name, ours in rows.items()}}
    if modules:
        lent = models if isinstance(models, Mapping) else {}
        named = [name for name in said.values() if isinstance(name, str) and name not in lent]
        named += [] if lent else [*(models or ())]
        if named:
            raise InvalidInput(f"expected all models as modules or all as names, got modules and {named[0]}")
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
