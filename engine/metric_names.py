"""Metrics by any name that they have, and the command that gives each."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from ..errors import UnknownName
from ..metrics import METRICS, names_of, symbols_named
from .measure_groups import GROUP_OF, known_groups

TARGETED = ("TAS", "QI_Wup_T", "QI_Vis_T")
_NEEDS = {
    **{symbol: f"--metric {group}" for symbol, group in GROUP_OF.items()},
    **dict.fromkeys(TARGETED, "a targeted attack: --target"),
    "OTR": "--transfer full",
    "D_half": "an attack for the smallest change: best(...)",
}
_SEQUENCES = {"FP": " --sequence all", "mFR": " --sequence all --baseline MODEL"}


class Access(NamedTuple):
    """How a metric is had: what `davylamp evaluate` must be asked for ("": nothing), and the command that shows it."""

    needs: str
    shown_by: str


def access_of(symbol: str) -> Access:
    """How a metric is had from the command line."""
    group, needs = METRICS[symbol].group, _NEEDS.get(symbol, "")
    if group == "corruption":
        return Access("", f"davylamp corrupt-table MODELS{_SEQUENCES.get(symbol, '')}")
    rows = " --by models" if symbol == "RA" else ""
    rows = " --defence ORIGINAL DEFENDED" if group.startswith("defence") else rows
    profile = " --profile DATA" if GROUP_OF.get(symbol) == "coverage" else ""
    return Access(needs + profile, f"davylamp table FOLDER{rows} --metric")


def resolve_symbols(names: Sequence[str], others: Iterable[str] = ()) -> tuple[str, ...]:
    """The symbols that names mean: "mr" and "SSIM" one, a family such as "AND" all of its metrics.

    Args:
        names: symbols, aliases, titles, in any case; "@" and a parameter may follow.
        others: symbols beside the metrics, as RA_mean and l2.

    Returns:
        Symbols without repetition, in that order; a name that means nothing stays as it is.
    """
    known = {name.casefold(): name for name in others}
    chosen: list[str] = []
    for name in names:
        base, at, value = name.partition("@")
        whole = symbols_named(name) or [each for each in [known.get(name.casefold())] if each]
        parts = [f"{each.partition('@')[0]}@{value}" for each in symbols_named(base)] if at else []
        chosen += whole or parts or [name]
    return tuple(dict.fromkeys(chosen))


def find_metrics(name: str, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The symbols that one name means.

    Args:
        name: symbol, alias or title, in any case.
        others: symbols beside the metrics, as RA_mean and l2.

    Raises:
        UnknownName: if it means nothing.
    """
    others = tuple(others)
    symbols = symbols_named(name) or tuple(each for each in others if each.casefold() == name.strip().casefold())
    if not symbols:
        raise unknown_metric(name, others)
    return tuple(symbols)


def unknown_metric(name: str, others: Iterable[str] = ()) -> UnknownName:
    """The error of a name that no metric has, with the nearest symbols or the command that lists them."""
    symbols = {text.casefold(): text for text in (*METRICS, *others)}
    called = {text.casefold(): symbol for symbol, each in METRICS.items() for text in names_of(each)}
    wanted = name.strip().casefold()
    near = [symbols[text] for text in get_close_matches(wanted, symbols)]
    near = near or list(dict.fromkeys(called[text] for text in get_close_matches(wanted, called)))
    return UnknownName("metric", name, [], meant=" or ".join(near), hint="davylamp metrics lists them")


def unknown_measure(kind: str, name: str) -> UnknownName:
    """The error of what an evaluation cannot be asked to measure; a metric's name gets the way to that metric."""
    symbols = symbols_named(name)
    if not symbols:
        return UnknownName(kind, name, known_groups())
    group = GROUP_OF.get(symbols[0], "")
    access = access_of(symbols[0])
    needs = f" (with {access.needs})" if access.needs else ""
    hint = f"{symbols[0]} needs no group{needs}: {access.shown_by}"
    return UnknownName(kind, name, [], meant=group, hint=f"{hint} {symbols[0]}" if "--metric" in hint else hint)
