"""The command line program `davylamp`. It runs the commands, and prints errors as one line."""

import atexit
import os
import sys
import threading
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from . import __version__
from .commands import (
    attacks,
    certify,
    challenge,
    check,
    contract,
    corruptions,
    defences,
    detectors,
    doctor,
    evaluate,
    evidence,
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
from .commands.errors import close_output, explain, open_output, print_note, protected, refuse_empty
from .commands.examples import epilog_of
from .deprecation import current_command, printed
from .memory import keep_freed_memory, skip_final_gc


class Commands(TyperGroup):
    """Click group of all commands. A command's name has one or two words. Old names are accepted, too."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command. For each old name in its arguments or files, the new name is printed."""
        ctx.with_resource(printed(print_note))
        return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command named by the first arguments, and the other arguments.

        If only the first word of a command with two words is given, the commands that begin with this word are listed.
        """
        if ctx.resilient_parsing:  # a completion
            pair = " ".join(args[:2])
            name, rest = (pair, args[2:]) if pair in self.commands else (args[0], args[1:])
            first = len(args) == 1 and any(each.startswith(f"{name} ") for each in self.commands)
            return name, None if first else self.commands.get(name), rest  # a second word is completed by this group
        words = current_command(args, self.commands)
        group = [name for name in self.commands if words[0] not in self.commands and name.split()[0] == words[0]]
        if group and (len(words) == 1 or words[1] in ("-h", "--help")):
            for name in group:
                print(f"davylamp {name:18} {self.commands[name].get_short_help_str(80)}")  # noqa: T201 - the product
            raise typer.Exit
        if group:
            ctx.fail(f"no such command: {' '.join(words[:2])}; there are {', '.join(group)}")
        return super().resolve_command(ctx, words)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the completions: the next word of each command whose name begins with the words typed so far."""
        before = "".join(f"{word} " for word in (*ctx._protected_args, *ctx.args))
        items: dict[str, Any] = {}
        found = super().shell_complete(ctx, before + incomplete)
        if (command := self.commands.get(before.strip())) is not None:  # a first word that is a command as well
            with command.make_context(before.strip(), [], parent=ctx, resilient_parsing=True) as inside:
                arguments = [each for each in command.params if each.param_type_name == "argument"]
                found += [item for each in arguments[:1] for item in each.shell_complete(inside, incomplete)]
                found += command.shell_complete(inside, incomplete)
        for item in found:
            item.value = item.value.removeprefix(before).partition(" ")[0]
            items.setdefault(item.value, item)
        return [*items.values()]


app = typer.Typer(
    cls=Commands,
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
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """Handle the options before the command's name."""


PANELS = {
    "Start here": {
        "quickstart": quickstart.quickstart,
        "doctor": doctor.examine,
    },
    "Lists": {
        "attacks": attacks.list_attacks,
        "metrics": metrics.list_metrics,
        "defences": defences.list_defences,
        "corruptions": corruptions.list_corruptions,
        "detectors": detectors.list_detectors,
    },
    "Measure models, attacks and defences": {
        "robust-accuracy": robust_accuracy.measure_model,
        "evaluate": evaluate.evaluate_models,
        "compare": attacks.compare_libraries,
        "challenge": challenge.challenge_defence,
        "certify": certify.certify_smoothed,
        "corruptions run": corruptions.tabulate_corruptions,
        "saturation": saturation.find_saturation,
        "test-attack": contract.check_attacks,
        "fit": detectors.fit_beside,
        "detect": detectors.detect_examples,
        "harden": harden.harden_model,
        "reproduce": reproduce.reproduce,
    },
    "Results folders": {
        "status": status.show_status,
        "table": results.show_table,
        "curves": results.show_curves,
        "measure": check.measure_results,
        "check": check.check_results,
        "gate": gate.gate_results,
        "rank": rank.rank_subjects,
        "standing": standing.show_standing,
        "evidence": evidence.show_evidence,
        "report": report.report_results,
        "serve": report.serve_results,
        "figure": papers.draw_figures,
        "cite": papers.cite_sources,
        "merge": merge.merge_results,
        "import": import_export.import_results,
        "export": import_export.export_results,
        "verify": import_export.verify_verdict,
    },
    "Servers": {
        "serve-model": serve_model.serve_model,
        "server worker": server.work,
        "server users": server.change_users,
        "server backup": server.back_up,
        "server restore": server.restore,
        "server submit": server.submit,
        "server tasks": server.list_tasks,
        "server fetch": server.fetch,
        "server verify": server.verify,
    },
}
COMMANDS = {name: function for panel in PANELS.values() for name, function in panel.items()}
for _panel, _functions in PANELS.items():
    for _name, _function in _functions.items():
        app.command(_name, cls=Command, epilog=epilog_of(_name), rich_help_panel=_panel)(with_options(_function))


@cache
def program() -> Any:
    """Return the Click group of all commands. It is built at the first call."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the command line program. An error is printed as one line, and the process ends with an exit code.

    The exit codes are:

    - 1: davylamp raised an error, nothing could be computed, or a requirement is not met
    - 2: wrong usage, an error of `gate`, or warnings with --strict
    - 3: there are too few images to decide a requirement
    - 70: a bug in davylamp
    - 130: an interrupt

    With the environment variable `DAVYLAMP_DEBUG=1`, the traceback is printed, too.
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
            program()()
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
