"""Finds the undefended model of each defended model, from the names or the order of the models."""

from collections.abc import Sequence

from ..conventions import original_of
from ..errors import InvalidInput


def undefended_models(models: Sequence[str]) -> dict[str, str]:
    """Return the undefended model of each defended model.

    The names decide, as in `named_originals`. If no name has the form `UNDEFENDED+DEFENCE`, the first model is the
    undefended model of all others.

    Args:
        models: names of the models, in the order of the evaluation (`demo:digits`, `hardened.pt`).

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
    """Return the undefended model of each model whose name is `UNDEFENDED+DEFENCE`, with one or several defences."""
    bases = {name: original_of(name, models) for name in models}
    return {name: base for name, base in bases.items() if base is not None}
