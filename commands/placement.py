"""`davylamp rank NEW --against BASELINE`: newcomers among the subjects of a baseline."""

from pathlib import Path
from typing import Any

from ..errors import InvalidInput

PUBLISHED = "published:"  # before the name of a table that comes with davylamp


def place_folder(folder: Path, against: str, chosen: Any, options: dict[str, Any]) -> Any:
    """Per image: every subject that the baseline lacks, among those of the baseline.

    Args:
        folder: of the new subjects.
        against: the folder of the baseline.
        chosen: which results, `RankedResults`.
        options: of `rankings.place_images`.
    """
    from ..rankings import place_images
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
