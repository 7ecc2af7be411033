"""Shell completion for attacks, libraries, metrics, presets, defences, models and data, without importing torch."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ..adapters.defaults import NORMS, TARGETS

_ROOT = Path(__file__).parent.parent
MODELS = (
    "demo:efficientnet-lite0",
    "demo:efficientnet-lite1",
    "demo:efficientnet-lite2",
    "demo:mnist-lenet5",
    "demo:mnist-lenet5-robust",
    "demo:cifar10-resnet18",
    "demo:digits-cnn",
    "demo:digits-cnn-robust",
    "torchvision:",
    "timm:",
    "hf:",
    "clip:",
    "onnx:",
    "robustbench:",
)
DATA = (
    "demo:imagenet",
    "demo:tiny-imagenet",
    "demo:cifar10",
    "demo:mnist",
    "demo:digits",
    "imagefolder:",
    "npz:",
    "torchvision:",
    "hf:",
)


def attacks() -> list[str]:
    """Return the names of attacks and implementations."""
    from ..adapters.catalogue.assemble import catalogue

    known = catalogue()
    return [*dict.fromkeys(row.attack for row in known.implementations.values()), *known.implementations, "best"]


def libraries() -> list[str]:
    """Return the names of attack libraries."""
    from ..adapters.catalogue.assemble import catalogue

    return list(catalogue().libraries)


def parameters() -> list[str]:
    """Return attack parameters, each as `name=`."""
    from ..adapters.parameters import PARAMETERS

    return [f"{name}=" for name in PARAMETERS]


def defences() -> list[str]:
    """Return the names of defences."""
    from ..adapters.models.defences.names import known_defences

    return list(known_defences())


def metrics() -> list[str]:
    """Return the symbols of metrics. They are read from the source code, because importing metrics imports torch."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((_ROOT / "metrics").glob("*.py"))]
    return list(dict.fromkeys(symbol for text in texts for symbol in re.findall(r'\bsymbol="(.+?)"', text)))


def presets() -> list[str]:
    """Return the names of presets."""
    from ..engine.plan.presets import PRESETS

    return list(PRESETS)


def corruptions() -> list[str]:
    """Return the names of common corruptions."""
    from ..adapters.data.corruptions.published import CORRUPTIONS

    return list(CORRUPTIONS)


def completer_of(parameter: str) -> Callable[[str], list[str]] | None:
    """Return the function that completes values of a command's parameter. None if the shell completes file names."""
    names = COMPLETED.get(parameter)
    if names is None:
        return None

    def with_config_options(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return with_config_options


def _fixed(names: Iterable[str]) -> Callable[[], list[str]]:
    return lambda: list(names)


# Parameter of a command -> its possible names.
COMPLETED: dict[str, Callable[[], list[str]]] = {
    **dict.fromkeys(("attack", "attacks", "names", "rows", "also"), attacks),
    **dict.fromkeys(("library", "libraries"), libraries),
    **dict.fromkeys(("metric", "measures", "require"), metrics),
    **dict.fromkeys(("model", "models", "original", "surrogate", "baseline"), _fixed(MODELS)),
    **dict.fromkeys(("data", "clean", "fit_data", "neuron_profile", "validation"), _fixed(DATA)),
    **dict.fromkeys(("param", "parameters", "attack_param"), parameters),
    "defence": defences,
    "corruption": corruptions,
    "preset": presets,
    "norm": _fixed(NORMS),
    "target": _fixed(TARGETS),
    "device": _fixed(("cpu", "cuda", "mps")),
}
