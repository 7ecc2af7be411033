"""The command that certifies a smoothed model: the radius within which each prediction provably stays."""

import json
from typing import Annotated, Any

import typer

from .config_options import Given
from .input_options import InputOptions
from .loading import LOADING, loading_from, say_traffic
from .options import Data, Json, Latex, LatexWords, latex_style, one_format, split_list
from .progress import show_progress
from .table_options import TableOptions


def certify_smoothed(
    *,
    model: Annotated[str, typer.Argument(help="the smoothed model: MODEL+smoothing:sigma=0.25")],
    seen: InputOptions,
    data: Data = "demo:imagenet",
    limit: Annotated[int | None, typer.Option(min=1, help="use at most this many images")] = None,
    first: Annotated[int, typer.Option(min=1, max=10**7, help="noise samples that select the class (n0)")] = 100,
    draws: Annotated[int, typer.Option(min=1, max=10**7, help="noise samples that bound its probability (n)")] = 1000,
    alpha: Annotated[float, typer.Option(help="probability that a certificate is wrong")] = 0.001,
    radius: Annotated[
        list[str] | None, typer.Option(help="l2 radius at which certified accuracy is reported (repeatable)")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="random seed of the noise")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    view: TableOptions,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Certify a model behind randomized smoothing (Cohen et al. 2019): prediction and l2 radius of each image."""
    from ..adapters.data.datasets import load_data_for
    from ..adapters.models.images import check_labels
    from ..adapters.parameters import parse_number
    from ..engine.certify import certified_accuracy, certify, check_radii, count_classes, split_smoothed

    form, style = one_format({"latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    name, sigma = split_smoothed(seen.of(model))
    radii = tuple(parse_number(text, "radius") for text in split_list("--radius", radius) or [])
    check_radii(radii)
    classifier = loading_from(how, [name]).load(name, device)
    images = load_data_for(classifier, data, limit)
    classes = count_classes(classifier, images.inputs.to(classifier.device))
    check_labels(images.labels, len(images.labels), classes)
    with show_progress(len(images.labels)) as progress:
        certificates = certify(
            classifier,
            images.inputs.to(classifier.device),
            sigma=sigma,
            first=first,
            draws=draws,
            alpha=alpha,
            seed=seed,
            progress=lambda count: progress(name, count),
        )
    say_traffic([classifier])
    lines = certified_accuracy(certificates, images.labels, radii or tuple(sigma * step for step in range(5)))
    columns = (images.names, images.labels.tolist(), *(values.tolist() for values in certificates))
    rows: list[dict[str, Any]] = [
        dict(zip(("image", "label", "predicted", "radius", "chance", "not_finite"), row, strict=True))
        for row in zip(*columns, strict=True)
    ]
    for row in rows:
        row["predicted"] = None if row["predicted"] < 0 else row["predicted"]
    _say_not_finite(rows, first + draws)
    settings = {"model": model, "data": data, "sigma": sigma, "first": first, "draws": draws, "alpha": alpha}
    if form == "latex":
        from ..report.text.latex_documents import certified_latex

        print(certified_latex(settings, lines, style), end="")  # noqa: T201 - the product
        return
    if form == "json":
        accuracy = [line._asdict() for line in lines]
        document = {**settings, "seed": seed, "images": rows, "certified_accuracy": accuracy}
        print(json.dumps(document, indent=2))  # noqa: T201 - the product
        return
    with view.open() as console:
        _print(settings, rows, lines, console)


def _print(settings: dict[str, Any], rows: list[dict[str, Any]], lines: list[Any], console: Any) -> None:
    from ..report.text.console import print_table

    shown = [
        [
            row["image"],
            row["label"],
            "abstains" if row["predicted"] is None else row["predicted"],
            "-" if row["predicted"] is None else f"{row['radius']:.4g}",
        ]
        for row in rows
    ]
    title = "{model} on {data}: noise {sigma:g}, {first} + {draws} draws, alpha {alpha:g}".format(**settings)
    print_table(title, ("image", "label", "predicted", "certified l2 radius"), shown, console)
    table = [
        [f"{line.radius:g}", f"{line.accuracy:.3f}", f"{line.low:.2f} - {line.high:.2f}", line.n] for line in lines
    ]
    print_table("Certified accuracy", ("l2 radius", "accuracy", "95 % interval", "n"), table, console)


def _say_not_finite(rows: list[dict[str, Any]], draws: int) -> None:
    """A line about the draws that the model had no finite answer for."""
    from ..report.text.console import print_error

    of = [row for row in rows if row["not_finite"]]
    if of:
        count = sum(row["not_finite"] for row in of)
        print_error(
            f"- {count} of {draws * len(rows)} draws have logits that are NaN or infinite, of {len(of)} of "
            f"{len(rows)} images: they stand for no class and stay among the draws"
        )
