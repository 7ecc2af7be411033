"""Command that certifies a model with randomised smoothing."""

import json
from typing import Annotated, Any

import typer

from ..report.text.progress import show_progress
from .config_options import Given
from .input_options import InputOptions
from .loading import LOADING, loading_keywords, tell
from .options import Data, Json, Latex, LatexWords, latex_style, one_format, split_list
from .table_options import TableOptions


def certify_smoothed(
    *,
    model: Annotated[str, typer.Argument(help="the smoothed model: MODEL+smoothing:sigma=0.25")],
    seen: InputOptions,
    data: Data = "demo:imagenet",
    limit: Annotated[int | None, typer.Option(min=1, help="use at most this many images")] = None,
    n0: Annotated[int, typer.Option(min=1, max=10**7, help="noise samples that select the class")] = 100,
    n: Annotated[int, typer.Option(min=1, max=10**7, help="noise samples that bound the class's probability")] = 1000,
    alpha: Annotated[float, typer.Option(help="largest probability that the certificate of an image is wrong")] = 0.001,
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
    """Certify predictions with randomised smoothing (Cohen et al. 2019): the l2 radius in which each is constant."""
    from ..api.measuring import certify

    form, style = one_format({"latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    noise: dict[str, Any] = {"n0": n0, "n": n, "alpha": alpha, "seed": seed}
    noise["radius"] = split_list("--radius", radius)
    where = {"data": data, "limit": limit, "device": device, "progress": show_progress}
    done = certify(seen.of(model), **where, **noise, **loading_keywords(how))
    for note in done.notes:
        tell(note)
    if form == "latex":
        from ..report.text.latex_documents import certified_latex

        print(certified_latex(done.document, done.rows, style), end="")  # noqa: T201 - the product
    elif form == "json":
        print(json.dumps(done.to_dict(), indent=2))  # noqa: T201 - the product
    else:
        from ..report.text.console import print_table

        images = [
            [
                row["image"],
                row["label"],
                "abstains" if row["predicted"] is None else row["predicted"],
                "-" if row["predicted"] is None else f"{row['radius']:.4g}",
            ]
            for row in done.document["images"]
        ]
        shares = [
            [f"{row['radius']:g}", f"{row['accuracy']:.3f}", f"{row['low']:.2f} - {row['high']:.2f}", row["n"]]
            for row in done.rows
        ]
        with view.open() as console:
            print_table(done.headline, ("l2 radius", "accuracy", "95 % interval", "n"), shares, console)
            print_table("Images", ("image", "label", "predicted", "certified l2 radius"), images, console)
