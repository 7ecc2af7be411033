"""Checks a verdict file: a ZIP file with adversarial examples that, according to its author, fool a model."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import nn

from ..adapters.coercion import read_text
from ..adapters.models.zoo.load import add_parts
from ..engine.sharing.verdict_check import claim_row, describe_claim, judge_verdict, notes_on_verdict
from ..engine.sharing.verdict_file import read_verdict
from ..errors import InvalidInput
from .python_inputs import check_loading, coerce_labelled, lend_model
from .verb_result import VerbResult


def verify(
    file: str | Path,
    model: nn.Module | str | None = None,
    *,
    data: Any = None,
    key: str = "",
    device: str = "cpu",
    version: str = "",
    **loading: Any,
) -> VerbResult:
    """Check on a model whether the adversarial examples of a verdict file fool it, with one forward pass per image.

    The confirmed number of fooled images is a lower bound of the model's vulnerability. The attacks of the file's
    author need not be trusted for this bound. Clean images and labels are also read from the file. Give `data` to check
    whether the author changed these images or labels.

    Args:
        file: the verdict file, written by `export` with form="verdict".
        model: a module that returns logits for images in [0, 1], or a name that `load_model` accepts.
        data: the data set from which the author took the clean images: images and labels, or a name. None to skip the
            check of clean images and labels.
        key: public key of the author, 64 hexadecimal digits. "" to accept any author.
        device: device of a model given by its name.
        version: version label of the model, see `davylamp.evaluate`.
        **loading: settings of `Config` for a model loaded by name: isolate, request_rate, ...

    Returns:
        One row per claim, with the claimed and the confirmed number of fooled images. `document["holds"]` is True if
        every claimed example fools the model.

    Raises:
        DavylampError: see `read_verdict` and `judge_verdict`.
    """
    check_loading(verify, loading)
    verdict = read_verdict(file, read_text(key, "`key` as text"))
    subject = verdict.manifest.subject
    if model is None:
        raise InvalidInput(
            f"{file} is about a model called {subject.model}; give your own copy of this model as `model`"
        )
    images = None if data is None else coerce_labelled(data)
    with ExitStack() as stack:
        named = add_parts(model, version=version) if isinstance(model, str) else ""
        classifier = lend_model(named or model, stack, device, loading, version)
        judged = judge_verdict(verdict, classifier, name=named, data=images)
        name = named or classifier.name
    texts = [describe_claim(each.claim, int(each.confirmed.sum()), subject.images) for each in judged.claims]
    rows = [{**claim_row(each.claim), "confirmed": int(each.confirmed.sum())} for each in judged.claims]
    notes = notes_on_verdict(verdict, judged, key)
    document = {
        **{"file": str(file), "model": name, "claimed_model": subject.model, "same_model": judged.same_model},
        **{"images": subject.images, "holds": all(each.holds for each in judged.claims)},
        **{"signed_by": verdict.signed_by, "versions": verdict.manifest.versions},
        "claims": [{**row, "reasons": each.reasons} for row, each in zip(rows, judged.claims, strict=True)],
        "notes": notes,
    }
    return VerbResult(f"{name}: {'; '.join(texts)}", rows, document, tuple(notes), (verdict, judged))
