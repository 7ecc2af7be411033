"""The golden corpus: small results folders in which every concept occurs, and what every command reads in them.

    python -m tests.golden.corpus folders [NAME ...]     # evaluate again, in place of what is stored
    python -m tests.golden.corpus expected [NAME ...]    # read again, in place of what is stored

Either is only for a commit that says which number was wrong and why.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import torch

import davylamp
from davylamp import cli

HERE = Path(__file__).parent
INPUTS, FOLDERS, EXPECTED = HERE / "inputs", HERE / "folders", HERE / "expected"

_OLD = HERE.parent / "engine" / "store" / "results_0_1_0.zip"

# What makes each folder, in a copy of `inputs`; of images.npz and into the folder where the line does not say it.
MADE: dict[str, tuple[str, ...]] = {
    # Two networks, three libraries, four norms, two radii, two seeds, a metric of a user.
    "plain": (
        "evaluate --models models.py:cnn,models.py:mlp --attacks pgd --epsilon 0.1 --epsilon 0.2 --param steps=5"
        " --library foolbox --library torchattacks --seed 0 --seed 1 --metric measures.py:largest_change",
        "evaluate --models models.py:cnn,models.py:mlp --attacks attacks.py:honest --norm linf --epsilon 0.1",
        "evaluate --models models.py:cnn,models.py:mlp --attacks foolbox:ddn --param steps=20 --metric curve",
        "evaluate --models models.py:cnn,models.py:mlp --attacks foolbox:fgm --norm l2 --epsilon 0.8",
        "evaluate --models models.py:cnn --attacks foolbox:ead-l1 --norm l1 --param steps=10",
        "evaluate --models models.py:cnn --attacks foolbox:salt-and-pepper --param steps=10",
    ),
    # Queries: a limit, score and decision attacks, cheap ones first, each on what none before has fooled.
    "queries": (
        "evaluate --models models.py:cnn,models.py:mlp --attacks torchattacks:square,foolbox:pgd --norm linf"
        " --epsilon 0.15 --max-queries 60",
        "evaluate --models models.py:cnn --attacks foolbox:boundary --norm l2 --max-queries 150",
        "evaluate --models models.py:cnn --attacks foolbox:fgsm,torchattacks:pgd,torchattacks:square"
        " --epsilon 0.15 --order cheap-first --stop-when-fooled --max-queries 40",
        "evaluate --models models.py:cnn --attacks torchattacks:fgsm --epsilon 20/255 --pixels",
    ),
    "targeted": (
        "evaluate --models models.py:cnn,models.py:mlp --attacks foolbox:pgd,torchattacks:pgd --norm linf"
        " --epsilon 0.2 --param steps=10 --target random",
        "evaluate --models models.py:cnn --attacks foolbox:pgd --epsilon 0.2 --param steps=10 --target least-likely",
        "evaluate --models models.py:cnn --attacks foolbox:pgd --epsilon 0.2 --param steps=10 --target 3",
        "evaluate --models models.py:cnn --attacks foolbox:pgd --epsilon 0.2 --param steps=10",
    ),
    # Declared, with draws and EOT, beside the honest network.
    "random": (
        "evaluate --models models.py:noisy,models.py:cnn --attacks foolbox:pgd,torchattacks:fgsm --epsilon 0.15"
        " --param steps=5 --draws 8 --eot 2",
    ),
    "unsteady": ("evaluate --models models.py:unsteady --attacks foolbox:pgd --epsilon 0.15 --param steps=5",),
    # Examples made on the defended model and on the original.
    "defence": (
        "evaluate --models models.py:cnn,models.py:mlp --defence art:bit-depth:bits=2 --defence torchvision:noise"
        " --attacks foolbox:pgd,torchattacks:fgsm --epsilon 0.15 --param steps=5 --draws 6 --examples both",
    ),
    "detector": (
        "train kernel-density --model models.py:cnn --data npz:training.npz -o detector.pt",
        "evaluate --models models.py:cnn --attacks foolbox:pgd,torchattacks:fgsm --epsilon 0.15 --param steps=5"
        " --keep-images --detector detector.pt",
        "evaluate --models models.py:cnn+detector:detector.pt,fpr=0.2 --attacks foolbox:pgd --epsilon 0.15"
        " --param steps=5 --target random",
    ),
    "labels-only": (
        "evaluate --models models.py:labels --attacks foolbox:hopskipjump --param steps=2 --max-queries 200",
        "evaluate --models models.py:labels --attacks foolbox:salt-and-pepper --param steps=10",
    ),
    # Examples of other models: of a surrogate, of two together, and each on the others.
    "transfer": (
        "evaluate --models models.py:cnn,models.py:mlp --attacks foolbox:pgd,torchattacks:fgsm --epsilon 0.15"
        " --param steps=5 --transfer full",
        "evaluate --models models.py:cnn --surrogate models.py:mlp --attacks foolbox:pgd --epsilon 0.15"
        " --param steps=5",
        "evaluate --models models.py:labels --surrogate models.py:mlp --surrogate models.py:cnn"
        " --attacks foolbox:pgd --epsilon 0.2 --param steps=5",
    ),
    # Searches: the smallest radius, of several together, at saturation.
    "searches": (
        "evaluate --models models.py:cnn,models.py:mlp --attacks best(foolbox:pgd) --param steps=5 --limit 12",
        "evaluate --models models.py:cnn --attacks best(foolbox:ddn,foolbox:pgd) --norm l2 --param steps=5 --limit 3",
        "evaluate --models models.py:cnn --attacks at-saturation(torchattacks:fgsm) --limit 12",
    ),
    # Groups of metrics that cost more.
    "measures": (
        "evaluate --models models.py:cnn --attacks foolbox:pgd,torchattacks:fgsm --epsilon 0.15 --param steps=5"
        " --metric coverage --metric boundary --metric neurons --metric consistency --profile npz:training.npz"
        " --keep-images",
    ),
    # Results that are invalid through the model, through the attack, and failed ones.
    "invalid": (
        "evaluate --models models.py:cnn,models.py:unsure,models.py:no_slope --attacks foolbox:pgd,torchattacks:pgd"
        " --epsilon 0.15 --param steps=5",
        "evaluate --models models.py:cnn,models.py:mlp --attacks"
        " attacks.py:honest,attacks.py:too_far,attacks.py:returns_nan,attacks.py:crashes --norm linf --epsilon 0.15",
    ),
    # Two classes by one logit, and the same images in another number.
    "binary": (
        "evaluate --models models.py:two --attacks foolbox:pgd,torchattacks:square --norm linf --epsilon 0.1"
        " --param steps=5 --data npz:binary.npz",
        "evaluate --models models.py:two --attacks foolbox:pgd --epsilon 0.1 --param steps=5"
        " --data npz:binary.npz --limit 12",
    ),
    "corruptions": (
        "corrupt-table models.py:large models.py:large_mlp --data npz:large.npz --corruption gaussian_noise"
        " --corruption contrast --severity 1 --severity 3 --baseline models.py:large_mlp",
    ),
    "challenge": (
        "challenge models.py:cnn+art:bit-depth:bits=2 --data npz:images.npz --epsilon 0.1 --steps 5 --queries 60",
    ),
    "format-0.1": (),  # nothing can write it any more
}

AGAIN = tuple(name for name, lines in MADE.items() if lines and name != "unsteady")  # an evaluation gives the same

_METRICS = (
    "CA,CF,CC,RA,MR,AIAC,ARTC,AAW,AAB,ACAC,ACTC,NTE,CTC,QNC_F,QNC_B,AMD,AED,APCR,ALD,RMSD,PSNR,PSD,FDL,FDH,"
    "ALMS,ADMS,ASS,FR@3,FR_AUC,R8"
)
_READ = (
    "table FOLDER",
    "table FOLDER --by models",
    "table FOLDER --by models --mixed",
    "table FOLDER --by pairs --pooled",
    f"table FOLDER --by pairs --metric {_METRICS}",
    "table FOLDER --by pairs --metric OPT,D_half",
    "curve FOLDER",
    "curve FOLDER --against queries",
    "curve FOLDER --against passes",
    "check FOLDER",
    "status FOLDER",
    "rank FOLDER --method mean",
    "rank FOLDER --method mean --subjects implementations",
    "rank FOLDER --method borda --subjects attacks",
    "rank FOLDER --method canary",
)
_FITTED = ("rank FOLDER", "rank FOLDER --subjects attacks")
READ: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(MADE, _READ),
    "plain": (*_READ, *_FITTED, "table FOLDER --by pairs --metric measures.py:largest_change"),
    "random": (*_READ, *_FITTED),
    "targeted": (*_READ, "table FOLDER --metric TAS,MR", "rank FOLDER --subjects implementations"),
    "invalid": (*_READ, *(f"{line} --unequal keep" for line in _FITTED), "rank FOLDER --subjects implementations"),
    "defence": (
        *_READ,
        *(
            f"table FOLDER --defence models.py:{network} models.py:{network}+{defence}"
            for network in ("cnn", "mlp")
            for defence in ("art:bit-depth:bits=2", "torchvision:noise")
        ),
        "rank FOLDER --subjects defences --original models.py:cnn --examples own",
        "rank FOLDER --subjects defences --original models.py:cnn --examples original",
    ),
    "transfer": (*_READ, "table FOLDER --transfer", "table FOLDER --by pairs --metric OTR"),
    "measures": (
        *_READ,
        "table FOLDER --metric KMNCov,NBCov,SNACov,TKNCov,EBD,EBD2,ENI,NS,NU",
    ),
    "detector": (
        *_READ,
        "detect FOLDER --detector detector.pt",
        "detect FOLDER --detector detector.pt --false-alarms 0.2",
    ),
    "corruptions": ("corrupt-table -o FOLDER", "corrupt-table -o FOLDER --by corruptions", "status FOLDER"),
}


def run(line: str) -> tuple[int, str, str]:
    """A command in this process, in the folder where it is: exit code, output and errors."""
    out, said, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["davylamp", *shlex.split(line)]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
    return int(code), out.getvalue(), said.getvalue()


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """A block in another folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def copy_inputs(folder: Path) -> None:
    """The models, attacks and images, where a folder is made or read."""
    for path in INPUTS.iterdir():
        if path.is_file():
            shutil.copy(path, folder / path.name)


def make(name: str, place: Path) -> Path:
    """Evaluate a folder anew, in a place that has the inputs; where it is."""
    out = place / name
    with working_in(place):
        for line in MADE[name]:
            command = line if " --data " in line else f"{line} --data npz:images.npz"
            command = command if " -o " in line else f"{command} -o {name}"
            command += " --metrics all" if line.startswith("evaluate") else ""
            command += " --isolate no" if line.startswith(("evaluate", "challenge")) else ""
            code, _, said = run(command)
            if code not in (0, 1) or (code == 1 and "failed" not in said):
                raise RuntimeError(f"code {code} from {command}: {said}")
    return out


def unpack(name: str, place: Path) -> Path:
    """A stored folder, in a place; where it is."""
    stored, inside = (FOLDERS / f"{name}.zip", place) if MADE[name] else (_OLD, place / name)
    with zipfile.ZipFile(stored) as file:
        file.extractall(inside)
    return place / name


def read(name: str, place: Path) -> dict[str, Any]:
    """What every command says of a folder in a place, by command: its code and its document."""
    answers = {}
    with working_in(place):
        for line in READ[name]:
            command = line.replace("FOLDER", name)
            code, text, _ = run(f"{command} --json")
            answers[line] = {"code": code, "document": json.loads(text) if text.strip() else None}
        if (place / name / "cells").is_dir():
            code, *_ = run(f"report {name} -o page.html")
            answers["report FOLDER"] = {"code": code, "document": numbers_of_page(Path("page.html"))}
            answers["load(FOLDER)"] = {"code": 0, "document": sums_of_frame(name)}
    return answers


class _Tables(HTMLParser):
    """The numbers in the cells of a page's tables, by the id of the last heading or section before them."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, list[float]] = {}
        self._section, self._cell = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._section = dict(attrs).get("id") or "" if tag in ("section", "h2") else self._section
        self._cell = tag == "td" or (self._cell and tag != "tr")

    def handle_endtag(self, tag: str) -> None:
        self._cell &= tag != "td"

    def handle_data(self, data: str) -> None:
        if self._cell:
            numbers = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", data)
            self.numbers.setdefault(self._section, []).extend(map(float, numbers))


def numbers_of_page(page: Path) -> dict[str, list[float]]:
    """The numbers in the tables of a report, by section."""
    reader = _Tables()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader.numbers


def sums_of_frame(folder: str) -> dict[str, dict[str, list[float]]]:
    """Of every cell of a folder and every column of `davylamp.load`: how many numbers it has, and their sum."""
    frame = davylamp.load(folder)
    numbers = frame.select_dtypes(["number", "bool"]).astype(float).replace([np.inf, -np.inf], 1e9)
    return {
        str(cell): {name: [int(part[name].notna().sum()), float(part[name].sum())] for name in numbers}
        for cell, part in numbers.groupby(frame["cell"])
    }


def pack(folder: Path) -> None:
    """Store a folder, and the detector beside it."""
    FOLDERS.mkdir(exist_ok=True)
    beside = [folder.parent / "detector.pt"] if folder.name == "detector" else []
    with zipfile.ZipFile(FOLDERS / f"{folder.name}.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for path in [*sorted(folder.rglob("*")), *beside]:
            if path.is_file() and "locks" not in path.parts and path.suffix != ".html":
                file.write(path, path.relative_to(folder.parent))


def main(what: str, names: list[str]) -> None:
    """Make or read anew what is stored."""
    from davylamp.commands import loading

    if what not in ("folders", "expected") or not set(names) <= set(MADE):
        sys.exit(f"expected folders or expected, and names among {', '.join(MADE)}; got {' '.join([what, *names])}")
    loading._DEFAULT_ISOLATE = "no"
    torch.set_num_threads(1)
    for name in names or MADE:
        with tempfile.TemporaryDirectory() as place:
            copy_inputs(Path(place))
            if what == "folders" and MADE[name]:
                pack(make(name, Path(place)))
            elif what == "expected":
                unpack(name, Path(place))
                EXPECTED.mkdir(exist_ok=True)
                lines = [f"{json.dumps(key)}: {json.dumps(each)}" for key, each in read(name, Path(place)).items()]
                (EXPECTED / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2] or [""], sys.argv[2:])
