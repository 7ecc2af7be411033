"""The function `challenge`, which evaluates a defended model with adaptive attacks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...adapters import Classifier
from ...adapters.catalogue.default_threat_model import default_epsilon
from ...adapters.data.datasets import Data, load_data_for
from ...adapters.data.duplicates import note_fewer
from ...errors import InvalidInput
from ..sources import LOADED_HERE, LoadOptions
from .challenge_result import ChallengeResult, document_of, keep_document
from .challenger import ChallengedModel, ChallengeRunner, Say
from .gradient_variants import gradient_variants, split_original
from .inner_passes import optimisation_note
from .suite import QUICK, QUICK_IMAGES, ChallengeBudget, check_norm

_FRESH_SAMPLES = (
    "the model is random, so the best example of each image is judged again on new samples. The worst-case "
    "accuracy is therefore usually higher than RA of `table` and `gate`, which take the lowest of several "
    "estimates and are biased low"
)


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
    """Evaluate a defence with adaptive attacks (Carlini et al. 2019; Tramer et al. 2020), and return the verdict.

    The attacks are:

    - gradient attacks: APGD on cross-entropy and on two logit-difference ratios. They run through every gradient
      variant of the defence: treated as the identity (BPDA) and, if a library has one, with its exact derivative. For a
      randomised defence, they use the mean of several samples (EOT);
    - examples transferred from the undefended model and other models;
    - score-based and decision-based attacks;
    - gradient attacks at larger radii, until no image is classified correctly.

    The verdict counts an image as fooled if any attack fools the image, and uses the failure indicators of the results
    folder. If the challenge is interrupted, call the function again with the same arguments to resume.

    Args:
        model: name of the defended model, such as "MODEL+DEFENCE", or a classifier.
        data: name of the data, or images with labels.
        original: the undefended model. None removes the defences from the name of the model. If the name has no
            defences, the model is not compared with an undefended model.
        surrogates: additional models whose examples are transferred to the defended model.
        out: results folder. Its report has a section on the challenge.
        norm: norm of the radius, "linf" or "l2".
        epsilon: radius. None for the customary radius of the norm and image size.
        limit: number of images to use. None for all.
        quick: whether to make only a quick trial, with 10 images and 10 steps.
        effort: fields of `ChallengeBudget` to override, by name, such as {"steps": 100}.
        seed: random seed.
        device: device for models given by name.
        loading: options for loading models by name.
        say: function that is called with the result of each attack, when the attack is finished.

    Raises:
        DavylampError: If a name is unknown, or if the model cannot be used on these images.
    """
    chosen = replace(QUICK if quick else ChallengeBudget(), **dict(effort or {}))
    defendant = _defendant(model, original, surrogates, partial(loading.load, device=device))
    asked, limit = limit, QUICK_IMAGES if quick and limit is None else limit
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
    notes = [
        *note_fewer(name, len(images.labels), asked),
        *_quick_note(len(images.labels), len(images.labels if isinstance(data, str) else data.labels), chosen, quick),
        *run.notes,
        *([_FRESH_SAMPLES] if defendant.model.random else []),
        *optimisation_note(defendant.model, images.inputs[:1].to(defendant.model.device)),
    ]
    done = replace(run, notes=tuple(notes))
    keep_document(out, document_of(done))
    return done


def _quick_note(images: int, given: int, effort: ChallengeBudget, quick: bool) -> list[str]:
    """Return a note on the number of images and the budget of a quick trial."""
    of = f" of {given}" if given > images else ""
    line = f"quick trial: {images}{of} images, {effort.steps} steps, {effort.queries} queries of each black-box attack"
    return [line] * quick


def _defendant(
    model: str | Classifier,
    original: str | Classifier | None,
    surrogates: Iterable[str] | Mapping[str, Classifier],
    load: Callable[[str], Classifier],
) -> ChallengedModel:
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
        raise InvalidInput(f"the undefended model must differ from the defended model, got {name} as both models")
    others = dict(surrogates) if isinstance(surrogates, Mapping) else dict.fromkeys(surrogates)
    known |= {each: load(each) if made is None else made for each, made in others.items()}
    defended = load(model) if isinstance(model, str) else model
    return ChallengedModel(
        name, defended, plain or "", stand_ins, known, tuple(each for each in others if each != plain)
    )
