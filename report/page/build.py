"""Builds the HTML report of a results folder: first the sections, then the page from a template."""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

from ... import __version__
from ...engine.challenge.challenge_result import read_documents
from ...engine.checks.check_folder import check_folder
from ...engine.checks.verdicts import verdicts_of
from ...engine.store.atomic_files import write_atomic
from ...engine.tables.budget_curves import build_curves
from ...engine.tables.distance_curves import build_distance_curves, has_curves
from ...engine.tables.estimates import RunReplicates
from ...engine.tables.implementation_notes import about_cells
from ...engine.tables.table import build_table
from ...engine.tables.transfer_table import build_transfer
from ...errors import Unavailable, Unsupported
from ...metrics import default_symbols
from ..parts.blocks import Section
from ..parts.report_data import read_folder
from ..sections.agreement import write_agreement
from ..sections.corruptions import write_corruptions
from ..sections.cost import write_cost
from ..sections.curves import write_curves
from ..sections.defences import write_challenges, write_defences, write_detectors
from ..sections.failure_indicators import write_trust
from ..sections.folder_comparison import list_differences
from ..sections.gallery import write_gallery, write_hardness
from ..sections.leaderboard import present_symbols, write_leaderboard, write_metrics
from ..sections.provenance import write_glossary, write_provenance
from ..sections.ranking import write_ranking
from ..sections.transfer import write_transfer
from ..sections.verdict import write_verdict
from ..text.fit_to_terminal import short_name

Value = TypeVar("Value")


def build_report(folder: str | PathLike[str], *, bootstrap: int = 1000, seed: int = 0) -> str:
    """Build the report of a results folder as one self-contained HTML document.

    Args:
        folder: results folder of `davylamp evaluate`.
        bootstrap: number of bootstrap replicates for the intervals.
        seed: random seed of the resampling.

    Raises:
        Unavailable: If there is no such folder, or it has no finished run.
        StoreMismatch: If the folder has an unsupported format.
        MissingLibrary: If Matplotlib is not installed.
    """
    return render("Robustness report", list_sections(folder, bootstrap=bootstrap, seed=seed), source=fspath(folder))


def list_sections(path: str | PathLike[str], *, bootstrap: int = 1000, seed: int = 0) -> list[Section]:
    """Build the sections of a report in order. Sections without content are omitted.

    Args:
        path: results folder.
        bootstrap: number of bootstrap replicates for the intervals.
        seed: random seed of the resampling.

    Raises:
        Unavailable: If there is no such folder, or it has no finished run.
    """
    corrupted = write_corruptions(path, bootstrap=bootstrap, seed=seed)
    try:
        folder = read_folder(path)
    except Unavailable:  # no attack was run here
        if corrupted is None:
            raise
        return [corrupted, write_glossary()]
    outcomes = folder.outcomes
    if not outcomes.done:
        reasons = "; ".join(f"{cell.title}: {reason}" for cell, reason in outcomes.failed[:3])
        raise Unavailable(f"no finished runs in {path}: {len(outcomes.failed)} failed ({reasons})")
    drawing: dict[str, Any] = {"bootstrap": bootstrap, "seed": seed}
    symbols = present_symbols(folder)
    drawn = RunReplicates(
        bootstrap, seed, kept={*default_symbols("attacks"), *default_symbols("models")}
    )  # replicates shared by the tables
    pairs = build_table(outcomes, by="pairs", metrics=symbols, drawn=drawn)  # first: it loads the data of the others
    attacks, models = (build_table(outcomes, by=by, drawn=drawn) for by in ("attacks", "models"))
    del drawn
    about, checks = about_cells(each.cell for each in outcomes.done), check_folder(outcomes)
    judged = verdicts_of(outcomes)
    defences = write_defences(outcomes, **drawing)
    challenged = write_challenges(read_documents(path))
    detected = write_detectors(outcomes)
    sections = (
        challenged,
        write_verdict(folder, models, judged, checks),
        write_ranking(folder, seed=seed),
        write_agreement(folder, judged, about),
        write_leaderboard(pairs),
        defences,
        detected,
        write_curves(
            _or_none(lambda: build_curves(outcomes, **drawing)),
            _or_none(lambda: build_curves(outcomes, against="queries", **drawing)),
            build_distance_curves(outcomes) if has_curves(outcomes) else None,
            order=folder.models_in_order,
        ),
        corrupted,
        write_transfer(_or_none(lambda: build_transfer(outcomes, **drawing))),
        write_metrics(attacks, models, pairs, folder),
        write_gallery(folder, judged),
        write_hardness(folder),
        write_cost(folder),
        write_trust(checks),
        write_provenance(folder, __version__),
        write_glossary(),
    )
    return [section for section in sections if section is not None]


def write_file(text: str, path: str | Path) -> Path:
    """Write a page to a file atomically, and return the path. An existing file is replaced.

    Raises:
        Unavailable: If the file cannot be written, or its folder does not exist.
    """
    return write_atomic(path, text)


def build_differences(a: str | Path, b: str | Path) -> str:
    """Build a comparison of two results folders as one self-contained HTML document.

    Raises:
        Unavailable: If a folder does not exist, or the two folders have no finished run in common.
    """
    return render("What moved", list_differences(a, b), source=f"{a} and {b}")


def render(title: str, sections: list[Section], *, source: str) -> str:
    """Return sections as an HTML page. All content of the sections is escaped.

    Args:
        title: page title.
        sections: sections in order.
        source: path of the results folder, or of both folders, which is shown on the page.
    """
    page = _environment().get_template("template.html")
    return page.render(title=title, sections=sections, source=source, version=__version__)


@cache
def _environment() -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup, escape

    def load(name: str) -> str:
        return files(__package__ or "").joinpath(name).read_text(encoding="utf-8")

    made = Environment(
        loader=FunctionLoader(load), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["prose"] = lambda text: Markup(
        _keep_together(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(short_name(text)))))
    )
    made.filters["short"] = short_name
    made.filters["breaks"] = lambda text: Markup(
        re.sub(r"([_:./-])(?=[^\W\d])", r"\1<wbr>", str(escape(short_name(text))))
    )
    made.globals["asset"] = lambda name: Markup(load(name))
    return made


def _keep_together(text: str) -> str:
    """Put no-break spaces between a number and its per cent sign, and around the equals sign after "p"."""
    return re.sub(r"\bp = ", "p\u00a0=\u00a0", re.sub(r"(\d) %", "\\1\u00a0%", text))


def _or_none(build: Callable[[], Value]) -> Value | None:
    """Return the result of `build`, or None if the folder does not support it."""
    try:
        return build()
    except Unsupported:
        return None
