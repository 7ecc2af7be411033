"""Evaluation in blocks of images in random order, until a question is decided."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ...adapters.data.duplicates import duplicate_warning
from ...errors import Unavailable
from ..plan.plan import Plan
from ..run.evaluate import EvaluationSummary
from ..run.run_index import with_stored_runs
from ..sources import DrawnImages
from ..store.results import Results, read_outcomes
from ..store.sequence import SequenceRecord, read_sequence, write_sequence
from ..store.store import ResultsStore
from ..tables.symbols import UNION
from .drawing import count_images, draw_images, remove_results, reuse_shards
from .question import Answers, Question, SequentialAnswer, describe_order, is_decided

_GROWTH = 0.1  # smallest block, as a part of the images so far: each block repeats the clean predictions
Run = Callable[[Plan, SequenceRecord], EvaluationSummary]


class Stopped(NamedTuple):
    """A stopped evaluation: the plan of its images, the summary of the last block, and the record."""

    plan: Plan
    summary: EvaluationSummary
    record: SequenceRecord


def evaluate_until(
    plan: Plan,
    images: Mapping[str, DrawnImages],
    store: ResultsStore,
    question: Question,
    *,
    seed: int,
    workers: int,
    run: Run,
) -> Stopped:
    """Run a plan on blocks of images in random order until the question is decided, or a run fails.

    Each block is an evaluation of the images so far, whose finished shards are reused. A killed call resumes in its
    block; several processes with the same arguments share the work. A call with a different question continues with the
    images so far. If their results have more metrics than planned, all images get them. Results of earlier blocks are
    removed, because results of later blocks contain them.

    Args:
        plan: plan on all images.
        images: images of each model in random order, by key of the model on data. Only the images that are attacked are
            decoded.
        store: results folder.
        question: when to stop.
        seed: seed of the order of the images.
        workers: number of simultaneous tasks, which determines the number of shards of a block.
        run: evaluates the plan of a block; the record has the answers after the blocks before it.

    Raises:
        InvalidInput: if the runs cannot answer the question, or need all images at once.
        DavylampError: as `run`.
    """
    population = count_images(plan)
    drawn = population, seed
    question.check(plan.cells)
    unit = max(cell.shard_size for cell in plan.cells)
    record = read_sequence(store)
    if record is None or (record.population, record.seed) != drawn:
        there = _images_there(store, drawn) or next_block(0, unit, workers, population)
        record = SequenceRecord(question.text, *drawn, there)
    record = replace(record, until=question.text, answers=(), is_decided=False)
    answers, seconds = Answers(question), 0.0
    while True:
        here = with_stored_runs(draw_images(plan, images, drawn, record.images), store)
        write_sequence(store, record)
        earlier = None
        if record.before:
            earlier = with_stored_runs(draw_images(plan, images, drawn, record.before), store)
            here = reuse_shards(store, earlier, here)
        summary = run(here, record)
        seconds += summary.seconds
        if earlier is not None:
            remove_results(store, earlier)
        if summary.failed:
            break
        answered = answers.update(results_of_plan(store, here))
        decided = is_decided(answered)
        record = replace(record, before=0, answers=_texts(question, answered), is_decided=decided)
        write_sequence(store, record)
        if decided or record.images == population:
            break
        following = next_block(record.images, unit, workers, population)
        record = replace(record, before=record.images, images=following)
    duplicates = dict.fromkeys(
        line for each in images.values() for line in duplicate_warning(*each.take(record.images)[:2])
    )
    here = replace(here, notes=(*here.notes, *duplicates))
    return Stopped(here, summary._replace(seconds=seconds), record)


def _images_there(store: ResultsStore, drawn: tuple[int, int]) -> int:
    """Return the number of images of the finished runs on these images in this order, for a folder without a record."""
    try:
        done = read_outcomes(store.folder, []).done
    except Unavailable:
        return 0
    return max((each.cell.subject.images for each in done if each.cell.subject.drawn == drawn), default=0)


def next_block(images: int, shard_size: int, workers: int, population: int) -> int:
    """Return the number of images at the end of the next block, from the number at its beginning."""
    shards = max(workers, 1, math.ceil(_GROWTH * images / shard_size))
    return min(images + shards * shard_size, population)


def results_of_plan(store: ResultsStore, plan: Plan) -> Results:
    """Read the results of a plan's runs.

    Raises:
        Unavailable: if there are none.
    """
    outcomes = read_outcomes(store.folder, ["CA", "RA", UNION])
    keys = {cell.key for cell in plan.cells}
    done = tuple(each for each in outcomes.done if each.cell.key in keys)
    if not done:
        raise Unavailable(f"{store.folder} has results of these models on more images; choose a different folder")
    return replace(outcomes, done=done, failed=())


def _texts(question: Question, answers: list[SequentialAnswer]) -> tuple[str, ...]:
    """Return the answers as sentences: for an order of models, one for each threat model."""
    if not question.is_of_pairs or question.pair:
        return tuple(map(str, answers))
    threats = dict.fromkeys(answer.threat for answer in answers)
    orders = ((threat, [answer for answer in answers if answer.threat == threat]) for threat in threats)
    return tuple(f"{threat}: {describe_order(pairs)} (> decided, ~ not)" for threat, pairs in orders)
