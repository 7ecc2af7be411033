"""Which images nothing fools, and which everything does."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..parts.blocks import Column, Entry, Section, Text, make_table
from ..parts.class_names import class_names, class_text
from ..parts.figures import draw_counts
from ..parts.reading import Folder

_SHOWN = 10


def write_hardness(folder: Folder) -> Section:
    """Images by the share of the cells that they stay robust in, hardest to fool first and last."""
    title, lead = "Hard and easy images", "In how many cells (a model under an attack) does each image stay robust?"
    frame = count_survivals(folder)
    blocks: list[Any] = []
    for place, (data, outcome) in enumerate(frame.groupby("data", sort=False)):
        cells = int(outcome["cells"].max())
        counts = np.bincount(outcome["survived"].astype(int), minlength=cells + 1).tolist()
        caption = f"{data}: images by the number of cells, of {cells}, that they survive"
        blocks.append(draw_counts(f"hard-{place}", counts, x_axis="cells survived", y_axis="images", caption=caption))
        ordered = outcome.sort_values(["share", "image"], kind="stable")
        rest = max(0, len(ordered) - 2 * _SHOWN)
        shown = ordered if not rest else pd.concat([ordered.head(_SHOWN), ordered.tail(_SHOWN)])
        columns = (
            "image", "label", Column("survived", "cells in which it is correct and robust"), "cells",
            Column("share", "of the cells"), Column("wrong when clean", "cells where it is misclassified when clean"),
        )  # fmt: skip
        names = _names_of(folder, str(data))
        shown = shown.assign(label=[Entry(class_text(names, label), label) for label in shown["label"]])
        rows = shown[["image", "label", "survived", "cells", "share", "wrong"]].itertuples(index=False)
        what = f"The {_SHOWN} easiest to fool and the {_SHOWN} hardest" if rest else "All images"
        blocks.append(make_table(f"hard-images-{place}", f"{what} ({data})", columns, [tuple(row) for row in rows]))
        if rest:
            blocks.append(Text(f"{rest} images between them are left out; davylamp.engine.load has them all.", "note"))
    return Section("images", title, lead, tuple(blocks))


def _names_of(folder: Folder, data: str) -> Sequence[str]:
    """The names of the classes of some data, if all models that saw them agree on them."""
    known = {tuple(class_names(clean)) for clean in folder.outcomes.clean.values() if clean.subject.data == data}
    return known.pop() if len(known) == 1 else ()


def count_survivals(folder: Folder) -> pd.DataFrame:
    """One row for each image: `data`, `image`, `label`, `survived`, `wrong`, `cells`, `share`; violations left out."""
    heads, counted = {}, {}
    for outcome in folder.outcomes.done:
        columns, data = outcome.columns, outcome.cell.subject.data
        head = {name: columns[name] for name in ("index", "image", "label")}
        key = (data, *map(id, head.values()))  # cells of the same images share these arrays
        proven = outcome.results.proven
        flags = np.stack([columns["robust"] & proven, ~columns["attacked"] & proven, proven])
        heads[key] = {"data": data, **head}
        counted[key] = counted.get(key, 0) + flags.astype(int)
    names = ("survived", "wrong", "cells")
    every = pd.concat([pd.DataFrame(heads[key] | dict(zip(names, counted[key], strict=True))) for key in heads])
    every = every[every["cells"] > 0]
    counts = every.groupby(["data", "index", "image", "label"], sort=False, as_index=False)[[*names]].sum()
    return counts.assign(share=counts["survived"] / counts["cells"])
