"""The tables and figures of AISafety (Liu, Guo et al.) that `davylamp reproduce` can run."""

from ..shared.paper_table import PaperTable

_COVERAGE, _VISIBILITY = ".aisafety.coverage:compare_coverage", ".aisafety.imperceptibility:compare_imperceptibility"
_CIFAR, _SVHN = {"dataset": "CIFAR-10"}, {"dataset": "SVHN"}

TABLES = (
    PaperTable(
        "aisafety-table2",
        "accuracy under white-box attacks",
        "aisafety_table2",
        ".aisafety.table2:compare_white_box",
    ),
    PaperTable(
        "aisafety-table3",
        "accuracy under black-box attacks",
        "aisafety_table3",
        ".aisafety.table3:compare_black_box",
    ),
    PaperTable(
        "aisafety-table4",
        "effect of defences on clean images",
        "aisafety_table4",
        ".aisafety.table4:compare_defences",
    ),
    PaperTable(
        "aisafety-table5",
        "distances to the decision boundary",
        "aisafety_table5",
        ".aisafety.table5:compare_boundary_distances",
    ),
    PaperTable(
        "aisafety-table6",
        "neuron coverage of adversarial test sets, CIFAR-10",
        "aisafety_table6",
        _COVERAGE,
    ),
    PaperTable(
        "aisafety-table7",
        "neuron coverage of adversarial test sets, SVHN",
        "aisafety_table7",
        _COVERAGE,
    ),
    PaperTable(
        "aisafety-table8",
        "visibility of adversarial test sets, CIFAR-10",
        "aisafety_table8",
        _VISIBILITY,
        _CIFAR,
    ),
    PaperTable(
        "aisafety-table9",
        "visibility of adversarial test sets, SVHN",
        "aisafety_table9",
        _VISIBILITY,
        _SVHN,
    ),
    PaperTable(
        "aisafety-table10",
        "platforms and what they have, with davylamp",
        "aisafety_table10",
        ".shared.platforms:compare_platforms",
        show=".shared.platforms:print_platforms",
        runs_models=False,
    ),
    PaperTable(
        "aisafety-figure2",
        "accuracy, confidences and noise tolerance against the radius",
        "aisafety_figures",
        ".aisafety.figures:compare_radii",
    ),
    PaperTable(
        "aisafety-figure3",
        "errors on corrupted images, and flips along sequences",
        "aisafety_figures",
        ".aisafety.figures:compare_corruptions",
    ),
    PaperTable(
        "aisafety-figure4",
        "distance to the boundary, by direction and by image, CIFAR-10",
        "aisafety_figures",
        ".aisafety.figures:compare_directions",
        {"figure": "4"},
    ),
    PaperTable(
        "aisafety-figure5",
        "distance to the boundary, by direction and by image, SVHN",
        "aisafety_figures",
        ".aisafety.figures:compare_directions",
        {"figure": "5"},
    ),
    PaperTable(
        "aisafety-figure6",
        "insensitivity to noise against its radius",
        "aisafety_figures",
        ".aisafety.figures:compare_noise",
    ),
    PaperTable(
        "aisafety-figure7",
        "sensitivity and uncertainty of neurons, layer by layer",
        "aisafety_figures",
        ".aisafety.figures:compare_neurons",
    ),
)
