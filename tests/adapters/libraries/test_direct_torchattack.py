"""Every torchattack row against the same call made on the library itself: the same images, the same queries."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torchattack
from torch import Tensor, nn

from davylamp.adapters.contract.linear_model import ContractCase
from davylamp.adapters.libraries.torchattack.patches import transforms_of_any_size
from davylamp.adapters.running.library_call import Images

from .direct import Counted, Direct, DirectCalls

DECAY = {"decay": 0.9}
VARIANCE, VARIANCE_WORDS = {**DECAY, "samples": 2, "neighbourhood": 1.2}, {**DECAY, "n": 2, "beta": 1.2}
DIVERSE = {**DECAY, "diversity_probability": 0.7, "resize_rate": 0.8}
DIVERSE_WORDS = {**DECAY, "diversity_prob": 0.7, "resize_rate": 0.8}
L2, L2_WORDS = {"steps": 3, "step_size": 0.6}, {"eps": 1.5, "alpha": 0.6, "steps": 3}
START, NO_START = {"random_start": True}, {"random_start": False}
SCALES = {**DECAY, "scales": 2}
FEATURES, FEATURE_WORDS = {**DECAY, "layer": "2", "samples": 2}, {**DECAY, "feature_layer_cfg": "module.2"}
SPECTRA, SPECTRA_WORDS = {**DECAY, "samples": 2, "spread": 0.4}, {**DECAY, "num_spectrum": 2, "rho": 0.4}
NEAR, NEAR_WORDS = {**DECAY, "samples": 2, "neighbourhood": 1.2}, {**DECAY, "num_neighbors": 2, "beta": 1.2}
DEEPFOOL = {"steps": 4, "overshoot": 0.1}


def steps(
    row: str,
    theirs: str,
    queries: int | None,
    ours: Any = (),
    words: Any = (),
    peculiar: Mapping[str, Any] | None = None,
) -> Direct:
    """Three steps of 0.04 in the linf ball of radius 0.1."""
    exact = None if queries is None else (queries, queries)
    words = {"eps": 0.1, "alpha": 0.04, "steps": 3, **dict(words)}
    ours = {"steps": 3, "step_size": 0.04, **dict(ours)}
    place: dict[str, Any] = {"data": "photos", "count": 1} if row == "ssa" else {}
    return Direct(row, "linf", 0.1, ours, theirs, words, exact, peculiar=peculiar or {}, **place)


def with_a_gradient(inputs: Tensor) -> Tensor:
    """NAA and BFA need a gradient of features although neither its images nor frozen weights have one."""
    return inputs if inputs.requires_grad else inputs.clone().requires_grad_()


def features(row: str, theirs: str, forwards: int, uncounted: int, ours: Any, words: Any) -> Direct:
    """The same steps on a layer; the backward passes of an image that start at the layer are davylamp's to count."""
    case = steps(row, theirs, None, ours, words, {"uncounted": uncounted})
    return replace(case, queries=(forwards, uncounted + BACKWARDS[row]))


AGGREGATED = {**FEATURE_WORDS, "num_ens": 2, "normalize": with_a_gradient}
BACKWARDS = {"fia": 2, "naa": 2, "danaa": 2, "dr": 0, "ilpd": 3, "bfa": 4, "fda": 0}  # through the logits

VIT = "vit_base_patch16_224"


def structure(row: str, theirs: str, data: str, kind: str, queries: int = 3, **words: Any) -> Direct:
    """The same steps on the network of a fixture."""
    case = steps(row, theirs, queries, DECAY, {**DECAY, "hook_cfg": kind, **words}, {"structure": True})
    return replace(case, data=data, count=2 if data == "residual" else 1)


CASES = (
    Direct("fgsm", "linf", 0.1, {}, "FGSM", {"eps": 0.1}, (1, 1)),
    steps("bim", "IFGSM", 3),
    steps("pgd", "PGD", 3, START),
    steps("pgd", "PGD", 3, NO_START, NO_START),
    Direct("pgd", "l2", 1.5, {**L2, **START}, "PGDL2", L2_WORDS, (3, 3)),
    Direct("pgd", "l2", 1.5, {**L2, **NO_START}, "PGDL2", {**L2_WORDS, **NO_START}, (3, 3)),
    steps("mi-fgsm", "MIFGSM", 3, DECAY, DECAY),
    steps("ni-fgsm", "NIFGSM", 3, DECAY, DECAY),
    steps("si-ni-fgsm", "SINIFGSM", 6, SCALES, {**DECAY, "m": 2}),
    steps("vmi-fgsm", "VMIFGSM", 9, VARIANCE, VARIANCE_WORDS),
    steps("vni-fgsm", "VNIFGSM", 9, VARIANCE, VARIANCE_WORDS),
    steps("di-fgsm", "DIFGSM", 3, DIVERSE, DIVERSE_WORDS),
    steps("ti-fgsm", "TIFGSM", 3, {**DECAY, "kernel_size": 5}, {**DECAY, "kern_len": 5}),
    steps(
        "admix",
        "Admix",
        3 * 2 * 5,
        {**DECAY, "samples": 2, "portion": 0.3},
        {**DECAY, "size": 2, "portion": 0.3, "num_classes": 10},
    ),
    steps("ssa", "SSA", 6, SPECTRA, SPECTRA_WORDS),
    steps("bsr", "BSR", 6, {**DECAY, "samples": 2, "blocks": 2}, {**DECAY, "num_scale": 2, "num_block": 2}),
    steps("decowa", "DeCoWA", 3 * 2 * 2, {**DECAY, "samples": 2}, {**DECAY, "num_warping": 2}),
    steps("gra", "GRA", 9, NEAR, NEAR_WORDS),
    steps("mig", "MIG", 6, SCALES, {**DECAY, "s_factor": 2}),
    steps("mig@fixed", "MIG", 6, SCALES, {**DECAY, "s_factor": 2}, {"turned": True}),
    steps("mumodig", "MuMoDIG", 9, {**DECAY, "samples": 2}, {**DECAY, "n_trans": 2}),
    steps("l2t", "L2T", None, {**DECAY, "samples": 2}, {**DECAY, "num_scale": 2}),
    features("fia", "FIA", 2 + 3, 3, FEATURES, {**FEATURE_WORDS, "num_ens": 2}),
    features("naa", "NAA", 2 + 1 + 3, 3, FEATURES, AGGREGATED),
    features("danaa", "DANAA", 2 + 1 + 3, 3, FEATURES, {**FEATURE_WORDS, "num_ens": 2}),
    features("dr", "DR", 3, 3, {"layer": "2"}, {"feature_layer_cfg": "module.2"}),
    features("ilpd", "ILPD", 6, 0, {**DECAY, "layer": "2", "std": 0.1}, {**FEATURE_WORDS, "sigma": 0.1}),
    features("bfa", "BFA", 1 + 2 * 2 + 3, 3, FEATURES, {**AGGREGATED, "num_classes": 10}),
    features("fda", "FDA", 6, 6, {**DECAY, **START}, DECAY),
    features("fda", "FDA", 6, 6, {**DECAY, **NO_START}, {**DECAY, **NO_START}),
    *(structure(row, theirs, "residual", "resnet18") for row, theirs in (("sgm", "SGM"), ("bpa", "BPA"))),
    structure("tgr", "TGR", "transformer", VIT),
    structure("pna-patchout", "PNAPatchOut", "transformer", VIT),
    structure("vdc", "VDC", "transformer", VIT, queries=6),
    structure("att", "ATT", "transformer", VIT, queries=4, normalize=with_a_gradient),
    Direct("deepfool", "linf", None, {**DEEPFOOL, "candidates": 4}, "DeepFool", {**DEEPFOOL, "num_classes": 4}),
)

# Rows whose class is a repair of ours, and GeoDA, which goes on where davylamp ends it: test_torchattack.py.
REPAIRED = {
    *((f"{name}@fixed", "linf") for name in ("ni-fgsm", "si-ni-fgsm", "ti-fgsm", "ssa", "decowa", "gra")),
    *(("geoda", norm) for norm in ("l2", "linf")),
}


@pytest.fixture(scope="session")
def photos(digits) -> ContractCase:
    """The digits as images of 224 pixels, which some classes take for granted."""
    images = nn.functional.interpolate(digits.inputs, scale_factor=14)
    return ContractCase(nn.Sequential(nn.AvgPool2d(14), digits.module), images, digits.labels)


class TestDirect(DirectCalls):
    library, cases, elsewhere = "torchattack", CASES, frozenset(REPAIRED)

    def call(self, case: Direct, model: Counted, images: Images, seed: int) -> Tensor:
        inputs, labels, targets = images
        model.module = copy.deepcopy(model.module)  # DR, BFA and FDA leave hooks on it
        words = {"device": "cpu", **case.words}  # it would take a GPU, the model's or not
        if self.row_of(case).targeted != "no":
            words["targeted"] = (targets is not None) != case.peculiar.get("turned", False)
        if "structure" in case.peculiar:
            return self.on_the_network(case.theirs, model, words, inputs, labels if targets is None else targets)
        attack: Any = getattr(torchattack, case.theirs)(model, **words)
        with transforms_of_any_size():  # for L2T
            returned = attack(inputs, labels if targets is None else targets)
        model.queries["backwards"] += case.peculiar.get("uncounted", 0) * len(inputs)
        return returned

    @staticmethod
    def on_the_network(name: str, model: Counted, words: Mapping[str, Any], inputs: Tensor, goal: Tensor) -> Tensor:
        """The call on a copy of the network itself, which the attack goes on hooking, and which tells the counter."""
        network = model.module
        for part in network.modules():
            if hasattr(part, "fused_attn"):
                part.fused_attn = False

        def count(_: nn.Module, given: tuple[Tensor, ...], logits: Tensor) -> None:
            model.queries["forwards"] += len(given[0])
            model.sizes.add(len(given[0]))
            if logits.requires_grad:
                logits.register_hook(lambda gradient: model.queries.update(backwards=len(gradient)))

        network.register_forward_hook(count)
        return getattr(torchattack, name)(network, **words)(inputs, goal)
