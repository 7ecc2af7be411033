"""Renders the command reference: arguments and options of every command, as in `--help`."""

from typing import Any

from page_parts import prose, table

from davylamp import cli


def render() -> str:
    """Render the page."""
    commands: dict[str, Any] = cli.program().commands  # type: ignore[attr-defined]
    made = {name: listed.make_context(name, [], resilient_parsing=True).command for name, listed in commands.items()}
    text = prose("""
        # Commands

        `davylamp COMMAND --help` prints the options, with examples. Repeatable options also take a list with commas.
        Most commands are functions in Python as well: [`davylamp`](api/davylamp.md). How they end: [exit
        codes](../exit-codes.md).
    """)
    text += table(
        ["command", "what it does"],
        [[f"[`{name}`](#davylamp-{name.replace(' ', '-')})", _summary(each)] for name, each in made.items()],
    )
    for name, command in made.items():
        shown = [parameter for parameter in command.params if parameter.name != "help"]
        lines = [[_name(each), _type(each), (each.help or "").strip(), _default(each)] for each in shown]
        text += f"\n## `davylamp {name}`\n\n{(command.help or '').strip()}\n\n"
        text += table(["option", "value", "meaning", "default"], lines)
    return text


def _summary(command: Any) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).upper()}`"
    return ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))


def _type(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    if hasattr(parameter, "bare_type"):  # Typer 0.20 and later
        return parameter.bare_type()
    several = parameter.multiple if parameter.param_type_name == "option" else parameter.nargs != 1
    return f"list[{parameter.type.name}]" if several else parameter.type.name


def _default(parameter: Any) -> str:
    value = parameter.default
    return "" if value in (None, False, "", ()) or callable(value) else f"`{value}`"
