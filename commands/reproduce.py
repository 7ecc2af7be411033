"""The command that reproduces published tables: a name, a module of `benchmarks`, ours beside theirs."""

import inspect
import json
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput, Unavailable, UnknownName
from .options import Json

# A module has `run(*, quick=False, seed=0) -> dict` and `print_result(result, console)`; it is loaded when asked for.
# One that runs models also takes the options of `benchmarks.shared.reproduction.Options`.
REPRODUCTIONS = {
    "checks": ("shared.paper_checks", "the papers' tables against each other, their text and their equations"),
    "canary-table4": ("canary.table4", "what CANARY's attacks achieve"),
    "canary-table5": ("canary.table5", "what CANARY's attacks cost"),
    "canary-table6": ("canary.table6", "transfer of four attacks between the models"),
    "canary-table7": ("canary.table7", "the models on clean images"),
    "canary-table8": ("canary.table8", "the models under white-box and black-box attacks"),
    "canary-table9": ("canary.table9", "IRT scores and ranks of 15 models, from Tables 7 and 8"),
    "aisafety-table2": ("aisafety.table2", "accuracy under white-box attacks"),
    "aisafety-table3": ("aisafety.table3", "accuracy under black-box attacks"),
    "aisafety-table4": ("aisafety.table4", "what defences change on clean images"),
    "aisafety-table5": ("aisafety.table5", "distances to the decision boundary"),
    "aisafety-table6": ("aisafety.table6", "neuron coverage of adversarial test sets, CIFAR-10"),
    "aisafety-table7": ("aisafety.table7", "neuron coverage of adversarial test sets, SVHN"),
    "aisafety-table8": ("aisafety.table8", "visibility of adversarial test sets, CIFAR-10"),
    "aisafety-table9": ("aisafety.table9", "visibility of adversarial test sets, SVHN"),
    "fooling-table1": ("fooling.table1", "area under the curves of FR@K"),
    "fooling-figures": ("fooling.figures", "FR@K, QI-Wup and QI-Vis"),
    "robic-figure1": ("robic.figure1", "half-distortion of black-box attacks against queries"),
    "robic-figure2": ("robic.figure2", "half-distortion of white-box attacks against iterations"),
    "robic-table2": ("robic.table2", "accuracy and half-distortion of models"),
    "hikdeepsec-table1": ("hikdeepsec.table1", "a defended model on adversarial examples, CIFAR-10"),
    "hikdeepsec-table2": ("hikdeepsec.table2", "a defended model on adversarial examples, SVHN"),
}


def reproduce(  # noqa: PLR0913, PLR0917 - one argument per option
    name: Annotated[str | None, typer.Argument(help="of a reproduction; without it they are listed")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a small part: does it run?")] = False,
    full: Annotated[bool, typer.Option("--full", help="the paper's own budgets and number of images")] = False,
    models: Annotated[list[str] | None, typer.Option(help="instead of the default ones (repeatable)")] = None,
    data: Annotated[str | None, typer.Option(help="instead of the default images; digits: scikit-learn's")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="only this many images")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="keep the results here and resume from them")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of every random choice")] = 0,
    as_json: Json = False,
) -> None:
    """Compute a published table again and set it beside the published numbers."""
    from ..report.text.console import make_console, print_table

    if name is None:
        rows = [(key, title) for key, (_, title) in REPRODUCTIONS.items()]
        if as_json:
            print(json.dumps(dict(rows), indent=1))  # noqa: T201 - standard output is the product
        else:
            print_table("", ("name", "what"), rows, make_console())
        return
    if name not in REPRODUCTIONS:
        raise UnknownName("reproduction", name, REPRODUCTIONS)
    if quick and full:
        raise InvalidInput("expected --quick or --full, got both")
    module = import_module(f"..benchmarks.{REPRODUCTIONS[name][0]}", __package__)
    asked = {"full": full or None, "models": models, "data": data, "limit": limit, "out": out, "device": device}
    given: dict[str, Any] = {option: value for option, value in asked.items() if value is not None}
    known = inspect.signature(module.run).parameters
    for option in given:
        if option not in known and "options" not in known:
            raise InvalidInput(f"expected {name} without --{option}, got it: {name} runs no model")
    with make_console(stderr=True).status("starting") as status:
        watch = {"progress": lambda attack, _: status.update(attack)} if "options" in known else {}
        result = module.run(quick=quick, seed=seed, **given, **watch)
    if as_json:
        print(json.dumps(result, indent=1, allow_nan=False))  # noqa: T201
    else:
        module.print_result(result, make_console())
    failed = [note for note in result.get("notes", ()) if str(note).startswith("failed")]
    if failed and not result.get("lines"):
        raise Unavailable(f"expected results of {name}, got none: {failed[0]}")
