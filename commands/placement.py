"""`davylamp rank NEW --against BASELINE`: newcomers among the subjects of a baseline."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import DavylampError, InvalidInput, as_invalid_input

PUBLISHED = "published:"  # before the name of a table that comes with davylamp
_OPTIONS = {"budget": "epsilon", "scoring": "method", "model": "item-model", "method": "fit"}  # by keyword in Python
_OPTIONS |= {name: name for name in ("subjects", "norm", "knowledge", "per", "unequal", "original", "examples")}
_KEYWORD = re.compile(rf"`({'|'.join(_OPTIONS)})`|\b({'|'.join(_OPTIONS)})=('[\w-]*'|[A-Z]+)")


def in_options(lines: Iterable[str]) -> tuple[str, ...]:
    """What rankings say in Python's words, in those of the command: "--epsilon" for "`budget`"."""

    def option(keyword: re.Match[str]) -> str:
        value = (keyword[3] or "").strip("'")
        return f"--{_OPTIONS[keyword[1] or keyword[2]]} {value}".rstrip()

    return tuple(_KEYWORD.sub(option, line) for line in lines)


@contextmanager
def refused_in_options() -> Iterator[None]:
    """The rules of rankings stand in Python; what breaks one is named here by the option that it was typed for."""
    try:
        with as_invalid_input():
            yield
    except DavylampError as error:
        error.args = in_options(map(str, error.args))
        raise


def reworded(shown: Any) -> Any:
    """A `Ranked` or `Placed` whose notes name the command's options."""
    if hasattr(shown, "placements"):
        placements = tuple(replace(each, notes=in_options(each.notes)) for each in shown.placements)
        return replace(shown, placements=placements, notes=in_options(shown.notes))
    ranking = replace(shown.ranking, notes=in_options(shown.ranking.notes))
    return replace(shown, ranking=ranking, notes=in_options(shown.notes))


def place_folder(folder: Path, against: str, chosen: Any, options: dict[str, Any]) -> Any:
    """Per image: every subject that the baseline lacks, among those of the baseline.

    Args:
        folder: of the new subjects.
        against: the folder of the baseline.
        chosen: which results, `RankedResults`.
        options: of `rankings.place_images`.
    """
    from ..api.rankings import place_images
    from ..report.text.ranking import Placed

    placements, notes = place_images(folder, against, chosen, **options)
    return Placed(f"{folder} against {against}", placements, notes)


def place_metrics(folder: Path, against: str, subjects: Any, chosen: dict[str, Any], seed: int) -> Any:
    """As CANARY: every row of metrics that the baseline lacks, among those of the baseline.

    Args:
        folder: of the newcomers, or a CSV table of metrics.
        against: folder or table of the baseline, or a published one.
        subjects: what is placed.
        chosen: of `build_layers`: norm, knowledge, per, original.
        seed: random seed of every draw.
    """
    from ..benchmarks.canary.table9 import PUBLISHED as TABLES
    from ..benchmarks.canary.table9 import published_baseline
    from ..report.text.ranking import Placed
    from ..scoring import VIEWS, place_row

    new = _read_layer(folder, subjects, chosen, least=1)
    notes: list[str] = [*new.notes]
    if against.startswith(PUBLISHED):
        name = against.removeprefix(PUBLISHED)
        values, names, metrics = published_baseline(name, chosen["knowledge"])
        if subjects != TABLES[name]:
            raise InvalidInput(f"expected --subjects {TABLES[name]} with {against}, got {subjects}")
        notes.append(f"{against} is over the images and attacks of the paper: as far as yours differ, so do the means")
    else:
        matrix = _read_layer(Path(against), subjects, chosen)
        values, names, metrics = matrix.frame.to_numpy(), list(matrix.frame.index), list(matrix.frame.columns)
        notes += [note for note in matrix.notes if note not in notes]
    unknown = [symbol for symbol in new.frame.columns if symbol not in metrics]
    notes += [f"left out: {', '.join(unknown)}: the baseline lacks them"] if unknown else []
    both = [name for name in new.frame.index if name in names]
    notes += [f"left out: {', '.join(both)}: the baseline has them"] if both else []
    rows = new.frame.drop(index=both).reindex(columns=metrics)
    if rows.empty:
        raise InvalidInput(f"expected {subjects} that {against} lacks, got none")
    options = {"view": VIEWS[subjects], "seed": seed}
    answers = dict(zip(map(str, rows.index), rows.to_numpy(dtype=float), strict=True))
    placements = [place_row(values, names, metrics, row, name, **options) for name, row in answers.items()]
    return Placed(f"{folder} against {against}", tuple(placements), tuple(notes))


def _read_layer(folder: Path, subjects: Any, chosen: dict[str, Any], least: int = 2) -> Any:
    """A table of metrics of the attacks that were chosen, white-box where none were; a note says which."""
    from ..engine.tables.metric_matrix import build_layers
    from ..scoring import VIEWS, metrics_of

    layers = build_layers(folder, subjects, metrics_of(VIEWS[subjects]), least=least, **chosen)
    layer, matrix = next(iter(layers.items()))
    if len(layers) == 1:
        return matrix
    note = f"by {layer} attacks; choose others by --knowledge: {', '.join(name for name in layers if name != layer)}"
    return matrix._replace(notes=(*matrix.notes, note))
