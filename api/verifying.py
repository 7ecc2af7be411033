"""Function that judges the examples of a verdict file again."""

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
    """Judge the adversarial examples of a verdict on a model again, with one forward pass for each image.

    The result is a lower bound of the model's vulnerability that needs no trust in the author of the file, except that
    the originals and their labels are taken from it, unless `data` is given.

    Args:
        file: a verdict, written by `export` with form="verdict".
        model: the model: a module that returns logits for images in [0, 1], or a name that `load_model` knows.
        data: the images from which the originals were taken, as images and labels or a name, to check them.
        key: public key of the author, 64 hexadecimal digits; "" accepts any author.
        device: device of a model given by its name.
        version: version of the model, as in `davylamp.evaluate`.
        **loading: settings of `Config` for a model loaded by name: isolate, request_rate, ...

    Returns:
        One row per claim, with the claimed and the confirmed number of fooled images. `document["holds"]` is whether
        the model confirms every example.

    Raises:
        DavylampError: as for `read_verdict` and `judge_verdict`.
    """
    check_loading(verify, loading)
    verdict = read_verdict(file, read_text(key, "`key` as text"))
    subject = verdict.manifest.subject
    if model is None:
        raise InvalidInput(f"{file} is about a model called {subject.model}; pass a model that you trust as `model`")
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
