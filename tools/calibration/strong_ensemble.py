"""Measures whether a cheaper ensemble is as strong as AutoAttack: passes, and the images that withstand it.

The candidates begin with APGD on the probability margin (PMA; Xie et al. 2024), continue with APGD-T on the three
targets that MALT (Melamed et al. 2024) ranks first, then FAB-T with three targets or APGD on the logit margin, and end
with fewer queries of Square. They are compared with AutoAttack, with its first two attacks, and with AutoAttack at a
third of its steps, queries included. Each attack gets the images that withstood the earlier ones.

Result: davylamp does not include these ensembles. Where AutoAttack's later attacks matter, the candidates leave more
images, and AutoAttack with three targets and fewer queries is as strong for as many passes.

    python -m davylamp.tools.calibration.strong_ensemble [--write] [--images 100] [--only NAME]
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Tensor, nn

from davylamp.adapters import Classifier
from davylamp.adapters.data.datasets import load_data_for
from davylamp.adapters.libraries.pyautoattack.patches import APGDOnMargin
from davylamp.adapters.models.zoo.load import load_model
from davylamp.benchmarks.shared.small_models import load_digits_data, load_small_model, load_training_inputs
from davylamp.tools.challenge.known_defences import distilled

PAGE = Path(__file__).with_name("STRONG.md")
SEED = 0
STEPS, QUERIES, TARGETS = 100, 5000, 9  # AutoAttack's
_DUAL = {"Linf": 1, "L2": 2}  # order of the norm of gradients in MALT's score


class PassCounter(nn.Module):
    """A model that counts the images that pass forward and backward."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.passes = model, 0

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits, shape (N, C)."""
        self.passes += len(inputs)
        logits = self.model(inputs)
        if logits.requires_grad:
            logits.register_hook(self._count)
        return logits

    def _count(self, gradients: Tensor) -> None:
        self.passes += len(gradients)


class PMA(APGDAttack):
    """APGD on the difference of probabilities instead of logits."""

    def dlr_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the largest other probability minus that of the label, shape (n,)."""
        return APGDOnMargin.dlr_loss(self, x.softmax(1), y)


class MALT(APGDAttack_targeted):
    """APGD-T on the targets with the largest logit difference divided by the dual norm of its gradient."""

    def perturb(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the examples, or the images where no target succeeds, shape (n, C, H, W)."""
        adversarial, left = x.clone(), torch.ones(len(x), dtype=torch.bool)
        for target in self.targets(x, y)[:, : self.n_target_classes].T:
            chosen = left.nonzero()[:, 0]
            if not len(chosen):
                break
            self.y_target = target[chosen]
            _, correct, _, found = self.attack_single_run(x[chosen], y[chosen])
            fooled = chosen[~correct.bool()]
            adversarial[fooled], left[fooled] = found[~correct.bool()], False
        return adversarial

    def targets(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the other classes of each image, the most promising first, shape (n, C - 1)."""
        x = x.clone().requires_grad_()
        logits = self.model(x)
        others = logits.detach().scatter(1, y[:, None], -torch.inf).argsort(1, descending=True)[:, :-1]
        gaps = logits.gather(1, others) - logits.gather(1, y[:, None])
        slopes = [torch.autograd.grad(gap.sum(), x, retain_graph=True)[0].flatten(1) for gap in gaps.T]
        sizes = torch.stack([slope.norm(p=_DUAL[self.norm], dim=1) for slope in slopes], 1)
        order = (gaps.detach() / sizes.clamp(min=1e-12)).argsort(1, descending=True)
        return others.gather(1, order)


class AttackedModel(NamedTuple):
    """A model, its images, and a threat model."""

    name: str
    load: Callable[[], Classifier]
    epsilon: float
    norm: str = "Linf"
    data: str = ""


Make = Callable[[nn.Module, Mapping[str, Any]], Any]


def _apgd(kind: Any, steps: int = STEPS, **more: Any) -> Make:
    return lambda model, rules: kind(model, n_iter=steps, **more, **rules)


def _fab(targets: int, steps: int = STEPS) -> Make:
    def make(model: nn.Module, rules: Mapping[str, Any]) -> Any:
        return FABAttack_PT(model, n_iter=steps, targeted=True, n_target_classes=targets, **rules)

    return make


def _square(queries: int) -> Make:
    return lambda model, rules: SquareAttack(model, p_init=0.8, n_queries=queries, resc_schedule=False, **rules)


def _pair(steps: int = STEPS, targets: int = TARGETS) -> dict[str, Make]:
    return {
        "apgd-ce": _apgd(APGDAttack, steps, loss="ce"),
        "apgd-t": _apgd(APGDAttack_targeted, steps, n_target_classes=targets),
    }


_PMA = {"pma": _apgd(PMA, loss="dlr")}
_MALT = {"malt": _apgd(MALT, n_target_classes=3)}
ENSEMBLES: Mapping[str, Mapping[str, Make]] = {
    "autoattack": {**_pair(), "fab-t": _fab(TARGETS), "square": _square(QUERIES)},
    "autoattack, a third": {**_pair(STEPS // 3), "fab-t": _fab(TARGETS, STEPS // 3), "square": _square(QUERIES // 3)},
    "autoattack, 3 targets": {**_pair(targets=3), "fab-t": _fab(3), "square": _square(QUERIES // 5)},
    "strong (pma, malt, fab-t, square)": {**_PMA, **_MALT, "fab-t": _fab(3), "square": _square(QUERIES // 5)},
    "strong (pma, margin, malt, square)": {
        **_PMA,
        "margin": _apgd(APGDOnMargin, loss="dlr"),
        **_MALT,
        "square": _square(3 * QUERIES // 10),
    },
}


class EnsembleCost(NamedTuple):
    """Result of an ensemble: which images withstood it, the passes, and the images that each attack fooled."""

    left: Tensor
    passes: int
    fooled: dict[str, int]


def run(
    case: AttackedModel, model: nn.Module, inputs: Tensor, labels: Tensor, attacks: Mapping[str, Make]
) -> EnsembleCost:
    """Run the attacks one after another, each on the images that withstood the earlier ones."""
    counted = PassCounter(model)
    rules = {"eps": case.epsilon, "norm": case.norm, "seed": SEED, "device": "cpu"}
    left, fooled = torch.ones(len(inputs), dtype=torch.bool), {}
    for name, make in attacks.items():
        chosen = left.nonzero()[:, 0]
        fooled[name] = 0
        if not len(chosen):
            continue
        attack = make(counted, rules)
        if hasattr(attack, "init_hyperparam"):
            attack.init_hyperparam(inputs)
        torch.manual_seed(SEED)
        returned = attack.perturb(inputs[chosen], labels[chosen]).detach()
        with torch.no_grad():
            wrong = model(returned).argmax(1) != labels[chosen]
        size = (returned - inputs[chosen]).flatten(1).norm(p=torch.inf if case.norm == "Linf" else 2, dim=1)
        wrong &= (size <= case.epsilon * (1 + 1e-5)) & (returned == returned.clamp(0, 1)).flatten(1).all(1)
        left[chosen[wrong]], fooled[name] = False, int(wrong.sum())
    return EnsembleCost(left, counted.passes, fooled)


class _Sparse(nn.Module):
    """A ReLU that replaces activations near their channel's mean by that mean (MeanSparse, Amini et al. 2024)."""

    def __init__(self, alpha: float):
        super().__init__()
        self.alpha, self.mean, self.std = alpha, torch.zeros(1), torch.zeros(1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the activations, shape (N, C, H, W)."""
        active = inputs.relu()
        if self.training:
            self.mean = active.mean((0, 2, 3), keepdim=True).detach()
            self.std = active.std((0, 2, 3), keepdim=True).detach()
        return torch.where((active - self.mean).abs() < self.alpha * self.std, self.mean, active)


def mean_sparse(alpha: float) -> Classifier:
    """Return the digits CNN trained with PGD, with its convolutions' ReLUs sparsified about their training means."""
    classifier = load_small_model("pgd-training")
    net: Any = classifier.model
    for name, layer in list(net.named_children()):
        if isinstance(layer, nn.ReLU) and isinstance(net[int(name) - 1], nn.Conv2d | nn.BatchNorm2d):
            sparse = _Sparse(alpha)
            setattr(net, name, sparse)
            sparse.train()
            with torch.no_grad():
                net[: int(name) + 1](load_training_inputs())
            sparse.eval()
    return classifier


CASES: Sequence[AttackedModel] = (
    AttackedModel("digits, PGD training", lambda: load_small_model("pgd-training"), 0.16),
    AttackedModel("digits, MART", lambda: load_small_model("mart"), 0.18),
    AttackedModel("digits, distilled at temperature 100", distilled, 0.1),
    AttackedModel("digits, MeanSparse", lambda: mean_sparse(0.6), 0.16),
    AttackedModel("digits, TRADES", lambda: load_small_model("trades"), 0.19),
    AttackedModel("demo:digits-cnn-robust", lambda: load_model("demo:digits-cnn-robust"), 0.16, data="demo:digits"),
    AttackedModel("digits, PGD training", lambda: load_small_model("pgd-training"), 3.3, "L2"),
    AttackedModel("demo:mnist-lenet5-robust", lambda: load_model("demo:mnist-lenet5-robust"), 0.36, data="demo:mnist"),
    AttackedModel("digits, standard", lambda: load_small_model("standard"), 0.1),
)


def clean(case: AttackedModel, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a case's model in its own image range, and its first images, those that it predicts correctly."""
    classifier = case.load()
    data = load_data_for(classifier, case.data, count) if case.data else load_digits_data(count)
    model = classifier.eval().requires_grad_(False)
    correct = model(data.inputs).argmax(1) == data.labels
    return model, data.inputs[correct], data.labels[correct]


def measure(case: AttackedModel, count: int) -> list[str]:
    """Return a row of the table for each ensemble."""
    model, inputs, labels = clean(case, count)
    rows, full = [], EnsembleCost(torch.zeros(0), 0, {})
    for name, attacks in ENSEMBLES.items():
        cost = run(case, model, inputs, labels, attacks)
        full = full if rows else cost
        only = int((full.left & ~cost.left).sum()), int((~full.left & cost.left).sum())
        fooled = ", ".join(f"{attack} {number}" for attack, number in cost.fooled.items())
        row = f"| {case.name}, {case.norm} {case.epsilon} | {name} | {int(cost.left.sum())} of {len(inputs)} "
        row += (
            f"| {only[0]}, {only[1]} | {cost.passes / len(inputs):.0f} | {cost.passes / full.passes:.2f} | {fooled} |"
        )
        rows.append(row)
        print(row, flush=True)
    return rows


def page(rows: Sequence[str], count: int) -> str:
    """Return the page: what was measured, and the table."""
    return f"""# A cheaper ensemble than AutoAttack?

Written by `python -m davylamp.tools.calibration.strong_ensemble --write`: the first {count} images, seed {SEED}. Passes
are forward and backward passes for each correctly classified image. The fourth column counts the images that only the
ensemble fools, and those that only AutoAttack fools.

| model, radius | ensemble | robust | only it, only AutoAttack | passes | of AutoAttack's | fooled by |
| --- | --- | --- | --- | --- | --- | --- |
{chr(10).join(rows)}
"""


def main() -> None:
    """Print a row for each model and ensemble."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--only", default="", help="part of a model's name")
    options = parser.parse_args()
    rows = [row for case in CASES if options.only in case.name for row in measure(case, options.images)]
    if options.write:
        PAGE.write_text(page(rows, options.images))


if __name__ == "__main__":
    main()
