"""What an evaluation consists of, and its parts, for job arrays: each knows its pieces without asking the others."""

import heapq
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...adapters.models.remote.server_usage import ServerUsage
from ...errors import InvalidInput
from ..attack_run import AttackRun, ModelOnData, Surrogate
from ..defence_pairs import undefended_models
from ..query_estimates import estimate_queries
from ..sources import DataSource, FitSource, LoadedCache, ModelSource
from .config import Config

MOST_PARTS = 100_000  # as many as a scheduler has jobs, and more


class Part(NamedTuple):
    """One of `of` parts of an evaluation, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class Plan:
    """What an evaluation consists of.

    Args:
        config: with every pattern expanded.
        subjects: each model on its images, with where it comes from.
        cells: in the order in which they are run: model by model.
        data: where the images come from.
        failed: models and implementations that cannot take part, each with the reason.
        unknown: by key of a subject or a cell, what in it (model, attack, metric) cannot be known in full, with why:
            its records hold for this plan alone.
        name: of this plan, by which it knows such records that it has made itself.
        choices: by key of a cell, the places in `config.attacks` of those that it runs.
        surrogates: where what examples are made on comes from, by what it is; () is each model itself.
        fit: where the images come from that attacks learn from which learn once; None: from those that are scored.
        notes: what was decided while the models were loaded.
        traffic: what servers were asked to know what their models are.
        part: what of it is run here, see `plan_for_part`; None: all.
        parts: by key of a cell the part of each of its shards.
        loaded: the last model and its images, where a run in this process can begin with them.
    """

    config: Config
    subjects: tuple[tuple[ModelOnData, ModelSource], ...]
    cells: tuple[AttackRun, ...]
    data: DataSource
    failed: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    choices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    surrogates: Mapping[tuple[Surrogate, ...], tuple[ModelSource, ...]] = field(default_factory=dict)
    fit: FitSource | None = None
    traffic: ServerUsage = field(default_factory=ServerUsage)
    notes: tuple[str, ...] = ()
    part: Part | None = None
    parts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    loaded: LoadedCache = field(default_factory=LoadedCache, compare=False, repr=False)

    def source(self, subject: ModelOnData) -> ModelSource:
        """Where the model of a subject comes from."""
        return next(source for known, source in self.subjects if known == subject)

    def surrogate(self, cell: AttackRun) -> tuple[ModelSource, ...]:
        """Where what a cell's examples are made on comes from; empty: they are made on its model."""
        return self.surrogates.get(cell.surrogate, ())

    @property
    def transfers(self) -> list[tuple[ModelOnData, AttackRun]]:
        """The models that each cell's examples are tried on: others that see the same images."""
        first, rule, originals = self.config.models[0], self.config.transfer, self.originals
        return [
            (subject, cell)
            for subject, _ in self.subjects
            for cell in self.cells
            if cell.subject.data_digest == subject.data_digest and cell.subject != subject
            if (rule == "full" and not cell.surrogate)
            or (rule == "simple" and first in (subject.model, cell.subject.model) and not cell.surrogate)
            or originals.get(subject.model) == cell.subject.model
        ]

    @property
    def transfers_here(self) -> list[tuple[ModelOnData, AttackRun]]:
        """Those of cells of which any shard is run here: whichever part finds such a cell whole does them."""
        return [(subject, cell) for subject, cell in self.transfers if self.shards(cell)]

    @property
    def originals(self) -> dict[str, str]:
        """The undefended model of each that sees its examples; empty: each sees its own only."""
        return {} if self.config.examples == "own" else undefended_models(self.config.models)

    def shards(self, cell: AttackRun) -> list[int]:
        """The shards of a cell that are run here: all, or those of the part."""
        numbers = range(cell.shards)
        return [*numbers] if self.part is None else [n for n in numbers if self.parts[cell.key][n] == self.part.number]

    @property
    def runs_in_this_part(self) -> tuple[AttackRun, ...]:
        """The cells of which any shard is run here."""
        return self.cells if self.part is None else tuple(cell for cell in self.cells if self.shards(cell))

    @property
    def subjects_here(self) -> tuple[tuple[ModelOnData, ModelSource], ...]:
        """The subjects of these cells; those that nothing is made on go round the parts."""
        if self.part is None:
            return self.subjects
        attacked, needed = ({cell.subject for cell in cells} for cells in (self.cells, self.runs_in_this_part))
        others = [subject for subject, _ in self.subjects if subject not in attacked]
        needed |= {*others[self.part.number - 1 :: self.part.of]}
        return tuple(pair for pair in self.subjects if pair[0] in needed)

    @property
    def images(self) -> int:
        """Images that go through a task here, counted once for each: the unit of progress."""
        tasks = [subject for subject, _ in self.subjects_here]
        tasks += [subject for subject, _ in self.transfers_here]
        spans = (len(cell.shard_slice(shard)) for cell in self.runs_in_this_part for shard in self.shards(cell))
        return sum(subject.images for subject in tasks) + sum(spans)


def read_part(text: str) -> Part:
    """The part that a text names: "3/64".

    Raises:
        InvalidInput: if it names none; of a count from 0 with what to tell the scheduler.
    """
    number, _, of = text.strip().partition("/")
    if not (number.isdecimal() and of.isdecimal() and len(of) < 10):
        advice = "; is the variable of the scheduler set?" if text.strip().startswith("/") else ""
        raise InvalidInput(f"expected a part as K/N with K from 1 to N (3/64), got {text!r}{advice}")
    part = Part(int(number[:10]), int(of))
    if not 1 <= part.of <= MOST_PARTS:
        raise InvalidInput(f"expected 1 to {MOST_PARTS} parts, got {text!r}")
    if not 1 <= part.number <= part.of:
        raise InvalidInput(
            f"expected a part from 1 to {part.of}, got {text!r}: parts count from 1 (Slurm: --array=1-{part.of})"
        )
    return part


def count_processes(workers: int, part: Part | None) -> int:
    """How many processes ask servers at once, each at its share of the rate, where every part has as many workers."""
    return workers if part is None else workers * part.of


def assign_shards(cells: Iterable[AttackRun], of: int) -> dict[str, tuple[int, ...]]:
    """The part that each shard of each cell belongs to.

    The dearest pieces are dealt first, each to the part that has least to do so far. The cost of a piece is its images
    times the passes that one is expected to take (`expected_passes`). Equal pieces go round in the order of the plan,
    so every part gets of every model: how dear a model is need not be known.

    Args:
        cells: of a plan, in its order.
        of: number of parts.

    Returns:
        By key of the cell the number of the part, from 1, of each of its shards.
    """
    pieces = [
        (estimate_queries(cell) * len(cell.shard_slice(shard)), cell.key, shard)
        for cell in cells
        for shard in range(cell.shards)
    ]
    pieces.sort(key=lambda piece: -piece[0])  # stable: the same on every machine
    loads = [(0.0, number) for number in range(1, of + 1)]
    parts: dict[str, dict[int, int]] = {}
    for cost, key, shard in pieces:
        load, number = loads[0]
        heapq.heapreplace(loads, (load + cost, number))
        parts.setdefault(key, {})[shard] = number
    return {key: tuple(number for _, number in sorted(of_cell.items())) for key, of_cell in parts.items()}


def plan_for_part(plan: Plan, part: Part) -> Plan:
    """The plan of one part: the same cells, of which only its pieces are run.

    Every process that makes the same plan knows the same parts. Records do not say which part made them.

    Args:
        plan: of the whole evaluation.
        part: which of how many.
    """
    return replace(plan, part=part, parts=assign_shards(plan.cells, part.of))
