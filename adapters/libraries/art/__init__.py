"""Library definition of the Adversarial Robustness Toolbox (ART)."""

from ..library import Library
from .black_box import BLACK_BOX
from .findings import FINDINGS
from .white_box import GRADIENT, MINIMUM_NORM

LIBRARY = Library(
    "art",
    module="art",
    distribution="adversarial-robustness-toolbox",
    extra="art",
    attacks=GRADIENT + MINIMUM_NORM + BLACK_BOX,
    driver=".driver:run",
    refuses=".driver:refuses",
    package=__name__,
    findings=FINDINGS,
    preload=("art.attacks.evasion",),
)
