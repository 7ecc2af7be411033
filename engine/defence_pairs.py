"""Which models are defences of which: by their names, or of the first."""

from collections.abc import Sequence

from ..conventions import original_of
from ..errors import InvalidInput


def undefended_models(models: Sequence[str]) -> dict[str, str]:
    """The undefended model of each defended one: as `named_originals`; where no name says so, the first of all.

    Args:
        models: names, in the order of the evaluation (`demo:digits`, `hardened.pt`).

    Raises:
        InvalidInput: if there is but one model.
    """
    if len(models) < 2:
        raise InvalidInput(
            f"expected a model and its defences to show the original's examples to, got {models[0]} alone; "
            "add --defence, or models behind the original"
        )
    return named_originals(models) or dict.fromkeys(models[1:], models[0])


def named_originals(models: Sequence[str]) -> dict[str, str]:
    """The undefended model of each whose name is that of another one, followed by `+DEFENCE`, perhaps several."""
    bases = {name: original_of(name, models) for name in models}
    return {name: base for name, base in bases.items() if base is not None}
