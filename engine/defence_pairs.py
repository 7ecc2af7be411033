"""Pairs of a defended and an undefended model, from model names or the order of models."""

from collections.abc import Sequence

from ..conventions import original_of
from ..errors import InvalidInput


def undefended_models(models: Sequence[str]) -> dict[str, str]:
    """Map defended models to undefended ones by their names. If no name matches, the first model is the undefended one.

    Args:
        models: names, in the order of the evaluation (`demo:digits`, `hardened.pt`).

    Raises:
        InvalidInput: if there is only one model.
    """
    if len(models) < 2:
        raise InvalidInput(
            f"expected a model and its defences, got only {models[0]}; "
            "add `defences`, or list the defended models after the undefended one"
        )
    return named_originals(models) or dict.fromkeys(models[1:], models[0])


def named_originals(models: Sequence[str]) -> dict[str, str]:
    """Return the undefended model of each model named `UNDEFENDED+DEFENCE`, with one or more defences."""
    bases = {name: original_of(name, models) for name in models}
    return {name: base for name, base in bases.items() if base is not None}
