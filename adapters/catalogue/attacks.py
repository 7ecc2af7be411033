"""The canonical attacks, with their usual titles and sources.

The last argument of each row holds the parameters that `compare` passes to every library unless the user sets them.
"""

from collections.abc import Mapping

from ..attack import Attack, Kind, Knowledge

_FIXED: Kind = "fixed-budget"
_MINIMUM: Kind = "minimum-norm"
_WHITE: Knowledge = "white-box"
_SCORE: Knowledge = "score-based"
_DECISION: Knowledge = "decision-based"

_ITERATED = {"steps": 10, "step_size": "2.5 epsilon / steps"}
_MOMENTUM = {**_ITERATED, "decay": 1.0}
_TRANSFORMED = {**_MOMENTUM, "samples": 20}
_PGD = {"steps": 40, "step_size": "2.5 epsilon / steps", "random_start": False}
_APGD = {"steps": 100, "step_size": "2 epsilon"}
_ELASTIC = {
    "steps": 100,
    "binary_search_steps": 5,
    "initial_const": 0.1,
    "learning_rate": 0.01,
    "regularization": 0.01,
    "confidence": 0.0,
}
_CARLINI = {
    "steps": 100,
    "binary_search_steps": 5,
    "initial_const": 1.0,
    "learning_rate": 0.01,
    "confidence": 0.0,
}
_STRUCTURED = {"steps": 100, "binary_search_steps": 5, "initial_const": 1.0, "confidence": 0.0}
_ALMA = {"steps": 100, "learning_rate": 0.1}

_ALL = (
    # One gradient step.
    Attack("fgsm", "FGSM", _FIXED, _WHITE, "Goodfellow et al. 2015"),
    Attack("fgm", "FGM", _FIXED, _WHITE, "Goodfellow et al. 2015, l2 and l1"),
    Attack("r-fgsm", "R+FGSM", _FIXED, _WHITE, "Tramer et al. 2018", _ITERATED),
    Attack("f-fgsm", "Fast FGSM", _FIXED, _WHITE, "Wong et al. 2020"),
    # Projected gradient descent and its relatives.
    Attack("bim", "BIM (I-FGSM)", _FIXED, _WHITE, "Kurakin et al. 2017", _ITERATED),
    Attack("least-likely", "Least-likely I-FGSM", _FIXED, _WHITE, "Kurakin et al. 2017", _ITERATED),
    Attack("pgd", "PGD", _FIXED, _WHITE, "Madry et al. 2018", _PGD),
    Attack("adam-pgd", "PGD with Adam", _FIXED, _WHITE, "Uesato et al. 2018", _PGD),
    Attack("adam-bim", "BIM with Adam", _FIXED, _WHITE, "Foolbox", _ITERATED),
    Attack("sparse-l1-descent", "SLIDE", _FIXED, _WHITE, "Tramer and Boneh 2019", _PGD),
    Attack("eot-pgd", "EOT-PGD", _FIXED, _WHITE, "Zimmermann 2019", {**_PGD, "samples": 2}),
    Attack("trades-pgd", "TPGD (KL)", _FIXED, _WHITE, "Zhang et al. 2019", _ITERATED),
    Attack("jitter", "Jitter", _FIXED, _WHITE, "Schwinn et al. 2021", _PGD),
    Attack("upgd", "Ultimate PGD", _FIXED, _WHITE, "torchattacks", {**_PGD, "decay": 1.0}),
    Attack("smoothed-pgd", "PGD on noisy copies", _FIXED, _WHITE, "Salman et al. 2019", {**_ITERATED, "samples": 5}),
    # Momentum and input variations, made for transfer.
    Attack("mi-fgsm", "MI-FGSM", _FIXED, _WHITE, "Dong et al. 2018", _MOMENTUM),
    Attack("ni-fgsm", "NI-FGSM", _FIXED, _WHITE, "Lin et al. 2020", _MOMENTUM),
    Attack("si-fgsm", "SI-FGSM", _FIXED, _WHITE, "Lin et al. 2020", {**_MOMENTUM, "scales": 5}),
    Attack("si-ni-fgsm", "SI-NI-FGSM", _FIXED, _WHITE, "Lin et al. 2020", {**_MOMENTUM, "scales": 5}),
    Attack("vmi-fgsm", "VMI-FGSM", _FIXED, _WHITE, "Wang and He 2021", {**_MOMENTUM, "samples": 5}),
    Attack("vni-fgsm", "VNI-FGSM", _FIXED, _WHITE, "Wang and He 2021", {**_MOMENTUM, "samples": 5}),
    Attack("di-fgsm", "DI-FGSM", _FIXED, _WHITE, "Xie et al. 2019", _MOMENTUM),
    Attack("ti-fgsm", "TI-FGSM", _FIXED, _WHITE, "Dong et al. 2019", _MOMENTUM),
    Attack("admix", "Admix", _FIXED, _WHITE, "Wang et al. 2021", {**_MOMENTUM, "samples": 3, "portion": 0.2}),
    Attack("ssa", "SSA (spectrum simulation)", _FIXED, _WHITE, "Long et al. 2022", _TRANSFORMED),
    Attack("bsr", "BSR (block shuffle and rotation)", _FIXED, _WHITE, "Wang et al. 2024", _TRANSFORMED),
    Attack("decowa", "DeCoWA (constrained warping)", _FIXED, _WHITE, "Lin et al. 2024", _TRANSFORMED),
    Attack(
        "gra", "GRA (gradient relevance)", _FIXED, _WHITE, "Zhu et al. 2023", {**_TRANSFORMED, "neighbourhood": 3.5}
    ),
    Attack("mig", "MIG (momentum integrated gradients)", _FIXED, _WHITE, "Ma et al. 2023", {**_MOMENTUM, "scales": 25}),
    Attack("mumodig", "MuMoDIG", _FIXED, _WHITE, "Ren et al. 2025", {**_MOMENTUM, "samples": 6}),
    Attack("l2t", "L2T (learning to transform)", _FIXED, _WHITE, "Zhu et al. 2024", {**_MOMENTUM, "samples": 5}),
    Attack("pi-fgsm", "PI-FGSM", _FIXED, _WHITE, "Gao et al. 2020", {"steps": 10, "decay": 1.0}),
    Attack("pi-fgsm++", "PI-FGSM++", _FIXED, _WHITE, "Gao et al. 2020b", {"steps": 10, "decay": 1.0}),
    # On the outputs of a layer, made for transfer.
    Attack(
        "fda", "FDA (feature disruption)", _FIXED, _WHITE, "Ganeshan et al. 2019", {**_MOMENTUM, "random_start": True}
    ),
    Attack("dr", "DR (dispersion reduction)", _FIXED, _WHITE, "Lu et al. 2020", {**_ITERATED, "steps": 100}),
    Attack("fia", "FIA (feature importance)", _FIXED, _WHITE, "Wang et al. 2021b", {**_MOMENTUM, "samples": 30}),
    Attack("naa", "NAA (neuron attribution)", _FIXED, _WHITE, "Zhang et al. 2022", {**_MOMENTUM, "samples": 30}),
    Attack("danaa", "DANAA", _FIXED, _WHITE, "Jin et al. 2023", {**_MOMENTUM, "samples": 30}),
    Attack("ilpd", "ILPD (perturbation decay)", _FIXED, _WHITE, "Li et al. 2023", {**_MOMENTUM, "std": 0.05}),
    Attack("bfa", "BFA (black-box features)", _FIXED, _WHITE, "Wang et al. 2024b", {**_MOMENTUM, "samples": 30}),
    # On the parts of one kind of network, made for transfer.
    Attack("sgm", "SGM (skip gradients)", _FIXED, _WHITE, "Wu et al. 2020", _MOMENTUM),
    Attack("bpa", "BPA (backward propagation)", _FIXED, _WHITE, "Wang et al. 2023", _MOMENTUM),
    Attack("pna-patchout", "PNA-PatchOut", _FIXED, _WHITE, "Wei et al. 2022", _MOMENTUM),
    Attack("tgr", "TGR (token gradients)", _FIXED, _WHITE, "Zhang et al. 2023", _MOMENTUM),
    Attack("vdc", "VDC (virtual dense connections)", _FIXED, _WHITE, "Zhang et al. 2024", _MOMENTUM),
    Attack("att", "ATT (adaptive token tuning)", _FIXED, _WHITE, "Ming et al. 2024", _MOMENTUM),
    # Without parameters to tune, and ensembles.
    Attack("apgd-ce", "APGD-CE", _FIXED, _WHITE, "Croce and Hein 2020", _APGD),
    Attack("apgd-dlr", "APGD-DLR", _FIXED, _WHITE, "Croce and Hein 2020", _APGD),
    Attack("apgd-margin", "APGD on the margin", _FIXED, _WHITE, "Croce and Hein 2020, davylamp", _APGD),
    Attack("acg", "Auto conjugate gradient", _FIXED, _WHITE, "Yamamura et al. 2022", _APGD),
    Attack("reacg", "Rescaled auto conjugate gradient", _FIXED, _WHITE, "Yamamura et al. 2024", _APGD),
    Attack("apgd-t", "APGD-T", _FIXED, _WHITE, "Croce and Hein 2020", {"steps": 100, "candidates": 10}),
    Attack(
        "minimal-apgd",
        "APGD within the smallest radius",
        _MINIMUM,
        _WHITE,
        "Croce and Hein 2020, adversarial-library",
        {"steps": 100, "binary_search_steps": 10},
    ),
    Attack("autoattack", "AutoAttack", _FIXED, _WHITE, "Croce and Hein 2020", {"steps": 100}),
    Attack("margin-ensemble", "Margin ensemble", _FIXED, _WHITE, "Croce and Hein 2020, davylamp", {"steps": 100}),
    Attack("uap", "Universal perturbation", _FIXED, _WHITE, "Moosavi-Dezfooli et al. 2017", {"steps": 10}),
    Attack(
        "targeted-uap", "Targeted universal perturbation", _FIXED, _WHITE, "Hirano and Takemoto 2020", {"steps": 10}
    ),
    Attack("gd-uap", "GD-UAP", _FIXED, _WHITE, "Mopuri et al. 2018", {"steps": 1000}),
    Attack("advgan", "AdvGAN", _FIXED, _WHITE, "Xiao et al. 2018", {"epochs": 60}),
    Attack("virtual-adversarial", "Virtual adversarial", _FIXED, _WHITE, "Miyato et al. 2019", {"steps": 10}),
    # Smallest perturbation, by gradients.
    Attack("fab", "FAB", _MINIMUM, _WHITE, "Croce and Hein 2020b", {"steps": 100}),
    Attack("fab-t", "FAB-T", _MINIMUM, _WHITE, "Croce and Hein 2020b", {"steps": 100, "candidates": 10}),
    Attack(
        "deepfool",
        "DeepFool",
        _MINIMUM,
        _WHITE,
        "Moosavi-Dezfooli et al. 2016",
        {"steps": 50, "overshoot": 0.02, "candidates": 10},
    ),
    Attack(
        "superdeepfool",
        "SuperDeepFool",
        _MINIMUM,
        _WHITE,
        "Abdollahpoorrostam et al. 2024",
        {"steps": 100, "overshoot": 0.02},
    ),
    Attack("trust-region", "Trust region", _MINIMUM, _WHITE, "Yao et al. 2019", {"steps": 100}),
    Attack("trust-region-adaptive", "Trust region, adaptive", _MINIMUM, _WHITE, "Yao et al. 2019", {"steps": 100}),
    Attack(
        "lbfgs",
        "L-BFGS",
        _MINIMUM,
        _WHITE,
        "Szegedy et al. 2014",
        {"steps": 50, "binary_search_steps": 10, "initial_const": 1.0},
    ),
    Attack("cw", "C&W", _MINIMUM, _WHITE, "Carlini and Wagner 2017", _CARLINI),
    Attack("ead-en", "EAD (elastic net)", _MINIMUM, _WHITE, "Chen et al. 2018", _ELASTIC),
    Attack("ead-l1", "EAD (l1)", _MINIMUM, _WHITE, "Chen et al. 2018", _ELASTIC),
    Attack("newtonfool", "NewtonFool", _MINIMUM, _WHITE, "Jang et al. 2017", {"steps": 100, "learning_rate": 0.01}),
    Attack("ddn", "DDN", _MINIMUM, _WHITE, "Rony et al. 2019", {"steps": 100, "gamma": 0.05}),
    Attack("fmn", "FMN", _MINIMUM, _WHITE, "Pintor et al. 2021", {"steps": 100, "gamma": 0.05}),
    Attack("alma", "ALMA", _MINIMUM, _WHITE, "Rony et al. 2021", _ALMA),
    Attack("alma-ssim", "ALMA (SSIM)", _MINIMUM, _WHITE, "Rony et al. 2021", _ALMA),
    Attack("alma-ciede2000", "ALMA (CIEDE2000)", _MINIMUM, _WHITE, "Rony et al. 2021", _ALMA),
    Attack("pdgd", "PDGD", _MINIMUM, _WHITE, "Matyasko and Chau 2021", {"steps": 500, "learning_rate": 0.1}),
    Attack("pdpgd", "PDPGD", _MINIMUM, _WHITE, "Matyasko and Chau 2021", {"steps": 500, "learning_rate": 0.1}),
    Attack("perc-al", "PerC-AL", _MINIMUM, _WHITE, "Zhao et al. 2020", {"steps": 100}),
    Attack(
        "strattack",
        "StrAttack",
        _MINIMUM,
        _WHITE,
        "Xu et al. 2019",
        _STRUCTURED,
    ),
    Attack("brendel-bethge", "Brendel-Bethge", _MINIMUM, _WHITE, "Brendel et al. 2019", {"steps": 100}),
    Attack("jsma", "JSMA", _FIXED, _WHITE, "Papernot et al. 2016", {"theta": 1.0}),
    Attack("sparsefool", "SparseFool", _MINIMUM, _WHITE, "Modas et al. 2019", {"steps": 10, "overshoot": 0.02}),
    Attack("sigma-zero", "sigma-zero", _MINIMUM, _WHITE, "Cina et al. 2025", {"steps": 100, "learning_rate": 1.0}),
    Attack("fga", "FGA (folded Gaussian)", _MINIMUM, _WHITE, "Cesaire et al. 2021", {"trials": 10}),
    Attack("vfga", "VFGA (voting folded Gaussian)", _MINIMUM, _WHITE, "Cesaire et al. 2021", {"trials": 10}),
    Attack("wasserstein", "Wasserstein", _MINIMUM, _WHITE, "Wong et al. 2019", {"steps": 100}),
    Attack(
        "shadow", "Shadow", _MINIMUM, _WHITE, "Ghiasi et al. 2020", {"steps": 300, "learning_rate": 0.1, "samples": 20}
    ),
    Attack("ssah", "SSAH", _MINIMUM, _WHITE, "Luo et al. 2022", {"steps": 150}),
    Attack("bp", "Boundary projection", _MINIMUM, _WHITE, "Zhang et al. 2020", {"steps": 100}),
    # By scores.
    Attack(
        "square", "Square", _FIXED, _SCORE, "Andriushchenko et al. 2020", {"steps": 1000, "initial_probability": 0.8}
    ),
    Attack("simba", "SimBA", _MINIMUM, _SCORE, "Guo et al. 2019", {"max_queries": 1000}),
    Attack("zoo", "ZOO", _MINIMUM, _SCORE, "Chen et al. 2017", {"max_queries": 20000}),
    Attack("spsa", "SPSA", _FIXED, _SCORE, "Uesato et al. 2018", {"steps": 20, "samples": 128}),
    Attack("nattack", "NATTACK", _FIXED, _SCORE, "Li et al. 2019", {"steps": 20, "samples": 300}),
    Attack("lsa", "LSA", _MINIMUM, _SCORE, "Narodytska and Kasiviswanathan 2017", {"steps": 20}),
    Attack("tremba", "TREMBA", _FIXED, _SCORE, "Huang and Zhang 2020", {"steps": 200, "samples": 20, "epochs": 200}),
    Attack("genattack", "GenAttack", _FIXED, _SCORE, "Alzantot et al. 2019", {"steps": 100, "population": 10}),
    Attack("one-pixel", "One pixel", _FIXED, _SCORE, "Su et al. 2019", {"steps": 10, "population": 400}),
    Attack("threshold", "Threshold", _FIXED, _SCORE, "Kotyan and Vargas 2022", {"steps": 10}),
    Attack("pixle", "Pixle", _MINIMUM, _SCORE, "Pomponi et al. 2022", {"steps": 20, "trials": 10}),
    # By decisions.
    Attack("boundary", "Boundary", _MINIMUM, _DECISION, "Brendel et al. 2018", {"max_queries": 2000}),
    Attack(
        "hopskipjump",
        "HopSkipJump",
        _MINIMUM,
        _DECISION,
        "Chen et al. 2020",
        {"steps": 10, "initial_evaluations": 100, "max_evaluations": 10000},
    ),
    Attack("qeba", "QEBA", _MINIMUM, _DECISION, "Li et al. 2020", {"max_queries": 2000}),
    Attack("geoda", "GeoDA", _MINIMUM, _DECISION, "Rahmati et al. 2020", {"max_queries": 1000}),
    Attack("sign-opt", "Sign-OPT", _MINIMUM, _DECISION, "Cheng et al. 2020", {"max_queries": 2000}),
    Attack("surfree", "SurFree", _MINIMUM, _DECISION, "Maho et al. 2021", {"max_queries": 5000}),
    Attack("rays", "RayS", _MINIMUM, _DECISION, "Chen and Gu 2020", {"max_queries": 10_000}),
    Attack("pointwise", "Pointwise", _MINIMUM, _DECISION, "Schott et al. 2019", {}),
    Attack(
        "spatial",
        "Spatial",
        _FIXED,
        _DECISION,
        "Engstrom et al. 2019",
        {"max_translation": 3.0, "translations": 5, "max_rotation": 30.0, "rotations": 5},
    ),
    # Noise and common changes.
    Attack("salt-and-pepper", "Salt and pepper", _MINIMUM, _DECISION, "Foolbox", {"steps": 1000}),
    Attack("gaussian-noise", "Gaussian noise", _FIXED, _DECISION, "Foolbox", {}),
    Attack("uniform-noise", "Uniform noise", _FIXED, _DECISION, "Foolbox", {}),
    Attack("repeated-gaussian-noise", "Repeated Gaussian noise", _FIXED, _DECISION, "Foolbox", {"noise_samples": 100}),
    Attack("repeated-uniform-noise", "Repeated uniform noise", _FIXED, _DECISION, "Foolbox", {"noise_samples": 100}),
    Attack("full-gaussian-noise", "Gaussian noise, clipping-aware", _FIXED, _DECISION, "Rauber and Bethge 2020", {}),
    Attack("full-uniform-noise", "Uniform noise, clipping-aware", _FIXED, _DECISION, "Rauber and Bethge 2020", {}),
    Attack(
        "repeated-full-gaussian-noise",
        "Repeated Gaussian noise, clipping-aware",
        _FIXED,
        _DECISION,
        "Rauber and Bethge 2020",
        {"noise_samples": 100},
    ),
    Attack(
        "repeated-full-uniform-noise",
        "Repeated uniform noise, clipping-aware",
        _FIXED,
        _DECISION,
        "Rauber and Bethge 2020",
        {"noise_samples": 100},
    ),
    Attack(
        "blended-noise", "Blended uniform noise", _MINIMUM, _DECISION, "Foolbox", {"directions": 1000, "steps": 1000}
    ),
    Attack("blur", "Gaussian blur", _MINIMUM, _DECISION, "Foolbox", {"steps": 1000}),
    Attack("contrast", "Contrast reduction", _MINIMUM, _DECISION, "Foolbox", {"target_value": 0.5}),
    Attack("linear-contrast", "Contrast reduction step by step", _MINIMUM, _DECISION, "Foolbox", {"target_value": 0.5}),
    Attack("fixed-contrast", "Contrast reduction to a radius", _FIXED, _DECISION, "Foolbox", {"target_value": 0.5}),
    Attack("inversion", "Inversion", _MINIMUM, _DECISION, "Hosseini et al. 2017", {}),
)

ATTACKS: Mapping[str, Attack] = {attack.name: attack for attack in _ALL}
