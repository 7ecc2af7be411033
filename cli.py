"""The command line: lists the commands by name, and prints davylamp's errors as one line."""

import atexit
import os
import sys
import threading
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
    doctor,
    evaluate,
    gate,
    harden,
    import_export,
    merge,
    metrics,
    papers,
    quickstart,
    rank,
    report,
    reproduce,
    results,
    robust_accuracy,
    saturation,
    serve_model,
    server,
    standing,
    status,
)
from .commands.config_options import Command, with_options
from .commands.errors import close_output, explain, open_output, protected, refuse_empty
from .commands.examples import epilog_of
from .memory import keep_freed_memory, skip_final_gc

app = typer.Typer(
    help="Adversarial robustness of image classifiers: one attack, several libraries, one meaning for every parameter.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    """Handle the options that come before a command."""


COMMANDS = {
    "attacks": attacks.list_attacks,
    "metrics": metrics.list_metrics,
    "defences": defences.list_defences,
    "corruptions": corruptions.list_corruptions,
    "corrupt-table": corruptions.tabulate_corruptions,
    "robust-accuracy": robust_accuracy.measure_model,
    "compare": attacks.compare_libraries,
    "saturation": saturation.find_saturation,
    "evaluate": evaluate.evaluate_models,
    "challenge": challenge.challenge_defence,
    "certify": certify.certify_smoothed,
    "status": status.show_status,
    "table": results.show_table,
    "curve": results.show_curves,
    "check": check.check_results,
    "gate": gate.gate_results,
    "standing": standing.show_standing,
    "contract": contract.check_promises,
    "conformance": conformance.check_rows,
    "rank": rank.rank_subjects,
    "reproduce": reproduce.reproduce,
    "harden": harden.harden_model,
    "merge": merge.merge_results,
    "import": import_export.import_results,
    "export": import_export.export_results,
    "detectors": detectors.list_detectors,
    "train": detectors.train_beside,
    "detect": detectors.detect_examples,
    "report": report.report_results,
    "figure": papers.draw_figures,
    "cite": papers.cite_sources,
    "serve": report.serve_results,
    "serve-model": serve_model.serve_model,
    "work": server.work,
    "users": server.change_users,
    "backup": server.back_up,
    "restore": server.restore,
    "submit": server.submit,
    "tasks": server.list_tasks,
    "fetch": server.fetch,
    "verify": server.verify,
    "doctor": doctor.examine,
    "quickstart": quickstart.quickstart,
}
for _name, _function in COMMANDS.items():
    app.command(_name, cls=Command, epilog=epilog_of(_name))(with_options(_function))


def main() -> None:
    """Run the command line. Any error becomes one line and an exit code.

    The exit code is 1 if davylamp raised an error, nothing could be computed or a requirement is not met; 2 for wrong
    usage, or for warnings with --strict; 3 if there are too few images to decide a requirement; 70 for a bug; and 130
    after an interrupt. `DAVYLAMP_DEBUG=1` shows the traceback.
    """
    # Before torch is loaded: threads that wait spinning make a busy machine ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    keep_freed_memory()
    atexit.register(skip_final_gc)
    open_output()
    code: object = 0
    with protected():
        try:
            refuse_empty(sys.argv[1:])
            app()
        except SystemExit as stop:
            code = stop.code
        except (Exception, KeyboardInterrupt) as error:
            code = explain(error)
    code = close_output() or code
    if any(getattr(thread, "left", False) for thread in threading.enumerate()):  # by an attack; Python would wait
        sys.stderr.write("a thread started by an attack is still running; it ends with this process\n")
        atexit._run_exitfuncs()
        os._exit(code if isinstance(code, int) else bool(code))
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
