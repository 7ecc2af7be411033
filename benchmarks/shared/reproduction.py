"""Evaluates the setting of a paper, and compares the results with the published numbers.

Models, images and budgets that are not available or take too long are replaced, and the result lists the replacements.
If models or data differ from those of the paper, the result has no differences from the published numbers.
"""

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ...adapters import Classifier, defend, find_attack
from ...adapters.data.datasets import Data
from ...adapters.models.zoo.load import load_model
from ...adapters.paths import expand_path
from ...engine import AttackChoice, Config, Plan, ResultsStore, evaluate, make_plan
from ...engine.attack_run import AttackRun, json_digest
from ...engine.searches.kinds import parse_search
from ...engine.store.columns import read_examples
from ...engine.store.results import read_outcomes
from ...engine.tables.symbols import By, choose_symbols, drop_absent
from ...engine.tables.table import Table, TableRow, build_table
from ...errors import Unsupported
from .counterpart import DATA, UNKNOWN, Counterpart, Pairing, Recognise, data_set_of, no_counterpart, pair_models
from .paper_numbers import find_beside, find_place, load_published
from .paper_result import PaperLine, plain_line
from .paper_table import Options
from .small_models import TRAININGS, load_digits_data, load_small_model

DIGITS = tuple(f"digits:{name}" for name in TRAININGS)
OTHER: Mapping[str, str] = {"models": "other models", "data": "other data"}
REDUCED = "other budget"


@dataclass(frozen=True)
class Size:
    """Size of a reproduction, which determines how long it takes.

    Args:
        models: names of the models to evaluate.
        images: number of images to use. None for all.
        limits: largest value of a canonical parameter, by name, such as {"steps": 10}. Larger values are reduced to
            this value.
        queries: largest number of forward and backward passes for an image. None for the number of the paper.
    """

    models: tuple[str, ...]
    images: int | None
    limits: Mapping[str, int] = field(default_factory=dict)
    queries: int | None = None


@dataclass(frozen=True)
class Setting:
    """The evaluation of a paper, with smaller sizes that take minutes.

    Args:
        config: attacks, parameters and number of images of the paper.
        default: size without options, which takes at most 10 minutes on 2 cores.
        quick: size with --quick, which takes at most 1 minute.
        data: name of the data.
        same: whether the models ("models") or the data ("data") are identical to those of the paper. Results of other
            models or data are labelled as not comparable.
        data_set: data set of the published numbers, such as "ImageNet". "" if unknown, or if each line has its own.
        papers: the paper's names of all its models.
        recognise: function that returns the paper's model for the name of an evaluated model.
        aliases: the paper's name of a model, by a further name of the model.
        surrogate: the paper's name of the surrogate on which transferred examples are made. "" if there is none.
    """

    config: Config
    default: Size
    quick: Size
    data: str = "demo:imagenet"
    same: tuple[str, ...] = ()
    data_set: str = ""
    papers: tuple[str, ...] = ()
    recognise: Recognise = no_counterpart
    aliases: Mapping[str, str] = field(default_factory=dict)
    surrogate: str = ""


@dataclass(frozen=True)
class SettingRun:
    """A finished evaluation of a paper's setting.

    Args:
        folder: results folder.
        plan: plan of the evaluation.
        models: evaluated classifiers, by name.
        reduced: limits of the size, in words. "" if the evaluation has the size of the paper.
        failed: notes on failed and omitted runs.
        start: start of the evaluation (`time.monotonic`).
        pairing: the corresponding models and data set of the paper.
        data_set: data set of the published numbers. "" if unknown.
    """

    folder: Path
    plan: Plan
    models: Mapping[str, Classifier]
    reduced: str
    failed: tuple[str, ...]
    start: float
    pairing: Pairing
    data_set: str = ""

    def row_of(self, model: str) -> str:
        """Return the paper's name of an evaluated model; "" if it corresponds to no model of the paper."""
        return self.pairing.models.get(model, Counterpart()).row

    def title_of(self, model: str) -> str:
        """Return the paper's name of an evaluated model, or "no model of the paper"."""
        return self.row_of(model) or "no model of the paper"

    def labels_of(self, model: str) -> dict[str, str]:
        """Return the label "model" of the published rows for an evaluated model.

        Empty if the model corresponds to no model of the paper.
        """
        row = self.row_of(model)
        return {"model": row} if row else {}

    def why_other(self, line: PaperLine) -> str:
        """Return the reason why the models or data of a line differ from those of the paper; "" if they do not."""
        row = line.labels.get("model", "") if line.model is not None else None
        return self.pairing.why_other(line.model, row, line.data_set or self.data_set)

    def report(
        self,
        table: str | Path,
        lines: Iterable[PaperLine],
        *,
        readings: Mapping[str, str],
        left_out: Mapping[str, str],
        notes: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Build the result of a reproduction, as JSON types. Undefined and infinite numbers are None.

        Args:
            table: name of the published table, or path of a JSON file (see `load_published`).
            lines: computed numbers with the published numbers.
            readings: notes on how a published column was interpreted, by symbol of the metric.
            left_out: reason why attacks or models of the table are not reproduced, by the paper's name.
            notes: further notes.
        """
        lines = list(lines)
        made = [plain_line(line, self.why_other(line)) for line in lines]
        data_sets = list(dict.fromkeys(line.data_set or self.data_set for line in lines)) or [self.data_set]
        other_data = any(self.pairing.data_set != (name or DATA) for name in data_sets)
        other_models = not self.pairing.complete and not all(each.same for each in self.pairing.models.values())
        labels = [OTHER["models"]] * other_models + [OTHER["data"]] * other_data + [REDUCED] * bool(self.reduced)
        published = load_published(table)
        return {
            "table": Path(table).stem,
            "source": published["source"],
            "unit": str(published.get("unit") or published["note"]),
            "labels": labels,
            "models": list(self.plan.config.models),
            "data": self.plan.config.data,
            "images": self.plan.subjects[0][0].images,
            "budget": self.reduced or "the paper's",
            "stand_ins": self.pairing.sentence(self.plan.config.data, data_sets),
            "lines": made,
            "readings": dict(readings),
            "left_out": dict(left_out),
            "notes": [*self.failed, *notes],
            "seconds": time.monotonic() - self.start,
        }

    def read_examples(self, cell: AttackRun) -> Tensor:
        """Return the adversarial images of a run, shape (N, C, H, W). The config must set `keep_images`."""
        return read_examples(ResultsStore(self.folder, create=False), cell)


def build_rows(folder: Path, symbols: Sequence[str], by: By) -> tuple[Table, list[str]]:
    """Build a table of a results folder. Metrics that the folder does not have are omitted.

    Args:
        folder: results folder.
        symbols: symbols of the metrics.
        by: what a row stands for: "attacks", "models" or "pairs".

    Returns:
        The table, and notes on omitted metrics and runs.
    """
    outcomes, kept, notes = read_outcomes(folder, choose_symbols(symbols, by)), [], []
    for symbol in symbols:
        try:
            kept += drop_absent([symbol], outcomes, explicit=True)
        except Unsupported as error:
            notes.append(str(error).replace(str(folder), "the results").replace("this folder", "these results"))
    table = build_table(folder, by=by, metrics=kept)
    return table, [*notes, *(note for note in table.notes if not note.startswith("failed: "))]


def lines_beside(
    published: str | Path,
    rows: Iterable[tuple[TableRow, Mapping[str, str]]],
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, Any] | None = None,
) -> list[PaperLine]:
    """Compare computed rows with published rows, and return lines in the order of the published rows.

    Args:
        published: name of the published table, or path of a JSON file (see `load_published`).
        rows: computed rows, each with the labels "attack" and "model" of its published row. Either label may be
            missing. If several published rows match the labels, their mean is used.
        columns: name of the published column, by symbol of the metric. Other columns have the name of their metric.
        where: further labels of the published rows.
    """
    rows, more = list(rows), dict(where or {})
    titles = _titles(rows)
    lines = []
    for place in sorted(range(len(rows)), key=lambda place: find_place(published, **rows[place][1], **more)):
        row, labels = rows[place]
        for symbol, estimate in row.metrics.items():
            beside = find_beside(published, (columns or {}).get(symbol, symbol), **labels, **more)
            model = row.labels.get("model")
            known = {**({"model": model} if model else {}), **labels, **more}
            cell = {"model": model, "labels": known, "column": (columns or {}).get(symbol, symbol)}
            lines.append(PaperLine(titles[place], symbol, estimate, *beside, **cell))
    return lines


def _titles(rows: Sequence[tuple[TableRow, Mapping[str, str]]]) -> list[str]:
    """Return a title for each row: name of the evaluated model, and the paper's name of the attack.

    If titles are equal, further labels are appended, such as norm and radius.
    """
    titles = []
    for row, labels in rows:
        attack = labels.get("attack", row.labels.get("implementation"))
        titles.append(", ".join(str(part) for part in (row.labels.get("model"), attack) if part))
    alike: dict[str, list[int]] = {}
    for place, title in enumerate(titles):
        alike.setdefault(title, []).append(place)
    for places in alike.values():
        for label in ("implementation", "norm", "epsilon", "setting"):
            values = {place: rows[place][0].labels.get(label, "") for place in places}
            if len(set(map(str, values.values()))) > 1:
                for place, value in values.items():
                    titles[place] += f", {value:.4g}" if isinstance(value, float) else f", {value}"
    return titles


@contextmanager
def run_setting(setting: Setting, options: Options) -> Iterator[SettingRun]:
    """Context manager that evaluates the setting of a paper, and yields the finished evaluation.

    Without the option `out`, the results folder is deleted at the end of the `with` block.

    Args:
        setting: setting of a paper.
        options: options of the command.
    """
    start = time.monotonic()
    size = setting.quick if options.quick else setting.default
    config = setting.config if options.full else shrink(setting.config, size)
    images = options.limit or (setting.config.limit if options.full else size.images)
    name, data = _find_data(setting.data if options.data is None else options.data)
    models = load_models(size.models if options.models is None else options.models, options.device, name)
    config = replace(config, data=name, limit=images, device=options.device, seeds=(options.seed,))
    lent = options.surrogate(setting.surrogate)
    if lent:
        made_on = tuple(replace(each, surrogate=(lent,) if each.surrogate else ()) for each in config.attacks)
        config, surrogates = replace(config, attacks=made_on), {lent: models[lent]}
        models = {each: model for each, model in models.items() if each != lent}
    else:
        small = [each for choice in config.attacks for each in choice.surrogate if each.startswith("digits:")]
        surrogates = load_models(small, options.device)
    pairing = _pair(setting, options, list(models), name)
    plan = make_plan(config, models=models, data=data, surrogates=surrogates)
    with tempfile.TemporaryDirectory() as temporary:
        key = json_digest(sorted(cell.key for cell in plan.cells))[:8]  # results of different sizes are kept apart
        folder = expand_path(options.out or temporary) / f"{config.preset or 'results'}-{key}"
        summary = evaluate(plan, ResultsStore(folder), progress=options.progress)
        names = {cell.key: f"{cell.attack} on {cell.subject.model}" for cell in plan.cells}
        failed = tuple(f"failed: {names[key]}: {reason}" for key, reason in summary.failed.items())
        failed += tuple(f"omitted: {name}: {reason}" for name, reason in plan.failed.items())
        reduced = "" if options.full else _describe(size)
        yield SettingRun(folder, plan, models, reduced, failed, start, pairing, setting.data_set)


def _pair(setting: Setting, options: Options, models: Sequence[str], data: str) -> Pairing:
    known = options.data_set or data_set_of(data) or UNKNOWN
    if options.data is None and "data" in setting.same:
        known = setting.data_set or DATA
    complete = options.models is None and "models" in setting.same
    said = {paper: ours for paper, ours in options.rows.items() if paper != setting.surrogate or not paper}
    pairs = pair_models(models, said, setting.papers, setting.recognise, setting.aliases)
    return Pairing(pairs, setting.papers, known, complete)


def shrink(config: Config, size: Size) -> Config:
    """Return a config in which the parameters of every attack are at most the limits of a size."""
    return replace(config, attacks=tuple(_shrink(choice, size) for choice in config.attacks))


def load_models(
    models: Mapping[str, Classifier] | Sequence[str], device: str, data: str = ""
) -> Mapping[str, Classifier]:
    """Return classifiers by name.

    Args:
        models: names of models, or classifiers by name, which are returned unchanged. A name "digits:NAME" or
            "digits:NAME+DEFENCE" is a model of `small_models`, which is trained at the first use.
        device: device of the models.
        data: name of the data. A name with `*`, such as "demo:*", is replaced by the models that fit these data.
    """
    if isinstance(models, Mapping):
        return models
    from ...engine.plan.config_file import expand_models

    known = [small for small in models if not small.startswith("digits:")]
    names = expand_models(Config(models=tuple(known), data=data)).models if known else ()
    small = {name: _load_digits_model(name).to(device) for name in models if name not in known}
    return {**small, **{name: load_model(name, device) for name in names}}


def _load_digits_model(name: str) -> Classifier:
    training, *defences = name.partition(":")[2].split("+")
    classifier = load_small_model(training)
    for defence in defences:
        classifier = defend(classifier, defence, f"{classifier.name}+{defence}")
    return classifier


def _shrink(choice: AttackChoice, size: Size) -> AttackChoice:
    attack = find_attack(parse_search(choice.attack).inside.rpartition(":")[2].partition("@")[0])
    known = {**attack.matched, **choice.parameters}
    cut = {name: min(known[name], most) for name, most in size.limits.items() if name in known}
    if size.queries is not None:
        cut["max_queries"] = min(known.get("max_queries", size.queries), size.queries)
    return replace(choice, parameters={**choice.parameters, **cut})


def _find_data(data: Data | str) -> tuple[str, Data | None]:
    """Return the name of the data and the images. The images are None if the engine loads them by the name."""
    if isinstance(data, Data):
        return "given", data
    return data, load_digits_data() if data == "digits" else None


def _describe(size: Size) -> str:
    parts = [f"{name} <= {most}" for name, most in size.limits.items()]
    parts += [f"at most {size.queries} passes per image"] if size.queries is not None else []
    return ", ".join(parts)
