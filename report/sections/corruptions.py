"""Section on robustness to corruptions: means, a curve for each corruption, and example pictures."""

import base64
import io
from collections.abc import Sequence
from os import PathLike
from typing import Any

from PIL import Image

from ...adapters.data.corruptions.published import CORRUPTIONS
from ...engine.tables.corruption_table import (
    CorruptedModel,
    ErrorCurve,
    build_corruptions,
    build_error_curves,
    read_corrupted_models,
)
from ...engine.tables.table import Table
from ...errors import Unavailable
from ..parts.blocks import Collapsible, Column, PageTable, Panels, PictureGrid, Section, Text, Thumbnail, make_table
from ..parts.figures import Line, draw_curves

SIDE = 96  # pixels of a small picture
_MEANING = {
    "error": "error rate without corruption",
    "mCE": "error rate: sum over the severities, mean over the corruptions",
    "RmCE": "increase of the error over the clean error: sum over the severities, mean over the corruptions",
    "mCE/base": "mean ratio to the baseline model's sums (the authors multiply it by 100)",
    "CE": "error rates summed over the severities",
    "CE/base": "ratio to the baseline model's sum",
    "FP": "rate of frames in a sequence whose prediction differs from the previous frame's",
    "mFR": "mean ratio of flip probabilities to those of the baseline model",
    "FP/base": "ratio to the baseline model's flip probability",
}


def write_corruptions(path: str | PathLike[str], *, bootstrap: int = 1000, seed: int = 0) -> Section | None:
    """Build the section on robustness to corruptions.

    Args:
        path: path of the results folder.
        bootstrap: number of bootstrap replicates for the intervals.
        seed: random seed of the resampling.

    Returns:
        The section, or None if no corruption was measured.
    """
    try:
        models, _ = read_corrupted_models(path)
    except Unavailable:
        return None
    drawing: dict[str, Any] = {"bootstrap": bootstrap, "seed": seed}
    means = build_corruptions(path, by="models", **drawing)
    each = build_corruptions(path, by="corruptions", **drawing)
    curves = build_error_curves(models, **drawing)
    figures = _figures(curves)
    blocks: list[Any] = [_page_table("corruption-models", "Means over the corruptions", means), *figures[:1]]
    if figures[1:]:
        blocks.append(Collapsible("A curve for each corruption", (Panels(tuple(figures[1:]), shown=len(figures)),)))
    blocks += [_page_table("corruption-each", "Each corruption", each), *_pictures(models)]
    lead = "Errors on corrupted images, which are not adversarial. Severity 0 is the clean image."
    notes = tuple(Text(note, "note") for note in means.notes)
    return Section("corruptions", "Corruptions", lead, (*blocks, *notes))


def _page_table(name: str, caption: str, table: Table) -> PageTable:
    columns = [*table.labels, *(Column(symbol, _meaning(symbol)) for symbol in table.symbols)]
    rows = [[*row.labels.values(), *(row.metrics[symbol] for symbol in table.symbols)] for row in table.rows]
    return make_table(name, caption, columns, rows)


def _meaning(symbol: str) -> str:
    return _MEANING.get(symbol, f"error rate at severity {symbol[-1]}")


def _figures(curves: Sequence[ErrorCurve]) -> list[Any]:
    names = list(dict.fromkeys((curve.model, curve.data) for curve in curves))
    figures = []
    for corruption in dict.fromkeys(curve.corruption for curve in curves):
        lines = [
            _line(curve, names.index((curve.model, curve.data))) for curve in curves if curve.corruption == corruption
        ]
        caption = f"{_title(corruption)}: error rate at each severity" if corruption else "Mean error at each severity"
        name = f"corruption-curve-{corruption or 'mean'}"
        figures.append(draw_curves(name, lines, x_axis="severity", y_axis="error rate", caption=caption))
    return figures


def _line(curve: ErrorCurve, place: int) -> Line:
    """Build a line of a figure. The points are shifted horizontally by `place`, so that lines do not overlap."""
    levels = [level + 0.07 * place for level in curve.severities]
    ends = [
        [end if end == end else estimate.value for end, estimate in zip(side, curve.errors, strict=True)]  # noqa: PLR0124
        for side in ([each.low for each in curve.errors], [each.high for each in curve.errors])
    ]
    values = [each.value for each in curve.errors]
    return Line(curve.model, levels, values, ends[0], ends[1], steps=False, series=place, dash=place)


def _pictures(models: Sequence[CorruptedModel]) -> list[Any]:
    """Return pictures of the first image of each data set, clean and under every corruption."""
    grids = []
    for data in dict.fromkeys(each.data for each in models):
        mine = next(each for each in models if each.data == data)
        start = mine.clean.picture if mine.clean is not None else None
        rows = []
        for name, levels in mine.errors.items():
            shown = [(f"{name}, severity {level}", levels[level].picture) for level in sorted(levels)]
            shown = [*([("clean", start)] if start else []), *shown]
            rows.append((_title(name), tuple(Thumbnail(title, _thumbnail(data)) for title, data in shown if data)))
        if any(shown for _, shown in rows):
            caption = f"The first image of {data}, at thumbnail size: clean, then by severity"
            grids.append(PictureGrid(f"corruption-pictures-{len(grids)}", caption, tuple(rows)))
    return grids


def _title(name: str) -> str:
    return CORRUPTIONS[name].title if name in CORRUPTIONS else name


def _thumbnail(data: bytes) -> str:
    with Image.open(io.BytesIO(data)) as image:
        small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=90)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
