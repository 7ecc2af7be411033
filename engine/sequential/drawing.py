"""Selects images of a plan in random order, and reuses finished runs as shards of runs on more images."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...adapters.models.identity.digest import digest_data
from ...errors import InvalidInput
from ..plan.plan import Plan
from ..run.run_index import replace_runs
from ..sources import DrawnImages, LoadedCache
from ..store.record_validation import usable_record
from ..store.store import ResultsStore


def count_images(plan: Plan) -> int:
    """Return the number of images of a plan, which must be the same for every model.

    Raises:
        InvalidInput: if they differ, or if a result on an image would depend on the number of images.
    """
    for cell in plan.cells:
        if cell.needs_all_images or cell.fitted_on is not None:
            why = "is fitted before it attacks" if cell.fitted_on is not None else "needs all images at once"
            raise InvalidInput(f"`until` adds images block by block, but {cell.attack} {why}; omit this attack")
    if plan.config.images:
        raise InvalidInput("`until` draws images at random: it cannot be combined with `images`, which names them")
    counts = {subject.model: subject.images for subject, _ in plan.subjects}
    if len({*counts.values()}) > 1:
        listed = ", ".join(f"{model}: {count}" for model, count in counts.items())
        raise InvalidInput(f"`until` needs the same images for every model, got {listed}")
    return next(iter(counts.values()))


def draw_images(plan: Plan, images: Mapping[str, DrawnImages], drawn: tuple[int, int], count: int) -> Plan:
    """Return a plan on the first images in random order.

    Args:
        plan: plan on all images.
        images: images of each model in random order, by key of the model on data.
        drawn: number of all images, and seed of their order.
        count: number of images to use.
    """
    digests = {id(each): digest_data(*each.take(count)[:2]) for each in images.values()}
    subjects = {
        subject.key: replace(subject, images=count, drawn=drawn, data_digest=digests[id(images[subject.key])])
        for subject, _ in plan.subjects
    }
    cells = {cell.key: replace(cell, subject=subjects[cell.subject.key]) for cell in plan.cells}
    keys = {key: each.key for key, each in [*subjects.items(), *cells.items()]}

    def rename(known: Mapping[str, Any]) -> dict[str, Any]:
        return {keys[key]: each for key, each in known.items()}

    return replace(
        plan,
        subjects=tuple((subjects[subject.key], source) for subject, source in plan.subjects),
        cells=tuple(cells.values()),
        data=replace(plan.data, limit=count, drawn=drawn),
        unknown=rename(plan.unknown),
        choices=rename(plan.choices),
        loaded=LoadedCache(),
    )


def reuse_shards(store: ResultsStore, before: Plan, after: Plan) -> Plan:
    """Store finished runs on the first images as shards of the same runs on more images.

    Args:
        store: the folder.
        before: plan with the stored runs on the first images, a multiple of the shard size.
        after: plan with the same runs on more images.

    Returns:
        The plan on more images, with all measures that the stored runs have, so that every image has them.
    """
    there, done = {*store.keys("parts")}, {*store.keys("cells")}
    pairs = zip(before.cells, after.cells, strict=True)
    wider = {new.key: replace(new, measures=old.measured, added=()) for old, new in pairs if new.key not in done}
    after = replace_runs(after, wider)
    for old, new in zip(before.cells, after.cells, strict=True):
        lacking = [shard for shard in range(old.shards) if f"{new.key}-{shard}" not in there]
        record = usable_record(store, "cells", old.key) if lacking and not store.files("cells", new.key) else None
        if record is None or record.failed:
            continue
        for shard in lacking:
            span = old.shard_slice(shard)
            part = len(span) / old.subject.images
            meta = dict(record.meta) | {"key": new.key, "spec": new.spec, "subject": new.subject.spec}
            meta |= {name: record.meta[name] * part for name in ("seconds", "attack_seconds")}
            meta |= {"traffic": None} if shard and "traffic" in meta else {}
            meta = {name: value for name, value in meta.items() if name not in ("added", "added_on")}
            images = store.images_path(f"{old.key}-{shard}")
            if images.is_file():
                shutil.copyfile(images, store.images_path(f"{new.key}-{shard}"))
            store.write("parts", f"{new.key}-{shard}", record.table.slice(span.start, len(span)), meta)
    return after


def remove_results(store: ResultsStore, plan: Plan) -> None:
    """Remove the results of a plan, because the results on more images contain them."""
    for cell in plan.cells:
        for shard in range(cell.shards):
            store.remove("parts", f"{cell.key}-{shard}")
            store.images_path(f"{cell.key}-{shard}").unlink(missing_ok=True)
        store.remove("cells", cell.key)
        for key in store.keys("transfer"):
            if key.partition("-")[0] == cell.key:
                store.remove("transfer", key)
    for subject, _ in plan.subjects:
        store.remove("clean", subject.key)
