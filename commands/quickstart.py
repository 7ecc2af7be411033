"""`davylamp quickstart`: an offline tour of davylamp on embedded models and images, in about half a minute."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from .table_options import Verbose

DATA, IMAGES = "demo:digits", 100
PLAIN, ROBUST = "demo:digits-cnn", "demo:digits-cnn-robust"
DEFENDED = f"{PLAIN}+bit-depth:bits=3"
MASKED = f"{DEFENDED},gradients=none"
LIBRARIES = ("art", "cleverhans", "foolbox", "torchattack", "torchattacks")
_NUMBERS = ("no", "one", "two", "three", "four", "five")
EPSILON = 0.1
SAME = {"steps": 20, "step_size": 0.0125, "random_start": False}  # matched parameters for all libraries


def quickstart(
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    out: Annotated[Path, typer.Option("--out", "-o", help="folder for the results and report.html")] = Path(
        "quickstart"
    ),
    verbose: Verbose = False,
) -> None:
    """Take a tour: compare PGD from five libraries, two small models, and a defence that only looks robust."""
    from ..api.evaluation import evaluate
    from ..report.text.console import open_page

    libraries = _installed()
    evaluation = evaluate(
        [PLAIN, ROBUST, DEFENDED, MASKED],
        data=DATA,
        limit=IMAGES,
        attacks=["pgd"],
        libraries=libraries,
        defaults=True,
        norm="linf",
        epsilon=EPSILON,
        seeds=[seed],
        device=device,
        out=out,
        progress=_begin,
    )
    if evaluation.attempted == len(evaluation.failed):
        raise typer.Exit(1)
    page = evaluation.report(out / "report.html")
    with open_page(verbose=verbose) as console:
        head = f"PGD inside linf {EPSILON:g} on {IMAGES} handwritten digits ({DATA}); seed {seed}, {device}"
        console.print(head)
        count = f"{_NUMBERS[len(libraries)]} {'library' if len(libraries) == 1 else 'libraries'}"
        console.print(f"1. One attack with the defaults of {count}, on {PLAIN}")
        _print_libraries(evaluation, console)
        if absent := [name for name in LIBRARIES if name not in libraries]:
            console.print(f"- not installed: {', '.join(absent)} (see `davylamp doctor`)")
        for line in (*_matched(libraries, seed, device), "", *_models(evaluation), "", *_masked(evaluation)):
            console.print(line)
        console.print(f"Report: {page}   (open it in a browser; it needs no network)")
        console.print("Next:")
        console.print(f"  davylamp robust-accuracy {ROBUST} --data {DATA} --limit 50")
        console.print(f"  davylamp check {quote(str(out))}")
        console.print("  davylamp compare cw")


def _installed() -> tuple[str, ...]:
    """Return the attack libraries of the tour that are installed. Raises MissingLibrary if none is installed."""
    from ..adapters.catalogue.lookup import find_library, require_library

    installed = tuple(name for name in LIBRARIES if find_library(name).is_installed)
    if not installed:
        require_library("foolbox")
    return installed


def _begin(evaluation: Any) -> Any:
    """Return the context manager that shows progress, after a check of the results folder.

    The folder must be new, or from a quickstart with the same seed. Otherwise the tables would mix results.
    """
    from ..engine import ResultsStore
    from ..errors import InvalidInput
    from ..report.text.progress import show_progress

    kept = set(ResultsStore(evaluation.folder).keys("cells"))
    if kept - {cell.key for cell in evaluation.plan.cells}:
        expected = "give a new folder for --out, or one from a quickstart with the same seed"
        raise InvalidInput(f"{evaluation.folder} contains different results; {expected}")
    return show_progress(evaluation.plan.images)


def _print_libraries(evaluation: Any, console: Any) -> None:
    """Print the fooling rate with each library's defaults, the lowest first, and warnings about too short steps."""
    from ..adapters.catalogue.lookup import IMPLEMENTATIONS, library_defaults
    from ..report.text.console import print_table

    passes = evaluation.to_frame().groupby("implementation")[["forwards", "backwards"]].median().sum(axis=1)
    rows = []
    for row in evaluation.table("pairs", metrics=["MR"]).rows:
        name, share = row.labels["implementation"], row.metrics["MR"]
        if row.labels["model"] == PLAIN and share.n:
            defaults = library_defaults(IMPLEMENTATIONS[name], "linf")
            chosen = [defaults.get(word, "-") for word in ("steps", "step_size")]  # "-": davylamp's defaults are used
            rows.append((share.value, [name, _shown(share), *chosen, int(passes[name])]))
    columns = ["implementation", "fooled [95 %]", "steps", "step size", "passes"]
    print_table("", columns, [cells for _, cells in sorted(rows, key=lambda each: each[0])], console)
    for warning in evaluation.warnings:
        console.print(f"- {warning}")


def _matched(libraries: Sequence[str], seed: int, device: str) -> Iterator[str]:
    from ..adapters.data.datasets import load_data
    from ..adapters.models.zoo.load import load_model
    from ..api.verbs import compare
    from ..engine.comparison.compare import verdict_groups

    images, labels, _ = load_data(DATA, limit=IMAGES)
    model = load_model(PLAIN, device)
    rules: dict[str, Any] = {"norm": "linf", "epsilon": EPSILON, "libraries": libraries, "seed": seed}
    matched = compare("pgd", model, images, labels, **rules, **SAME)
    shares = matched.to_frame()["MR"]
    ends = " to ".join(dict.fromkeys(f"{share:.2f}" for share in (shares.min(), shares.max())))
    yield f"With {SAME['steps']} steps of {SAME['step_size']} from the image in each library: fooling rate {ends}"
    yield from verdict_groups(matched)


def _models(evaluation: Any) -> Iterator[str]:
    rows = {row.labels["model"]: row.metrics for row in evaluation.table("models", metrics=["CA", "RA"]).rows}
    yield "2. Which model is more robust? Robust accuracy"
    for name in (PLAIN, ROBUST):
        yield f"{name + ':':24}{_shown(rows[name]['RA'])}, without an attack {_shown(rows[name]['CA'])}"
    apart = rows[ROBUST]["RA"].low > rows[PLAIN]["RA"].high
    yield (
        "The second, adversarially trained, is more robust: no overlap of the intervals"
        if apart
        else "The two intervals overlap, so more images are needed to tell"
    )


def _masked(evaluation: Any) -> Iterator[str]:
    """Yield lines about a defence through which no gradient passes, attacked without and with BPDA."""
    from ..engine.checks.check_folder import check_folder

    rows = {row.labels["model"]: row for row in evaluation.table("models", metrics=["RA", "MR"]).rows}
    masked, attacked = rows[MASKED], rows[DEFENDED].metrics["RA"]
    invalid, worst, fooled = masked.labels["violations"], masked.metrics["RA"], masked.metrics["MR"]
    failed = [check for check in check_folder(evaluation.folder, models=[MASKED]) if check.state == "fail"]
    yield f"3. A defence that only looks robust: {DEFENDED}"
    yield f"No gradient passes through it, and PGD fools {fooled.value:.2f}, but {invalid} results are invalid:"
    yield f"robust accuracy is between {worst.low:.2f} and {worst.high:.2f}"
    yield f"Failure indicators: {', '.join(dict.fromkeys(check.title for check in failed)) or 'none failed'}"
    yield f"With approximated gradients (BPDA): {_shown(attacked)}"


def _shown(share: Any) -> str:
    return f"{share.value:.2f} [{share.low:.2f}, {share.high:.2f}]"
