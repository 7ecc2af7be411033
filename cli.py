"""The command line: every command by name, and an error of ours as one line."""

import os
import sys

import typer

from .commands import attacks, check, evaluate, rank, report, reproduce, results
from .errors import DavylampError

app = typer.Typer(
    help="Adversarial robustness of image classifiers: one attack, several libraries, one meaning for every parameter.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("attacks")(attacks.list_attacks)
app.command("compare")(attacks.compare_libraries)
app.command("evaluate")(evaluate.evaluate_models)
app.command("status")(evaluate.show_status)
app.command("table")(results.show_table)
app.command("curve")(results.show_curves)
app.command("check")(check.check_results)
app.command("rank")(rank.rank_subjects)
app.command("reproduce")(reproduce.reproduce)
app.command("report")(report.report_results)
app.command("serve")(report.serve_results)
app.command("quickstart")(attacks.quickstart)


def main() -> None:
    """Run the command line; an error of ours becomes one line and exit code 1."""
    # Before torch is loaded: threads that wait spinning make a busy machine ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except DavylampError as error:
        print(f"davylamp: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
