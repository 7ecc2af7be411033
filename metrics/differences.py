"""Metrics of a defence that are differences of a one-model metric: value of the defended minus the original model."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from .common import check_classes, check_images, check_logits, check_success
from .registry import METRICS, metric, reduce

_SHARED = ("inputs", "labels")  # by both models
_TEXTS = {
    "inputs": "clean images in [0, 1], shape (N, C, H, W).",
    "labels": "true classes, shape (N,), int64.",
    "adv_inputs": "adversarial images for the {} model, in [0, 1], shape (N, C, H, W).",
    "success": "whether each image counts for the {} model, shape (N,), bool. None means that all images count.",
    "logits": "logits of the {} model, shape (N, K).",
    "adv_logits": "logits of the {} model on its adversarial images, shape (N, K).",
    "reduction": '"mean" or "sum" over the images that count, or "none".',
}
_ONE = """A scalar, in the unit of `{}`. Two equal models give 0. NaN if no image counts for one of the models.
        `summarise` gives the number of images that count for a model, from its values for `reduction="none"`."""
_EACH = 'A scalar, in the unit of `{}`. For "none", one value for each image, shape (N,). Two equal models give 0.'


def difference(
    base: Callable[..., Tensor],
    name: str,
    *,
    of_images: bool = False,
    adversarial: bool = False,
    note: str = "",
    **facts: Any,
) -> Callable[..., Tensor]:
    """Register a defence metric: the value for the defended model minus the value for the original model.

    The new metric has the arguments of `base` once for each model. Range, unit, direction, needs and formula of the new
    metric follow from the record of `base`.

    Args:
        base: function that computes the metric of one model.
        name: name of the new function.
        of_images: whether the difference is computed for each image. If False, the means of the two models are
            subtracted. The mean of a model is over the images that count for this model.
        adversarial: whether the logits that the new metric receives are those on adversarial images.
        note: sentence after the first line of the new docstring. "" for no sentence.
        **facts: fields of the record (`Metric`), at least `symbol`, `title` and `meaning`.

    Returns:
        The new metric.
    """
    known = next(record for record in METRICS.values() if record.function is base)
    every = inspect.signature(base).parameters
    options = {key: each for key, each in every.items() if key not in known.arguments}
    options = {key: each for key, each in options.items() if of_images or key != "reduction"}
    shown = {key: "adv_logits" if adversarial and key == "logits" else key for key in known.arguments}
    separate = [shown[key] for key in known.arguments if key not in _SHARED]
    names = [*separate, *(f"defended_{key}" for key in separate)]
    names = ["inputs"] * ("inputs" in shown) + names + ["labels"] * ("labels" in shown)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(key, kind, annotation=Tensor) for key in names])
    signature = signature.replace(parameters=[*signature.parameters.values(), *options.values()])

    def function(*args: Any, **kwargs: Any) -> Tensor:
        given = signature.bind(*args, **kwargs).arguments
        _check({key: given[key] for key in names})
        chosen = {key: given[key] for key in options if key in given}
        reduction = chosen.pop("reduction", "mean")
        if of_images:
            chosen["reduction"] = "none"
        before, after = (
            base(**{key: given[text if key in _SHARED else prefix + text] for key, text in shown.items()}, **chosen)
            for prefix in ("", "defended_")
        )
        return reduce(after - before, reduction) if of_images else after - before

    function.__name__ = function.__qualname__ = name
    function.__module__ = sys._getframe(1).f_globals["__name__"]  # inspect.stack reads the file of every frame
    function.__signature__ = signature.replace(return_annotation=Tensor)  # pyright: ignore[reportFunctionMemberAccess]
    further = f"    {note}\n\n" if note else ""
    function.__doc__ = f"{facts['meaning']}\n\n{further}    Args:\n" + "".join(
        f"        {key}: {_text(key, base)}\n" for key in signature.parameters
    )
    function.__doc__ += f"\n    Returns:\n        {(_EACH if of_images else _ONE).format(base.__name__)}\n\n    Raises:"
    function.__doc__ += (base.__doc__ or "").partition("Raises:")[2]
    low, high = known.between
    derived = {
        "robust_when": known.robust_when,
        "between": (low - high, high - low),
        "unit": known.unit,
        "source": "CANARY (Sun et al. 2023), 3.1.4",
        "formula": f"{known.symbol}(defended) - {known.symbol}(original)",
        "latex": rf"\mathrm{{{known.symbol}}}_D - \mathrm{{{known.symbol}}}_O",
        "kind": "difference" if known.kind == "share" else known.kind,
        "needs": known.needs,
        "base": known.symbol,
    }
    return metric(**{**derived, **facts})(function)


def _text(name: str, base: Callable[..., Tensor]) -> str:
    text = _TEXTS.get(name.removeprefix("defended_"), f"as in `{base.__name__}`.")
    return text.format("defended" if name.startswith("defended_") else "original")


def _check(given: dict[str, Tensor]) -> None:
    """Check the arguments for both models. Error messages use the argument names of the new metric."""
    logits, images, success = (
        {key: each for key, each in given.items() if key.endswith(end)} for end in ("logits", "inputs", "success")
    )
    sizes = check_logits(**logits) if logits else check_images(**images)
    if success:
        check_success(sizes, **success)
    if "labels" in given:
        check_classes(sizes, labels=given["labels"])
