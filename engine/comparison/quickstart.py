"""The first thing to run: three kinds of attack, three libraries, a real model, real images, a few minutes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...adapters import Classifier, ThreatModel
from ...adapters.catalogue.lookup import implementations_of
from ...adapters.data.datasets import Data
from .compare import Comparison, compare

LIBRARIES = ("art", "foolbox", "torchattacks")


@dataclass(frozen=True)
class Trial:
    """One comparison of the quickstart: sized so that all of them take about three minutes on two cores."""

    attack: str
    threat_model: ThreatModel
    images: int
    title: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


TRIALS = (
    Trial("pgd", ThreatModel("linf", 4 / 255), 10, "A gradient attack inside a ball: PGD, linf 4/255", {"steps": 5}),
    Trial(
        "cw",
        ThreatModel("l2"),
        10,
        "A search for the smallest change: C&W, l2",
        {"steps": 5, "binary_search_steps": 2, "initial_const": 1.0},
    ),
    Trial(
        "hopskipjump",
        ThreatModel("l2"),
        3,
        "An attack that sees decisions only: HopSkipJump, l2",
        {"steps": 1, "max_queries": 200},
    ),
)


def run_quickstart(
    classifier: Classifier, data: Data, *, seed: int = 0, progress: Callable[[str, int], object] | None = None
) -> Iterator[tuple[Trial, Comparison]]:
    """Run the trials one after the other, each yielded as soon as it is done.

    Args:
        classifier: the model under attack.
        data: images that it was made for.
        seed: random seed.
        progress: called with an implementation's name and the images just done.
    """
    for trial in TRIALS:
        inputs, labels = data.inputs[: trial.images], data.labels[: trial.images]
        rows = [row for row in implementations_of(trial.attack) if row.library in LIBRARIES and not row.variant]
        yield (
            trial,
            compare(
                trial.attack,
                classifier,
                inputs,
                labels,
                trial.threat_model,
                parameters=trial.parameters,
                rows=rows,
                seed=seed,
                progress=progress,
            ),
        )
