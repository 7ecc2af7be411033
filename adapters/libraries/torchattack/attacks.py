"""Implementations from torchattack: classes, canonical parameters and known issues.

CDA, LTP, BIA, GAMA and SSP are not listed, because they download the weights of a network. The attacks on vision
transformers are limited to timm's ViT, on which they are tested. The library's code also supports DeiT, PiT, CaiT and
Visformer.
"""

from collections.abc import Mapping
from typing import Any

from ...attack import Implementation

_TARGETED: Mapping[str, Any] = {"targeted": "yes"}
_DRAWN: Mapping[str, Any] = {"random": ("torch",)}
_BOTH = {**_TARGETED, **_DRAWN}
_NAN = "nan-momentum"

_ITERATED = {"steps": "steps", "step_size": "alpha"}
_STARTED = {**_ITERATED, "random_start": "random_start"}
_MOMENTUM = {**_ITERATED, "decay": "decay"}
_VARIANCE = {**_MOMENTUM, "samples": "n", "neighbourhood": "beta"}
_DIVERSE = {**_MOMENTUM, "diversity_probability": "diversity_prob", "resize_rate": "resize_rate"}


def _row(
    attack: str, classes: Mapping[str, str], params: Mapping[str, str] | None = None, **more: Any
) -> Implementation:
    """Build an implementation from classes of the library. A name with a leading dot is in the module `patches`."""
    paths = {norm: _path(name) for norm, name in classes.items()}
    return Implementation(attack, "torchattack", paths, params or {}, **more)


def _path(name: str) -> str:
    """Return the path "module:class" of a class.

    A name without a module is in the library. With a leading dot, it is in the module `patches`.
    """
    if ":" in name:
        return name
    return f".patches:{name[1:]}" if name.startswith(".") else f"torchattack:{name}"


def _both(
    attack: str, name: str, params: Mapping[str, str], *mended: str, left: tuple[str, ...] = (), **more: Any
) -> tuple[Implementation, ...]:
    """Build an implementation of the library's attack, and a variant in which all known issues but `left` are fixed."""
    return (
        _row(attack, {"linf": name}, params, findings=(*mended, *left), **more),
        _row(attack, {"linf": f".{name}"}, params, variant="fixed", findings=left, **more),
    )


_GRADIENT = (
    _row("fgsm", {"linf": "FGSM"}, **_TARGETED, per_image_radii=True),
    _row("bim", {"linf": "IFGSM"}, _ITERATED, **_TARGETED, per_image_radii=True),
    _row(
        "pgd",
        {"linf": "PGD", "l2": "PGDL2"},
        _STARTED,
        **_BOTH,
        per_image_radii=True,
        findings=("epsilon-on-mean-gradient", "radius-uniform", "start-outside"),
    ),
    _row("mi-fgsm", {"linf": "MIFGSM"}, _MOMENTUM, **_TARGETED, per_image_radii=True, findings=(_NAN,)),
    *_both("ni-fgsm", "NIFGSM", _MOMENTUM, "momentum-dropped", _NAN, **_TARGETED, per_image_radii=True),
    *_both(
        "si-ni-fgsm",
        "SINIFGSM",
        {**_MOMENTUM, "scales": "m"},
        "momentum-dropped",
        "copies-counted-again",
        _NAN,
        **_TARGETED,
        per_image_radii=True,
    ),
    _row("vmi-fgsm", {"linf": "VMIFGSM"}, _VARIANCE, **_BOTH, findings=(_NAN,)),
    _row("vni-fgsm", {"linf": "VNIFGSM"}, _VARIANCE, **_BOTH, findings=(_NAN,)),
    _row("di-fgsm", {"linf": "DIFGSM"}, _DIVERSE, **_BOTH, per_image_radii=True, findings=(_NAN,)),
    *_both(
        "ti-fgsm",
        "TIFGSM",
        {**_MOMENTUM, "kernel_size": "kern_len"},
        "momentum-dropped",
        "wider-kernel",
        **_TARGETED,
        per_image_radii=True,
    ),
)

_TRANSFORMED = (
    _row(
        "admix",
        {"linf": "Admix"},
        {**_MOMENTUM, "samples": "size", "portion": "portion", "num_classes": "num_classes"},
        **_BOTH,
        findings=("mixed-with-itself", _NAN),
    ),
    _row(
        "ssa",
        {"linf": ".SizedSSA"},
        {**_MOMENTUM, "samples": "num_spectrum", "spread": "rho"},
        **_BOTH,
        per_image_radii=True,
        repairs=("draws noise in the shape of the images, because the library's noise always has 3 x 224 x 224",),
        findings=("momentum-dropped",),
    ),
    _row(
        "ssa",
        {"linf": ".SSA"},
        {**_MOMENTUM, "samples": "num_spectrum", "spread": "rho"},
        variant="fixed",
        **_BOTH,
        per_image_radii=True,
    ),
    _row(
        "bsr",
        {"linf": "BSR"},
        {**_MOMENTUM, "samples": "num_scale", "blocks": "num_block"},
        **_TARGETED,
        random=("python", "numpy", "torch"),
        per_image_radii=True,
        findings=(_NAN,),
    ),
    *_both(
        "decowa",
        "DeCoWA",
        {**_MOMENTUM, "samples": "num_warping"},
        "momentum-dropped",
        "tuning-counted",
        left=("one-warp",),
        **_BOTH,
    ),
    *_both(
        "gra",
        "GRA",
        {**_MOMENTUM, "samples": "num_neighbors", "neighbourhood": "beta"},
        "every-step-shrinks",
        "neighbours-flee",
        left=(_NAN,),
        **_BOTH,
    ),
    *_both(
        "mig",
        "MIG",
        {**_MOMENTUM, "scales": "s_factor"},
        "climbs-the-label",
        left=(_NAN,),
        **_TARGETED,
        per_image_radii=True,
    ),
    _row(
        "mumodig",
        {"linf": "MuMoDIG"},
        {**_MOMENTUM, "samples": "n_trans"},
        random=("numpy", "torch"),
        per_image_radii=True,
        findings=(_NAN,),
    ),
    _row(
        "l2t",
        {"linf": "L2T"},
        {**_MOMENTUM, "samples": "num_scale"},
        **_TARGETED,
        random=("python", "numpy", "torch"),
        within=".patches:transforms_of_any_size",
        repairs=(
            "uses the size and device of the images, because two of its transforms return 224 pixels, one on a GPU",
        ),
        findings=(_NAN,),
    ),
)

_ALONE = "gets one image per call, because a layer's outputs would lack the images that have no queries left"
_COUNTED = "adds zero times the logits to the features, so that gradients of features count as backward passes"
_FROZEN = "its altered images require gradients, because it crashes with frozen weights otherwise"
_LAYER = {**_MOMENTUM, "layer": "feature_layer_cfg"}
_ENSEMBLE = {**_LAYER, "samples": "num_ens"}


def _feature_row(attack: str, name: str, params: Mapping[str, str], *repairs: str, **more: Any) -> Implementation:
    """Build an implementation of an attack on the outputs of a layer, which is selected by `features.tapped`."""
    return _row(attack, {"linf": name}, params, alone=True, reads_layers=True, repairs=(_ALONE, *repairs), **more)


_FEATURES = (
    _feature_row("fia", ".features:FIA", _ENSEMBLE, _COUNTED, **_DRAWN, findings=(_NAN,)),
    _feature_row(
        "naa",
        ".features:NAA",
        _ENSEMBLE,
        _COUNTED,
        _FROZEN,
        findings=(_NAN,),
    ),
    _feature_row("danaa", ".features:DANAA", _ENSEMBLE, _COUNTED, **_DRAWN, findings=(_NAN,)),
    _feature_row("dr", ".features:DR", {**_ITERATED, "layer": "feature_layer_cfg"}, _COUNTED),
    _feature_row("ilpd", "torchattack:ILPD", {**_LAYER, "std": "sigma"}, **_DRAWN, findings=(_NAN,)),
    _feature_row(
        "bfa",
        ".features:BFA",
        {**_ENSEMBLE, "num_classes": "num_classes"},
        _COUNTED,
        _FROZEN,
        **_TARGETED,
        findings=(_NAN,),
    ),
    _feature_row("fda", ".features:FDA", {**_MOMENTUM, "random_start": "random_start"}, _COUNTED, **_DRAWN),
)

_TOGETHER = (
    "gets one image per call, because it computes one standard deviation, or selects one largest token, for "
    "the whole batch"
)
_RESTORED = "the hooks and parts that it leaves in the network are removed, because they would affect later attacks"
_STEPWISE = "timm's attention is not fused during the attack, because fused attention does not call its hooks"


def _structure_row(attack: str, name: str, *repairs: str, **more: Any) -> Implementation:
    """Build an implementation of an attack on parts of one kind of network, see the module `structures`."""
    words = {"alone": True, "reads_layers": True, "repairs": (_TOGETHER, _RESTORED, *repairs), "findings": (_NAN,)}
    return _row(attack, {"linf": name}, _MOMENTUM, **_TARGETED, **words, **more)


_STRUCTURES = (
    _structure_row("sgm", "SGM"),
    _structure_row("bpa", "BPA"),
    _structure_row("tgr", "TGR", _STEPWISE),
    _structure_row(
        "pna-patchout",
        ".structures:PNAPatchOut",
        _STEPWISE,
        "torch's random generator is restored after each call, because the library seeds it with 0, 1, 2, ...",
    ),
    _structure_row("vdc", "VDC", _STEPWISE),
    _structure_row("att", "ATT", _STEPWISE, _FROZEN, **_DRAWN),
)

_MINIMUM = (
    _row(
        "geoda",
        dict.fromkeys(("l2", "linf"), ".geoda:GeoDA"),
        {"max_queries": "max_queries", "subspace": "sub_dim"},
        **_DRAWN,
        alone=True,
        repairs=(
            "computes its cosine basis directly in memory, because the library needs hours and writes a file",
            "gets a few more queries if it cannot distribute the requested number of queries over its iterations",
            "stops the search for a first adversarial image after 1000 samples",
        ),
    ),
    _row("deepfool", {"linf": "DeepFool"}, {"steps": "steps", "overshoot": "overshoot", "candidates": "num_classes"}),
)

ROWS: tuple[Implementation, ...] = (*_GRADIENT, *_TRANSFORMED, *_FEATURES, *_STRUCTURES, *_MINIMUM)
