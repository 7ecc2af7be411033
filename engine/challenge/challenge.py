"""The verb: challenge a defended model by its name, or handed over."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...adapters import Classifier
from ...adapters.catalogue.default_threat_model import default_epsilon
from ...adapters.data.datasets import Data, load_data_for
from ...errors import InvalidInput
from ..sources import LOADED_HERE, LoadOptions
from .challenge_result import ChallengeResult, document_of, keep_document
from .challenger import ChallengedModel, ChallengeRunner, Say
from .gradient_variants import gradient_variants, split_original
from .suite import QUICK, QUICK_IMAGES, ChallengeBudget, check_norm


def challenge(  # noqa: PLR0913 - what is attacked by position, the choices by keyword
    model: str | Classifier,
    data: str | Data = "demo:imagenet",
    *,
    original: str | Classifier | None = None,
    surrogates: Iterable[str] | Mapping[str, Classifier] = (),
    out: str | Path = "challenge",
    norm: str = "linf",
    epsilon: float | None = None,
    limit: int | None = None,
    quick: bool = False,
    effort: Mapping[str, int] | None = None,
    seed: int = 0,
    device: str = "cpu",
    loading: LoadOptions = LOADED_HERE,
    say: Say | None = None,
) -> ChallengeResult:
    """Evaluate a defence by attacks that adapt to it (Carlini et al. 2019; Tramer et al. 2020), into a results folder.

    APGD on the cross-entropy and on two logit-difference ratios, through every way in which gradients can pass the
    defence (BPDA, the derivative where a library has it) and through the mean of its draws (EOT); examples of the
    undefended and of other models; black boxes that see scores or decisions; larger radii until nothing is right; the
    failure indicators of the folder. The verdict counts the worst case of each image. A killed run goes on where it
    was when it is called again.

    Args:
        model: "MODEL+DEFENCE", any other name, or a classifier.
        data: a name that `load_data` knows, or images and labels.
        original: the undefended model; None: the model's name without its defences, or nothing to compare with.
        surrogates: other models that examples are made on.
        out: the results folder; the report of it has a section for the challenge.
        norm: "linf" or "l2".
        epsilon: the radius; None: the customary one.
        limit: only this many images.
        quick: a first look: 10 images, 10 steps.
        effort: fields of `ChallengeBudget` in place of its values: steps, candidates, queries, eot, draws.
        seed: random seed.
        device: where to compute.
        loading: how models are loaded by name.
        say: called with each attempt as soon as it is done.

    Raises:
        DavylampError: if a name is unknown, or the model cannot be used on these images.
    """
    chosen = replace(QUICK if quick else ChallengeBudget(), **dict(effort or {}))
    defendant = _defendant(model, original, surrogates, partial(loading.load, device=device))
    limit = QUICK_IMAGES if quick and limit is None else limit
    if isinstance(data, str):
        images, name = load_data_for(defendant.model, data, limit), data
    else:
        images, name = Data(data.inputs[:limit], data.labels[:limit], data.names[:limit]), "given"
    if epsilon is None:
        epsilon = default_epsilon(check_norm(norm), images.inputs[0].numel())
    assert epsilon is not None
    run = ChallengeRunner(
        defendant, images, name, out, norm=norm, epsilon=epsilon, effort=chosen, seed=seed, say=say
    ).run()
    keep_document(out, document_of(run))
    return run


def _defendant(
    model: str | Classifier,
    original: str | Classifier | None,
    surrogates: Iterable[str] | Mapping[str, Classifier],
    load: Callable[[str], Classifier],
) -> ChallengedModel:
    """Every model that is needed, loaded."""
    name = model if isinstance(model, str) else model.name
    known: dict[str, Classifier] = {}
    stand_ins: dict[str, str] = {}
    plain = original if original is None or isinstance(original, str) else original.name
    if isinstance(model, str):
        head, parts = split_original(model)
        plain = head if plain is None and parts else plain
        stand_ins = gradient_variants(model) if parts else {}
        known |= {each: load(each) for each in stand_ins}
    if isinstance(original, Classifier):
        known[plain or ""] = original
    elif plain:
        known[plain] = load(plain)
    if plain == name:
        raise InvalidInput(f"expected an undefended model other than the defended one, got {name} for both")
    others = dict(surrogates) if isinstance(surrogates, Mapping) else dict.fromkeys(surrogates)
    known |= {each: load(each) if made is None else made for each, made in others.items()}
    defended = load(model) if isinstance(model, str) else model
    return ChallengedModel(
        name, defended, plain or "", stand_ins, known, tuple(each for each in others if each != plain)
    )
