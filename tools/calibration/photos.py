"""Shows which models more photos separate: the three embedded ImageNet models, ranked on more and more images.

FGSM at three small radii (larger radii fool every model on nearly every photo) is run on `demo:imagenet`, Foolbox's 20
photos, and on the 499 photos of `demo:tiny-imagenet`. The latter are ranked by the first 20, the first 150 and all.
Their classes alternate, so each part has many classes.

Run: python -m davylamp.tools.calibration.photos [--quick] [--images N] [--write] [--out FOLDER]
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import davylamp
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan

FILE = Path(__file__).with_name("PHOTOS.md")
ATTACKS = tuple(AttackChoice("foolbox:fgsm", "linf", level / 255) for level in (0.1, 0.25, 0.5))
DATA = ("demo:imagenet", "demo:tiny-imagenet")
PARTS = (20, 150)
HEADS = ("data", "images", "model", "right, clean", "mean of responses", "rank", "95 %", "P(first)", "group")


class Place(NamedTuple):
    """Rank of a model on a number of images, with its interval."""

    data: str
    images: int
    model: str
    right: float
    mean: float
    rank: int
    low: int
    high: int
    first: float
    group: str


def evaluate_models(data: str, out: Path, limit: int | None = None) -> Path:
    """Run the attacks on every embedded ImageNet model, and return the results folder. An interrupted run resumes."""
    config = Config(models=("demo:efficientnet-lite*",), attacks=ATTACKS, data=data, limit=limit, measures=())
    evaluate(make_plan(config), ResultsStore(out / data.partition(":")[2]))
    return out / data.partition(":")[2]


def place_models(folder: Path, data: str, parts: tuple[int, ...] = ()) -> Iterator[Place]:
    """Yield the ranks of the models on the first images of a folder, for each number in `parts`, and on all images."""
    frame = davylamp.load(folder)
    names = list(dict.fromkeys(frame["image"]))
    for count in (*(part for part in parts if part < len(names)), len(names)):
        part = frame[frame["image"].isin(names[:count])]
        ranking = davylamp.rank(part)
        for place in ranking.rank.argsort(kind="stable"):
            model = ranking.subjects[place]
            clean = part[part["model"] == model].drop_duplicates("image")
            right = float((clean["predicted"] == clean["label"]).mean())
            ends = int(ranking.rank_low[place]), int(ranking.rank_high[place])
            first, group = float(ranking.rank_probability[place, 0]), ranking.groups[place]
            mean = float(ranking.mean[place])
            yield Place(data, count, model, right, mean, int(ranking.rank[place]), *ends, first, group)


def row_of(place: Place) -> str:
    """Format a rank as a line of the table."""
    ends = f"{place.low} - {place.high}"
    shares = f"{place.right:.3f}", f"{place.mean:.3f}", str(place.rank), ends, f"{place.first:.2f}", place.group
    return f"| {' | '.join((place.data, str(place.images), place.model, *shares))} |"


def main(arguments: list[str] | None = None) -> None:
    """Rank the models on each number of images, print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description="Rankings of the embedded models by more and more photos.")
    parser.add_argument("--quick", action="store_true", help="use 8 photos of each data set")
    parser.add_argument("--images", type=int, help="largest number of photos of each data set")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    parser.add_argument("--out", type=Path, help="keep the results here and resume from them")
    options = parser.parse_args(arguments)
    lines = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    print(*lines, sep="\n")
    with tempfile.TemporaryDirectory() as temporary:
        for data in DATA:
            folder = evaluate_models(data, options.out or Path(temporary), 8 if options.quick else options.images)
            for place in place_models(folder, data, PARTS if data != DATA[0] else ()):
                lines.append(row_of(place))
                print(lines[-1], flush=True)
    if options.write:
        radii = ", ".join(f"{(choice.epsilon or 0) * 255:g}" for choice in ATTACKS)
        said = f" --images {options.images}" if options.images else ""
        head = [
            "# What more photos tell apart that 20 do not",
            "",
            f"Written by `python -m davylamp.tools.calibration.photos{said} --write`; do not edit.",
            f"FGSM in linf at {radii} / 255; ranked as `davylamp rank` does by default.",
            "",
        ]
        FILE.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
