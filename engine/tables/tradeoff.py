"""Trade-off between clean and robust accuracy, for a model and its defences."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..defence_pairs import named_originals
from ..statistics.bootstrap import Estimate
from ..store.results import CleanResult, Results, RunResult
from ..store.shown import robust_when_shown
from .estimates import estimate_share
from .groups import model_names, plain_setting_of, threat_labels

MadeOn = Literal["own", "original"]
_Robust = tuple[np.ndarray, np.ndarray]  # for each image, (n,): with invalid results as 0, and as 1


class Point(NamedTuple):
    """Clean and robust accuracy of a model, as rates of all images.

    An image counts in the robust accuracy if it is correct when clean and robust to all attacks. For a random model,
    the value of an image is the rate over its samples. Records of earlier versions lack this rate for transferred
    examples; there, the value of the median sample is used.

    Args:
        model: display name of the model.
        clean: clean accuracy.
        robust: robust accuracy.
        undecided: number of images with an invalid or non-finite result that no attack fools. These images count as 0
            in the robust accuracy and in the lower bound of its interval, and as 1 in the upper bound.
    """

    model: str
    clean: Estimate
    robust: Estimate
    undecided: int = 0


class TradeOff(NamedTuple):
    """An undefended model and its defences under one threat model.

    Args:
        points: a point for the undefended model, then one for each defence, on the same images.
        threat: norm, epsilon and targeted, from `groups.threat_labels`.
        made_on: "own" if every model was attacked directly. "original" if all models were tested on the undefended
            model's examples.
        attacks: attacks that ran for all points. For each image, the worst attack counts.
    """

    points: tuple[Point, ...]
    threat: Mapping[str, object]
    made_on: MadeOn
    attacks: tuple[str, ...]


def build_tradeoffs(outcomes: Results) -> list[TradeOff]:
    """Build the trade-offs of every undefended model and its defences, for each threat model with a radius.

    A model is a defence of an undefended model if its name says so (`ORIGINAL+DEFENCE`), or if only the examples of the
    undefended model were tested on it.

    Args:
        outcomes: results of a folder, with transfers (`as_results(folder, ["OTR"])`).
    """
    tradeoffs: list[TradeOff] = []
    for original, defended in defences_by_original(outcomes).items():
        for made_on in ("own", "original"):
            tradeoffs += _tradeoffs(outcomes, original, defended, made_on)
    return tradeoffs


def defences_by_original(outcomes: Results) -> dict[str, list[str]]:
    """Return the keys of defended models, by the key of their undefended model on the same images."""
    families: dict[str, list[str]] = {}
    subjects = outcomes.subjects
    of_data: dict[str, dict[str, str]] = {}
    for key, subject in subjects.items():
        of_data.setdefault(subject.data_digest, {})[subject.model] = key
    originals = {digest: named_originals(list(alike)) for digest, alike in of_data.items()}
    for key, subject in subjects.items():
        alike, original = of_data[subject.data_digest], originals[subject.data_digest].get(subject.model)
        source = alike[original] if original else _shown_by(outcomes, key)
        if source and source != key:
            families.setdefault(source, []).append(key)
    return families


def _shown_by(outcomes: Results, tested: str) -> str:
    """Return the key of the only model whose examples were tested on a model that was not attacked itself.

    Empty if the model was attacked, or if there is not exactly one such model.
    """
    transfers = outcomes.transfers or {}
    sources = {each.cell.subject.key for each in outcomes.done if tested in transfers.get(each.cell.key, {})}
    attacked = any(each.cell.subject.key == tested for each in outcomes.done)
    return sources.pop() if len(sources) == 1 and not attacked else ""


def _tradeoffs(outcomes: Results, original: str, defended: Sequence[str], made_on: MadeOn) -> list[TradeOff]:
    names, transfers = model_names(outcomes), outcomes.transfers or {}
    if original not in outcomes.clean:
        return []
    met: dict[str, dict[tuple[object, ...], list[_Robust]]] = {}
    labels: dict[tuple[object, ...], RunResult] = {}
    for outcome in outcomes.done:
        key, setting, results = outcome.cell.subject.key, plain_setting_of(outcome.cell), outcome.results
        if outcome.cell.threat_model.epsilon is None:
            continue
        labels.setdefault(setting, outcome)
        if key == original or (made_on == "own" and key in defended):
            met.setdefault(key, {}).setdefault(setting, []).append((results.robust, results.robust_at_most))
        if key == original and made_on == "original":
            for tested in defended:
                if tested in transfers.get(outcome.cell.key, {}) and tested in outcomes.clean:
                    robust = robust_when_shown(outcomes, outcome, tested)
                    met.setdefault(tested, {}).setdefault(setting, []).append(robust)
    models = [key for key in (original, *defended) if key in met and key in outcomes.clean]
    if len(models) < 2 or original not in models:
        return []
    shared = [setting for setting in met[original] if all(setting in met[key] for key in models)]
    threats: dict[str, list[tuple[object, ...]]] = {}
    for setting in shared:
        threats.setdefault(str(threat_labels(labels[setting].cell)), []).append(setting)
    return [
        TradeOff(
            tuple(_point(names[key], outcomes.clean[key], [met[key][each] for each in settings]) for key in models),
            threat_labels(labels[settings[0]].cell),
            made_on,
            tuple(labels[each].cell.title for each in settings),
        )
        for settings in threats.values()
    ]


def _point(name: str, clean: CleanResult, met: Sequence[Sequence[_Robust]]) -> Point:
    repeats = [robust for each in met for robust in each]
    least, most = (np.minimum.reduce([robust[end] for robust in repeats]) for end in (0, 1))
    right, population = clean.columns["CA"].astype(float), clean.subject.population
    accuracy = estimate_share([[right]], population=population)
    return Point(name, accuracy, estimate_share([[least]], [[most]], population=population), int((most > least).sum()))
