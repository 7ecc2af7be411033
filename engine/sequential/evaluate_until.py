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
from ..store.notes import unsteady_models
from ..store.results import Results, read_outcomes
from ..store.sequence import SequenceRecord, read_sequence, write_sequence
from ..store.store import EvaluatedFolder, ResultsStore
from ..tables.symbols import UNION
from .drawing import count_images, draw_images, remove_results, reuse_shards
from .question import Answers, Question, SequentialAnswer, describe_order, is_decided

_GROWTH = 0.1  # smallest block, as a part of the images so far: each block repeats the clean predictions
Run = Callable[[Plan, SequenceRecord], EvaluationSummary]


class Stopped(NamedTuple):
    """A stopped evaluation.

    Args:
        plan: plan for the images that were evaluated.
        summary: summary of the last block, with the seconds of all blocks.
        record: the record of the sequence in the results folder, with the answers.
    """

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
    """Evaluate blocks of images in random order until a question is decided, or a run fails.

    The evaluation also ends if a model that is not declared random returns different outputs for the same image,
    because its results cannot answer a question.

    Each block is an evaluation of the images so far, whose finished shards are reused. A killed call resumes in its
    block; several processes with the same arguments share the work. A call with a different question continues with the
    images so far. If their results have more metrics than planned, all images get them. Results of earlier blocks are
    removed, because results of later blocks contain them.

    Args:
        plan: plan on all images.
        images: images of each model in random order, by key of the model on data. Only the images that are attacked are
            decoded.
        store: results folder.
        question: the question to decide.
        seed: seed of the random order of the images.
        workers: number of simultaneous tasks, which determines the number of shards of a block.
        run: function that evaluates the plan of a block. Its second argument is the record of the sequence, with the
            answers after the earlier blocks.

    Raises:
        InvalidInput: if the runs cannot answer the question, or an attack needs all images at once.
        DavylampError: the errors of `run`.
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
        outcomes = results_of_plan(store, here)
        if unsteady := unsteady_models(outcomes):
            record = replace(record, before=0, answers=tuple(f"not judged: {line}" for line in unsteady))
            write_sequence(store, record)
            break
        answered = answers.update(outcomes)
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
    """Return the number of images of finished runs in this random order, for a folder without a sequence record."""
    try:
        done = read_outcomes(store.folder, []).done
    except Unavailable:
        return 0
    return max((each.cell.subject.images for each in done if each.cell.subject.drawn == drawn), default=0)


def next_block(images: int, shard_size: int, workers: int, population: int) -> int:
    """Return the number of images at the end of the next block. `images` is the number at its beginning."""
    shards = max(workers, 1, math.ceil(_GROWTH * images / shard_size))
    return min(images + shards * shard_size, population)


def results_of_plan(store: ResultsStore, plan: Plan) -> Results:
    """Read the results of a plan's runs from a folder.

    Raises:
        Unavailable: if the folder has no results of these runs.
    """
    mine = EvaluatedFolder(store.folder, frozenset(subject.key for subject, _ in plan.subjects))
    outcomes = read_outcomes(mine, ["CA", "RA", UNION])
    keys = {cell.key for cell in plan.cells}
    done = tuple(each for each in outcomes.done if each.cell.key in keys)
    if not done:
        raise Unavailable(f"{store.folder} has results of these models on more images; choose a different folder")
    return replace(outcomes, done=done, failed=())


def _texts(question: Question, answers: list[SequentialAnswer]) -> tuple[str, ...]:
    """Return the answers as sentences. For an order of models, return a sentence for each threat model."""
    if not question.is_of_pairs or question.pair:
        return tuple(map(str, answers))
    threats = dict.fromkeys(answer.threat for answer in answers)
    orders = ((threat, [answer for answer in answers if answer.threat == threat]) for threat in threats)
    return tuple(f"{threat}: {describe_order(pairs)} (> decided, ~ not)" for threat, pairs in orders)
