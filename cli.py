"""The command line: every command by name, and an error of ours as one line."""

import os
import sys
from typing import Annotated

import typer

from . import __version__
from .commands import (
    attacks,
    certify,
    challenge,
    check,
    conformance,
    contract,
    corruptions,
    defences,
    detectors,
    evaluate,
    exchange,
    harden,
    merge,
    metrics,
    papers,
    rank,
    report,
    reproduce,
    results,
    saturation,
    serve_model,
    server,
)
from .commands.derived import DerivedCommand, unfinished
from .commands.failures import close_output, explain, open_output, refuse_empty
from .memory import keep_freed_memory

app = typer.Typer(
    help="Adversarial robustness of image classifiers: one attack, several libraries, one meaning for every parameter.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _say_version(asked: bool) -> None:
    if asked:
        print(f"davylamp {__version__}")  # noqa: T201 - the product
        raise typer.Exit


@app.callback()
def take_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


app.command("attacks")(attacks.list_attacks)
app.command("metrics")(metrics.list_metrics)
app.command("defences")(defences.list_defences)
app.command("corruptions")(corruptions.list_corruptions)
app.command("corrupt-table", cls=DerivedCommand)(unfinished(corruptions.tabulate_corruptions))
app.command("compare", cls=DerivedCommand)(unfinished(attacks.compare_libraries))
app.command("saturation", cls=DerivedCommand)(unfinished(saturation.find_saturation))
app.command("evaluate", cls=DerivedCommand)(unfinished(evaluate.evaluate_models))
app.command("challenge", cls=DerivedCommand)(unfinished(challenge.challenge_defence))
app.command("certify", cls=DerivedCommand)(unfinished(certify.certify_smoothed))
app.command("status")(evaluate.show_status)
app.command("table")(results.show_table)
app.command("curve")(results.show_curves)
app.command("check", cls=DerivedCommand)(unfinished(check.check_results))
app.command("contract")(contract.check_promises)
app.command("conformance")(conformance.check_rows)
app.command("rank")(rank.rank_subjects)
app.command("reproduce")(reproduce.reproduce)
app.command("harden", cls=DerivedCommand)(unfinished(harden.harden_model))
app.command("merge")(merge.merge_results)
app.command("import")(exchange.import_results)
app.command("export")(exchange.export_results)
app.command("detectors")(detectors.list_detectors)
app.command("train", cls=DerivedCommand)(unfinished(detectors.train_beside))
app.command("detect", cls=DerivedCommand)(unfinished(detectors.detect_examples))
app.command("report")(report.report_results)
app.command("figure")(papers.draw_figures)
app.command("cite")(papers.cite_sources)
app.command("serve")(report.serve_results)
app.command("serve-model", cls=DerivedCommand)(unfinished(serve_model.serve_model))
app.command("work")(server.work)
app.command("users")(server.change_users)
app.command("submit")(server.submit)
app.command("tasks")(server.list_tasks)
app.command("fetch")(server.fetch)
app.command("verify")(server.verify)
app.command("quickstart")(attacks.quickstart)


def main() -> None:
    """Run the command line; whatever goes wrong becomes one line and an exit code.

    1: an error of ours, or nothing could be computed; 2: wrong usage, or --strict; 70: a bug; 130: interrupted.
    `DAVYLAMP_DEBUG=1` shows the traceback.
    """
    # Before torch is loaded: threads that wait spinning make a busy machine ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    keep_freed_memory()
    open_output()
    code: object = 0
    try:
        refuse_empty(sys.argv[1:])
        app()
    except SystemExit as stop:
        code = stop.code
    except (Exception, KeyboardInterrupt) as error:
        code = explain(error)
    sys.exit(close_output() or code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
