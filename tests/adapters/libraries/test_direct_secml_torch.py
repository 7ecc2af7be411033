"""Every SecML-Torch row against the same call made on the library itself: the same images, the same queries."""

from typing import Any

from secmlt.models.pytorch.base_pytorch_nn import BasePyTorchClassifier
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from davylamp.adapters.libraries.secml_torch import native_attacks
from davylamp.adapters.running.library_call import Images

from .direct import Counted, Direct, DirectCalls

RADII = {"linf": 0.1, "l2": 1.5}
FMN, FMN_WORDS = {"steps": 8, "learning_rate": 0.8, "gamma": 0.1}, {"num_steps": 8, "max_step_size": 0.8, "gamma": 0.1}
DDN, DDN_WORDS = {"steps": 8, "initial_epsilon": 0.7}, {"num_steps": 8, "eps_init": 0.7}


def pgd(norm: str, random_start: bool) -> Direct:
    step = 0.4 * RADII[norm]
    ours = {"steps": 3, "step_size": step, "random_start": random_start}
    theirs = {"num_steps": 3, "step_size": step, "random_start": random_start, "epsilon": RADII[norm]}
    return Direct("pgd", norm, RADII[norm], ours, "PGDNative", {**theirs, "perturbation_model": norm}, (3, 3))


CASES = (
    *(pgd(norm, start) for norm in RADII for start in (False, True)),
    *(
        Direct("fmn", norm, None, FMN, "FMNNative", {**FMN_WORDS, "perturbation_model": norm}, (8, 8))
        for norm in ("linf", "l2", "l1", "l0")
    ),
    Direct("ddn", "l2", None, DDN, "DDNNative", DDN_WORDS, (8, 8)),
)

# Rows whose class is a repair of ours: test_secml_torch.py.
ELSEWHERE = {("pgd", "l1"), *(("pgd@fixed", norm) for norm in ("linf", "l2", "l1")), ("ddn@fixed", "l2")}


class TestDirect(DirectCalls):
    library, cases, elsewhere = "secml-torch", CASES, frozenset(ELSEWHERE)

    def call(self, case: Direct, model: Counted, images: Images, seed: int) -> Tensor:
        inputs, labels, targets = images
        attack: Any = getattr(native_attacks, case.theirs)(**case.words, y_target=targets)
        batch = DataLoader(TensorDataset(inputs, labels), batch_size=len(inputs))
        ((returned, _),) = attack(BasePyTorchClassifier(model), batch, stream=True)
        return returned
