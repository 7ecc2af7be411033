"""Rebuilds the config of stored runs, so that they can be repeated."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from ...adapters.models.classifier import DRAWS
from ..attack_run import AttackRun, ModelOnData
from ..defence_pairs import undefended_models
from ..user_metrics import plain_name
from .config import AttackChoice, Config, Examples, Transfer


class TransferRun(NamedTuple):
    """Settings of a config that give the transfer tests of a folder.

    `rule` is the value of `transfer` that covers all tests, and `first` the first model for the rule "simple". Under
    this rule there are `asked` pairs of a run and a different model on the same images, of which `tested` are in the
    folder. If examples of an undefended model were tested on its defences, `examples` is set and `defended` lists the
    defences.
    """

    rule: Transfer
    first: str = ""
    tested: int = 0
    asked: int = 0
    examples: Examples = "defended"
    defended: tuple[str, ...] = ()


def transfer_of(
    cells: Sequence[AttackRun],
    transfers: Mapping[str, Mapping[str, object]],
    others: Mapping[str, ModelOnData] | None = None,
) -> TransferRun:
    """Return the transfer setting that covers the tests in a folder.

    Args:
        cells: finished runs.
        transfers: tests by key of the run and key of the tested model on data, as in `Results`.
        others: further models on data, by key, which may have no run.
    """
    if shown := _shown_to_defences(cells, transfers, others or {}):
        return shown
    subjects = {cell.subject.key: cell.subject for cell in cells}
    pairs = [
        (cell.subject.model, subject.model, key in transfers.get(cell.key, {}))
        for cell in cells
        if not cell.surrogate
        for key, subject in subjects.items()
        if key != cell.subject.key and subject.data_digest == cell.subject.data_digest
    ]
    tested = sum(done for *_, done in pairs)
    if not tested:
        return TransferRun("no")
    if tested < len(pairs):
        for name in dict.fromkeys(subject.model for subject in subjects.values()):
            tests = [done for source, target, done in pairs if name in (source, target)]
            if sum(tests) == tested:
                return TransferRun("simple", name, tested, len(tests))
    return TransferRun("full", "", tested, len(pairs))


def _shown_to_defences(
    cells: Sequence[AttackRun], transfers: Mapping[str, Mapping[str, object]], others: Mapping[str, ModelOnData]
) -> TransferRun | None:
    """Return the tests of undefended models' examples on their defences; None if there are other tests."""
    subjects = {**others, **{cell.subject.key: cell.subject for cell in cells}}
    tested = {
        (cell.subject.model, subjects[key].model)
        for cell in cells
        for key in transfers.get(cell.key, {})
        if key in subjects
    }
    sources, attacked = sorted({source for source, _ in tested}), {cell.subject.model for cell in cells}
    models = list(dict.fromkeys([*sources, *(subject.model for subject in subjects.values())]))
    if not tested or any(undefended_models(models).get(target) != source for source, target in tested):
        return None
    defended = tuple(dict.fromkeys(target for _, target in sorted(tested)))
    examples: Examples = "both" if attacked & set(defended) else "original"
    count = sum(key in subjects for cell in cells for key in transfers.get(cell.key, {}))
    return TransferRun("no", sources[0], count, count, examples, defended)


def configs_of(
    cells: Iterable[AttackRun],
    *,
    transfer: Transfer = "no",
    first: str = "",
    examples: Examples = "defended",
    defended: Sequence[str] = (),
) -> tuple[Config, ...]:
    """Return configs whose plans contain these runs, with equal keys: one for each data set and set of shared settings.

    A config combines every model with every attack and seed, so its plan may have runs that the folder lacks. If the
    images were drawn at random, the config has the whole population. Metrics that were measured later are among its
    measures, so such a run has a different key.

    Args:
        cells: runs of a results folder.
        transfer: transfer rule of the evaluation.
        first: the first model, from which "simple" starts.
        examples: examples for its defended models.
        defended: models tested on examples of their undefended models, which may have no runs.
    """
    groups: dict[str, list[AttackRun]] = {}
    for cell in cells:
        subject = cell.subject
        shared = [
            subject.data,
            subject.data_digest,
            subject.images,
            subject.chosen,
            subject.drawn,
            cell.pixels,
            cell.measured,
            cell.shard_size,
            [asdict(each) for each in cell.surrogate],
            asdict(cell.fitted_on) if cell.fitted_on and cell.fitted_on.images else None,
            [cell.draws, cell.eot],
            cell.attack if cell.search.kind == "worst-case" else "",
            cell.parameters if cell.search.kind == "worst-case" else {},
        ]
        groups.setdefault(json.dumps(shared), []).append(cell)
    return tuple(
        replace(config, examples=examples, models=tuple(dict.fromkeys((*config.models, *defended))))
        if examples != "defended" and not config.surrogate and (not first or first in config.models)
        else config
        for config in (_config(group, transfer, first) for group in groups.values())
    )


def _config(cells: list[AttackRun], transfer: Transfer, model: str) -> Config:
    first = cells[0]
    names = dict.fromkeys(cell.subject.model for cell in cells)
    each = (member for cell in cells for member in cell.members)
    choices = {json.dumps(_plain(cell), sort_keys=True): _choice(cell) for cell in each}
    fit = first.fitted_on if first.fitted_on and first.fitted_on.images else None
    fit = None if fit and fit.data_digest == first.subject.data_digest else fit
    return Config(
        models=tuple(sorted(names, key=lambda name: name != model)),
        attacks=tuple(choices.values()),
        data=first.subject.data,
        limit=None if first.subject.chosen else first.subject.population or first.subject.images,
        images=first.subject.chosen,
        seeds=tuple(sorted({cell.seed for cell in cells})),
        eight_bit=first.pixels,
        transfer="no" if first.surrogate else transfer,
        measures=tuple(map(plain_name, first.measured)),
        shard_size=first.shard_size,
        surrogate=tuple(each.model for each in first.surrogate),
        fit_data=fit.data if fit else "",
        fit_limit=fit.images if fit else None,
        judge_samples=first.draws or DRAWS,
        eot=first.eot,
        stop_when_fooled=first.search.kind == "worst-case",
    )


def _choice(cell: AttackRun) -> AttackChoice:
    """Build an attack choice with every parameter of the run, so that no parameter is matched again."""
    threat = cell.as_planned.threat_model
    return AttackChoice(
        cell.attack, threat.norm, threat.epsilon, cell.target, cell.parameters, cell.grid, defaults=True
    )


def _plain(cell: AttackRun) -> list[object]:
    threat = cell.as_planned.threat_model
    grid = {name: list(values) for name, values in cell.grid.items()}
    return [cell.attack, threat.norm, threat.epsilon, cell.target, dict(cell.parameters), grid]
