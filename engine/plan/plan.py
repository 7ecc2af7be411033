"""The plan of an evaluation, which lists its runs, and the parts of a plan for job arrays."""

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
    """One of several parts of an evaluation, which run as separate jobs.

    Args:
        number: number of the part, from 1.
        of: number of parts.
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class Plan:
    """The runs of an evaluation, with their models and data.

    Args:
        config: settings of the evaluation, with complete model names instead of patterns.
        subjects: each evaluated model with its images, and how to load the model.
        cells: the runs, in the order in which they run. All runs of a model follow each other.
        data: how to load the images.
        failed: reason why a model or an implementation is not evaluated, by its name.
        unknown: reason why a model, an attack or a metric cannot be identified completely, by its name. The outer key
            is that of a model on data or of a run. Records of such a model or run are not reused by other plans.
        name: unique name of this plan, which is stored in the records that other plans must not reuse.
        choices: indices of the attacks of a run in `config.attacks`, by key of the run.
        surrogates: how to load the members of each surrogate, by the identities of the members. The key () is for runs
            without a surrogate.
        fit: how to load the images for fitted attacks. None if attacks are fitted on the evaluation images.
        notes: notes for the user that arose when the models were loaded.
        traffic: number of server queries that identified remote models.
        part: the part of the evaluation to run in this job, see `plan_for_part`. None to run the whole evaluation.
        parts: for each shard of a run, the number of the part that runs the shard. By key of the run.
        loaded: cache with the last model and its images, which runs in this process can use.
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
        """Return how to load the model of a model on data."""
        return next(source for known, source in self.subjects if known == subject)

    def surrogate(self, cell: AttackRun) -> tuple[ModelSource, ...]:
        """Return how to load the members of a run's surrogate; empty if the run has no surrogate."""
        return self.surrogates.get(cell.surrogate, ())

    @property
    def transfers(self) -> list[tuple[ModelOnData, AttackRun]]:
        """Transfer tests of the plan: pairs of a model and a run whose examples are tested on this model.

        The model and the run have the same images.
        """
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
        """Transfer tests of the runs that have a shard in this part.

        A transfer test of a run is computed by the part that finds all shards of the run finished.
        """
        return [(subject, cell) for subject, cell in self.transfers if self.shards(cell)]

    @property
    def originals(self) -> dict[str, str]:
        """Undefended model whose examples are tested on a defended model, by name of the defended model.

        Empty if the field `examples` of the config is "defended".
        """
        return {} if self.config.examples == "defended" else undefended_models(self.config.models)

    def shards(self, cell: AttackRun) -> list[int]:
        """Return the numbers of the shards of a run that belong to this part. If `part` is None, return all shards."""
        numbers = range(cell.shards)
        return [*numbers] if self.part is None else [n for n in numbers if self.parts[cell.key][n] == self.part.number]

    @property
    def runs_in_this_part(self) -> tuple[AttackRun, ...]:
        """Runs that have at least one shard in this part, in the order of the plan."""
        return self.cells if self.part is None else tuple(cell for cell in self.cells if self.shards(cell))

    @property
    def subjects_here(self) -> tuple[tuple[ModelOnData, ModelSource], ...]:
        """The models, each with its images, that this part of the work needs, and how to load each model.

        A part needs the models of its runs. If a model has no run, one of the parts evaluates its clean images.
        """
        if self.part is None:
            return self.subjects
        attacked, needed = ({cell.subject for cell in cells} for cells in (self.cells, self.runs_in_this_part))
        others = [subject for subject, _ in self.subjects if subject not in attacked]
        needed |= {*others[self.part.number - 1 :: self.part.of]}
        return tuple(pair for pair in self.subjects if pair[0] in needed)

    @property
    def images(self) -> int:
        """Number of images over all tasks of this part, which is the total of the progress display.

        An image counts once for each task in which it is used.
        """
        tasks = [subject for subject, _ in self.subjects_here]
        tasks += [subject for subject, _ in self.transfers_here]
        spans = (len(cell.shard_slice(shard)) for cell in self.runs_in_this_part for shard in self.shards(cell))
        return sum(subject.images for subject in tasks) + sum(spans)


def read_part(text: str) -> Part:
    """Parse a part such as "3/64".

    Raises:
        InvalidInput: if the text is not a part K/N with K from 1 to N.
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
    """Return the number of processes that may query a server at the same time."""
    return workers if part is None else workers * part.of


def assign_shards(cells: Iterable[AttackRun], of: int) -> dict[str, tuple[int, ...]]:
    """Assign each shard of each run to a part, so that all parts have about the same work.

    Shards are assigned by descending cost, each to the part with the least work so far. The cost of a shard is its
    number of images times the expected number of passes per image (`estimate_queries`). The shards of one run have
    about the same cost, so they are spread over the parts, and each part gets shards of fast and of slow models.

    Args:
        cells: runs of a plan, in the order of the plan.
        of: number of parts.

    Returns:
        The number of the part of each shard, from 1, by key of the run.
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
    """Return the plan that runs one part of an evaluation. It has the same runs, of which the part runs some shards.

    Jobs need no communication, because the same plan always gives the same parts. Records do not depend on the part.

    Args:
        plan: plan of the whole evaluation.
        part: the part to run.
    """
    return replace(plan, part=part, parts=assign_shards(plan.cells, part.of))
