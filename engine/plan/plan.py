"""Plans of evaluations, and their parts for job arrays. Every process computes the same parts on its own."""

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

MOST_PARTS = 100_000  # more than the jobs of a scheduler


class Part(NamedTuple):
    """One part of an evaluation: its number, from 1, and the number of parts."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class Plan:
    """The runs of an evaluation, with their models and data.

    Args:
        config: the configuration with every pattern expanded.
        subjects: each model on its data, with its source.
        cells: runs in their order: model by model.
        data: source of the images.
        failed: models and implementations that are not evaluated, each with the reason.
        unknown: models, attacks and metrics that cannot be identified completely, each with the reason, by key of a
            model on data or a run. Records that depend on them are valid for this plan only.
        name: name of this plan, which is stored in these records.
        choices: indices in `config.attacks` of a run's attacks, by key of the run.
        surrogates: sources of surrogates, by identities; () stands for the evaluated model itself.
        fit: source of the images for fitted attacks; None for the evaluation images.
        notes: decisions made when the models were loaded.
        traffic: server queries used to identify the models.
        part: the part to run here, see `plan_for_part`; None for all.
        parts: number of the part of each shard of a run, by key of the run.
        loaded: the last model and its images, for runs in this process.
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
        """Return the source of a model on data."""
        return next(source for known, source in self.subjects if known == subject)

    def surrogate(self, cell: AttackRun) -> tuple[ModelSource, ...]:
        """Return the sources of a run's surrogate; empty if examples are made on the evaluated model."""
        return self.surrogates.get(cell.surrogate, ())

    @property
    def transfers(self) -> list[tuple[ModelOnData, AttackRun]]:
        """Pairs of a tested model and a run whose examples are tested on that model. Both have the same images."""
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
        """Transfers of runs that have a shard in this part.

        A part computes the transfers of a run if it finds that the run is complete.
        """
        return [(subject, cell) for subject, cell in self.transfers if self.shards(cell)]

    @property
    def originals(self) -> dict[str, str]:
        """Undefended model, by defended model that is tested on its examples. Empty if `examples` is "defended"."""
        return {} if self.config.examples == "defended" else undefended_models(self.config.models)

    def shards(self, cell: AttackRun) -> list[int]:
        """Return the shards of a run that belong to this part; all if there are no parts."""
        numbers = range(cell.shards)
        return [*numbers] if self.part is None else [n for n in numbers if self.parts[cell.key][n] == self.part.number]

    @property
    def runs_in_this_part(self) -> tuple[AttackRun, ...]:
        """Runs with a shard in this part."""
        return self.cells if self.part is None else tuple(cell for cell in self.cells if self.shards(cell))

    @property
    def subjects_here(self) -> tuple[tuple[ModelOnData, ModelSource], ...]:
        """Models on data of the runs in this part. Models without runs are distributed over the parts."""
        if self.part is None:
            return self.subjects
        attacked, needed = ({cell.subject for cell in cells} for cells in (self.cells, self.runs_in_this_part))
        others = [subject for subject, _ in self.subjects if subject not in attacked]
        needed |= {*others[self.part.number - 1 :: self.part.of]}
        return tuple(pair for pair in self.subjects if pair[0] in needed)

    @property
    def images(self) -> int:
        """Number of images in this part's tasks, the unit of progress. An image counts once for each task."""
        tasks = [subject for subject, _ in self.subjects_here]
        tasks += [subject for subject, _ in self.transfers_here]
        spans = (len(cell.shard_slice(shard)) for cell in self.runs_in_this_part for shard in self.shards(cell))
        return sum(subject.images for subject in tasks) + sum(spans)


def read_part(text: str) -> Part:
    """Parse a part such as "3/64".

    Raises:
        InvalidInput: if the text is not a part. If a scheduler counts from 0, the message says so.
    """
    number, _, of = text.strip().partition("/")
    if not (number.isdecimal() and of.isdecimal() and len(of) < 10):
        advice = "; check that the scheduler's variable is set" if text.strip().startswith("/") else ""
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
    """Return the number of processes that query servers at the same time: the workers of all parts."""
    return workers if part is None else workers * part.of


def assign_shards(cells: Iterable[AttackRun], of: int) -> dict[str, tuple[int, ...]]:
    """Assign each shard of each run to a part.

    The most expensive shards are assigned first, each to the part with the least work so far. The cost of a shard is
    its number of images times the expected passes per image (`expected_passes`). Equal shards are assigned in the order
    of the plan. Every part therefore gets shards of every model. This balances the parts although the models' speeds
    are unknown.

    Args:
        cells: runs of a plan, in its order.
        of: number of parts.

    Returns:
        For each run, by key, the numbers of its shards' parts, from 1.
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
    """Return the plan of one part: the same runs, limited to the part's shards.

    Every process with the same plan computes the same parts. Records do not contain their part.

    Args:
        plan: plan of the whole evaluation.
        part: the part to run.
    """
    return replace(plan, part=part, parts=assign_shards(plan.cells, part.of))
