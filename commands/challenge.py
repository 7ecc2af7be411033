"""Command that evaluates a defence with adaptive attacks."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .config_options import Given
from .input_options import InputOptions
from .loading import LOADING, loading_keywords
from .options import Data, Epsilon, Json, Latex, LatexWords, latex_style, one_format, split_models
from .table_options import TableOptions


def challenge_defence(
    *,
    model: Annotated[str, typer.Argument(help="MODEL+DEFENCE, or an adversarially trained model")],
    seen: InputOptions,
    data: Data = "demo:imagenet",
    limit: Annotated[int | None, typer.Option(min=1, help="use at most this many images")] = None,
    norm: Annotated[str, typer.Option(help="norm of the perturbation: linf or l2")] = "linf",
    epsilon: Epsilon = None,
    original: Annotated[
        str | None, typer.Option(help="the undefended model, if the name of the defended model does not contain it")
    ] = None,
    surrogate: Annotated[
        list[str] | None, typer.Option(help="also transfer examples from this model (repeatable)")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="quick trial with 10 images and 10 steps")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="iterations of the gradient attacks (default: 50)")] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="queries of each black-box attack (default: 1000); for a randomised model, a query has --eot samples",
        ),
    ] = None,
    eot: Annotated[
        int | None,
        typer.Option(min=1, help="randomised models: gradients are averaged over this many samples (default: 10)"),
    ] = None,
    judge_samples: Annotated[
        int | None,
        typer.Option(min=1, help="randomised models: an example is judged on this many samples (default: 20)"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    how: Annotated[Given, LOADING],
    out: Annotated[Path, typer.Option("--out", "-o", help="folder for the results and challenge.html")] = Path(
        "challenge"
    ),
    view: TableOptions,
    as_latex: Latex = False,
    latex_words: LatexWords = None,
    as_json: Json = False,
) -> None:
    """Attack a defence with adaptive attacks, print whether it holds, and write an HTML page."""
    from ..adapters.paths import expand_path
    from ..api.measuring import challenge
    from ..report.page.build import build_report, write_file
    from ..report.text.challenge import attempt_text, print_challenge
    from ..report.text.console import print_error

    form, style = one_format({"latex": as_latex, "json": as_json}), latex_style(latex_words)
    view.check(form)
    document = challenge(
        seen.of(model),
        data=data,
        original=original,
        surrogates=split_models(surrogate) or (),
        out=out,
        norm=norm,
        epsilon=epsilon,
        limit=limit,
        quick=quick,
        steps=steps,
        queries=queries,
        eot=eot,
        judge_samples=judge_samples,
        seed=seed,
        device=device,
        progress=lambda attempt: print_error(attempt_text(attempt)),
        **loading_keywords(how),
    ).to_dict()
    page = write_file(build_report(out), expand_path(out) / "challenge.html")
    if form == "latex":
        from ..report.text.latex_documents import challenge_latex

        print(challenge_latex(document, style), end="")  # noqa: T201 - the product
    elif form == "json":
        print(json.dumps({**document, "page": str(page)}, indent=2))  # noqa: T201 - standard output is the product
    else:
        with view.open() as console:
            print_challenge(document, str(page), console)
