"""Sections with images: adversarial examples, fitted perturbations, and the hardest and easiest images."""

import base64
import io
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from ...adapters.catalogue.lookup import find_implementation, load_apply
from ...adapters.display_text import format_radius, format_threat_model
from ...adapters.running.fit import Fitted
from ...engine.checks.verdicts import PairComparison
from ...engine.store.class_names import class_names
from ...engine.store.columns import Example
from ...engine.store.other_records import load_fitted
from ...engine.store.results import RunResult
from ...engine.thread_map import thread_map
from ...errors import DavylampError
from ..parts.blocks import (
    Collapsible,
    Column,
    Gallery,
    Picture,
    PictureGrid,
    Section,
    TableCell,
    Thumbnail,
    make_table,
)
from ..parts.figures import draw_counts
from ..parts.report_data import ReportData

SIDE = 112  # pixels of a thumbnail's longer side
BUDGET = 2_600_000  # characters of all thumbnails together: half of the page's limit
_NAMED = 6  # most images named in a table row
_FIRST = 3  # images on which a generator's output is shown
_ROWS = 40  # most rows of fitted perturbations
_EXTREMES = 10  # images at either end of the table


def write_gallery(folder: ReportData, pairs: Sequence[PairComparison], *, budget: int = BUDGET) -> Section | None:
    """Build the section with pictures of adversarial examples, and a table of images that only one library fools.

    Args:
        folder: data of the report.
        pairs: pairs of implementations of the same attack.
        budget: largest total size of the pictures, bytes. Further examples are omitted, with a note.

    Returns:
        The section, or None if there are no pictures.
    """
    title = "Gallery"
    clean = {
        f"{key}-{example.place}": _clean_uris(example)
        for key, known in folder.outcomes.clean.items()
        for example in known.examples
        if example.picture
    }
    learned = show_learned(folder)
    if not clean:
        return Section("gallery", title, "", tuple(learned)) if learned else None
    spent, pictures, left = sum(len(uri) for uris in clean.values() for uri in uris.values()), [], 0
    jobs = sorted(
        ((example.place, order, outcome, example) for order, outcome in enumerate(folder.outcomes.done)
         for example in outcome.examples),
        key=lambda job: job[:2],
    )  # fmt: skip

    def draw(job: tuple[Any, ...]) -> Picture | None:
        return _picture(folder, *job[2:]) if spent < budget else None

    for made in thread_map(draw, jobs):
        picture = made if spent < budget else None  # also limits those prepared in advance
        if picture is None:
            left += 1
            continue
        spent += sum(map(len, picture.uris.values()))
        pictures.append(picture)
    note = f"{left} more examples are omitted to keep the page small." if left else ""
    lead = (
        "The first images of the data, at thumbnail size. The change is amplified until its largest value is visible; "
        "a change below one grey level cannot be shown, and its caption says so."
    )
    if any("before" in uris for uris in clean.values()):
        lead += " Bright areas matter most for the prediction, by its class activation map."
    if not all(map(class_names, folder.outcomes.clean.values())):
        lead += " Classes are numbers because neither model nor data provide names (use `--labels FILE`)."
    blocks: list[Any] = [Gallery(tuple(pictures), clean, note)]
    return Section("gallery", title, lead, (*blocks, *learned, *_only_one(folder, pairs)))


def _picture(folder: ReportData, outcome: RunResult, example: Example) -> Picture | None:
    known = folder.outcomes.clean.get(outcome.cell.subject.key)
    before = next((each for each in known.examples if each.place == example.place), None) if known else None
    row = np.flatnonzero(outcome.columns["index"] == example.place)
    if before is None or before.picture is None or example.picture is None or not len(row):
        return None
    clean, adv = _pixels(before.picture), _pixels(example.picture)
    amplified, factor = amplify(clean, adv)
    place, names = int(row[0]), class_names(known)
    uris = {"adv": _thumbnail(adv)} | ({} if factor is None else {"change": _thumbnail(amplified, nearest=True)})
    if example.cam is not None:
        uris["cam"] = _spotlight(example.cam)
    lines = (
        f"label {class_text(names, example.label)}: {_said(before, names)} becomes {_said(example, names)}",
        _distances(outcome, place) + ("" if factor else f"; {_invisible_change(outcome, place)}"),
        f"queries: {outcome.columns['forwards'][place]} forward, {outcome.columns['backwards'][place]} backward",
    )
    key = f"{outcome.cell.subject.key}-{example.place}"
    where = folder.model(outcome), folder.title(outcome), example.image, _outcome(outcome, place)
    return Picture(*where, key, uris, lines, "" if factor is None else f"change x {factor:.3g}")


def _said(example: Example, names: Sequence[str]) -> str:
    sure = "" if math.isnan(example.confidence) else f", {example.confidence:.0%}"
    return f"{class_text(names, example.predicted)}{sure}"


def amplify(clean: np.ndarray, adv: np.ndarray) -> tuple[np.ndarray, float | None]:
    """Return an amplified picture of the change between two images, and the amplification factor.

    The picture is centred at mid-grey. The largest change becomes white or black.

    Args:
        clean: clean image, uint8.
        adv: adversarial image, uint8, same shape.

    Returns:
        The picture, uint8, and the factor. The factor is None if the two images are equal.
    """
    change = adv.astype(np.int16) - clean
    largest = int(np.abs(change).max())
    if not largest:
        return np.full_like(adv, 128), None
    factor = 127 / largest
    return (128 + change * factor).round().clip(0, 255).astype(np.uint8), factor


def _invisible_change(outcome: RunResult, place: int) -> str:
    """Explain why a change is not visible in an 8-bit picture."""
    largest = float(outcome.columns["linf"][place])
    return "no change" if largest == 0 else f"change of at most {255 * largest:.2g} grey levels, not visible here"


def _outcome(outcome: RunResult, place: int) -> str:
    columns = outcome.columns
    if outcome.results.invalid[place]:
        return "invalid"
    if not columns["attacked"][place]:
        return "wrong when clean"
    return "fooled" if columns["success"][place] else "robust"


def _distances(outcome: RunResult, place: int) -> str:
    values = {name: float(outcome.columns[name][place]) for name in ("l2", "linf")}
    levels = values["linf"] * 255
    if abs(levels - np.round(levels)) < 1e-3:  # whole grey levels up to float32 rounding
        values["linf"] = float(np.round(levels)) / 255
    return ", ".join(f"{name} {format_radius(name, value)}" for name, value in values.items())


def _only_one(folder: ReportData, pairs: Sequence[PairComparison]) -> list[Collapsible]:
    rows = []
    for pair in pairs:
        for winner, loser in permutations(pair.outcomes, 2):
            usable = winner.results.attacked & loser.results.proven
            only = usable & winner.columns["success"] & ~loser.columns["success"]
            names = winner.columns["image"][only].tolist()
            if names:
                rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                entry = TableCell(", ".join(names[:_NAMED]) + rest, len(names))
                rows.append((folder.model(winner), folder.title(winner), loser.cell.title, len(names), entry))
    columns = ("model", "fooled by", "not by", Column("n", "images"), "images")
    if not rows:
        return []
    table = make_table("gallery-only", "Fooled by one library, not by another", columns, rows)
    return [Collapsible(f"{table.caption} ({len(rows)})", (table,))]


def _clean_uris(example: Example) -> dict[str, str]:
    uris = {"clean": _thumbnail(_pixels(example.picture or b""))}
    return uris if example.cam is None else uris | {"before": _spotlight(example.cam)}


@lru_cache(maxsize=8)  # a clean picture is reused for each attack on it
def _pixels(picture: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))


def _thumbnail(pixels: np.ndarray, *, nearest: bool = False) -> str:
    image = Image.fromarray(pixels)
    scale = min(1.0, SIDE / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    # Averaging would cancel the amplified change, whose neighbours have opposite signs.
    small = image.resize(size, Image.Resampling.NEAREST if nearest else Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.save(file, "WEBP", quality=55 if nearest else 75)
    return _uri(file.getvalue(), "webp")


def _spotlight(cam: np.ndarray) -> str:
    """Return an activation map as the data URI of a picture that is dark where the activation is low.

    The picture has the resolution of the map, and the browser smooths the picture.
    """
    cam = np.nan_to_num(cam)
    span = float(cam.max() - cam.min())
    share = (cam - cam.min()) / span if span > 0 else np.zeros_like(cam)
    pixels = np.zeros((*cam.shape, 2), np.uint8)
    pixels[..., 1] = (210 * (1 - share)).round()
    file = io.BytesIO()
    Image.fromarray(pixels, "LA").save(file, "PNG", optimize=True)
    return _uri(file.getvalue(), "png")


def _uri(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def show_learned(folder: ReportData) -> list[PictureGrid]:
    """Build a grid of pictures with a row for each fitted attack in the folder. The row's title has data and cost."""
    used: dict[str, RunResult] = {}
    for outcome in folder.outcomes.done:
        used.setdefault(outcome.cell.fit_key, outcome)
    rows = []
    for key, fitted in list(load_fitted(folder.path).items())[:_ROWS]:
        pictures = [
            Thumbnail(f"{title}, {_factor(change)}", _thumbnail(_magnify(_around_grey(change)), nearest=True))
            for title, change in _changes(fitted, _first_images(folder, used.get(key)))
            if change.shape[0] in (1, 3)
        ]
        if pictures:
            rows.append((_describe(fitted, used.get(key)), tuple(pictures)))
    caption = "Perturbations fitted before the evaluation, around mid-grey, amplified and magnified"
    return [PictureGrid("gallery-learned", caption, tuple(rows))] if rows else []


def _changes(fitted: Fitted, images: list[tuple[str, np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield titles and changes, shape (C, H, W), of a fitted attack.

    A universal perturbation has a single change. A generator has a change for each of the images.
    """
    if "perturbation" in fitted.arrays:
        yield "added to every image", fitted.arrays["perturbation"]
        return
    learned = {name: torch.from_numpy(np.array(array)) for name, array in fitted.arrays.items()}
    try:
        apply = load_apply(find_implementation(fitted.implementation))
        for name, image in images:
            inputs = torch.from_numpy(image)[None]
            with torch.no_grad():
                yield f"added to {name}", (apply(learned, inputs, fitted.threat_model) - inputs)[0].numpy()
    except (DavylampError, ValueError):  # fitted by a different version, or for a different image shape
        return


def _first_images(folder: ReportData, outcome: RunResult | None) -> list[tuple[str, np.ndarray]]:
    """Return names and pixels, shape (C, H, W), in [0, 1], of the first evaluation images of a fitted attack."""
    known = None if outcome is None else folder.outcomes.clean.get(outcome.cell.subject.key)
    if outcome is None or known is None:
        return []
    images = []
    for example in [each for each in known.examples if each.picture][:_FIRST]:
        pixels = _pixels(example.picture or b"").astype(np.float32).transpose(2, 0, 1) / 255
        images.append((example.image, pixels))
    return images


def _describe(fitted: Fitted, outcome: RunResult | None) -> str:
    """Describe a fitted attack: implementation, threat model, model, images and cost."""
    title = f"{fitted.implementation}, not used yet" if outcome is None else outcome.cell.title
    seen = f"from {fitted.images} images" if fitted.images else "from no image"
    cost = f"{fitted.forwards} forward and {fitted.backwards} backward queries, {fitted.seconds:.3g} s"
    return f"{title}: {format_threat_model(fitted.threat_model)}, fitted on {fitted.model} {seen}; {cost}"


def _factor(change: np.ndarray) -> str:
    largest = float(np.abs(change).max())
    return f"change x {0.5 / largest:.3g}" if largest else "no change"


def _around_grey(change: np.ndarray) -> np.ndarray:
    """Return a change, shape (C, H, W), as an 8-bit picture, shape (H, W, 3), around grey.

    The largest change is black or white.
    """
    largest = float(np.abs(change).max()) or 1.0
    pixels = (127.5 + 127.5 * change / largest).round().clip(0, 255).astype(np.uint8).transpose(1, 2, 0)
    return np.repeat(pixels, 3, 2) if pixels.shape[2] == 1 else pixels


def _magnify(pixels: np.ndarray, side: int = SIDE) -> np.ndarray:
    factor = max(1, side // max(pixels.shape[:2]))
    size = (pixels.shape[1] * factor, pixels.shape[0] * factor)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST))


def write_hardness(folder: ReportData) -> Section | None:
    """Build the section that lists images by the number of runs in which they stay robust, the easiest to fool first.

    Returns:
        The section, or None if there are no images.
    """
    title, lead = "Hard and easy images", "In how many runs (a model under an attack) does each image stay robust?"
    frame = robust_counts(folder)
    blocks: list[Any] = []
    for place, (data, outcome) in enumerate(frame.groupby("data", sort=False)):
        cells = int(outcome["cells"].max())
        counts = np.bincount(outcome["survived"].astype(int), minlength=cells + 1).tolist()
        caption = f"{data}: images by the number of runs, out of {cells}, in which they stay robust"
        blocks.append(draw_counts(f"hard-{place}", counts, x_axis="runs survived", y_axis="images", caption=caption))
        ordered = outcome.sort_values(["share", "image"], kind="stable")
        rest = max(0, len(ordered) - 2 * _EXTREMES)
        shown = ordered if not rest else pd.concat([ordered.head(_EXTREMES), ordered.tail(_EXTREMES)])
        columns = (
            "image", "label", Column("survived", "runs in which it is correct and robust"), "runs",
            Column("share", "proportion of the runs"), Column("wrong when clean", "runs misclassified when clean"),
        )  # fmt: skip
        names = _names_of(folder, str(data))
        shown = shown.assign(label=[TableCell(class_text(names, label), label) for label in shown["label"]])
        rows = shown[["image", "label", "survived", "cells", "share", "wrong"]].itertuples(index=False)
        what = f"The {_EXTREMES} easiest to fool and the {_EXTREMES} hardest" if rest else "All images"
        note = f"{rest} images between them are omitted; davylamp.load returns all." if rest else ""
        table = make_table(f"hard-images-{place}", f"{what} ({data})", columns, map(tuple, rows), note=note)
        blocks.append(Collapsible(table.caption, (table,)))
    return Section("images", title, lead, tuple(blocks)) if blocks else None


def _names_of(folder: ReportData, data: str) -> Sequence[str]:
    """Return the class names of a data set.

    Empty if the models that were evaluated on the data have different names.
    """
    known = {tuple(class_names(clean)) for clean in folder.outcomes.clean.values() if clean.subject.data == data}
    return known.pop() if len(known) == 1 else ()


def robust_counts(folder: ReportData) -> pd.DataFrame:
    """Return a table of how often each image stays robust, with one row per image.

    The columns are:

    - `data`, `image`, `label`: data set, name and true class of the image.
    - `survived`: number of runs in which the image stays robust.
    - `wrong`: number of runs in which the clean image is misclassified.
    - `cells`: number of all runs with a valid result for the image.
    - `share`: `survived` divided by `cells`.
    """
    heads, counted = {}, {}
    for outcome in folder.outcomes.done:
        columns, data = outcome.columns, outcome.cell.subject.data
        head = {name: columns[name] for name in ("index", "image", "label")}
        key = (data, *map(id, head.values()))  # runs on the same images share these arrays
        proven = outcome.results.proven
        flags = np.stack([columns["robust"] & proven, ~columns["attacked"] & proven, proven])
        heads[key] = {"data": data, **head}
        counted[key] = counted.get(key, 0) + flags.astype(int)
    names = ("survived", "wrong", "cells")
    every = pd.concat([pd.DataFrame(heads[key] | dict(zip(names, counted[key], strict=True))) for key in heads])
    every = every[every["cells"] > 0]
    counts = every.groupby(["data", "index", "image", "label"], sort=False, as_index=False)[[*names]].sum()
    return counts.assign(share=counts["survived"] / counts["cells"])


def class_text(names: Sequence[str], index: int) -> str:
    """Format a class, such as "tabby (281)". If the name is unknown, only the index is shown."""
    return f"{names[index]} ({index})" if 0 <= index < len(names) else str(index)
