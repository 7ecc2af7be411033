"""Known issues of SecML-Torch 1.5. A test shows each issue. davylamp runs the code unchanged."""

from collections.abc import Mapping

from ..library import KnownIssue

FINDINGS: Mapping[str, KnownIssue] = {
    "starts-from-the-image": KnownIssue(
        "adds the image to the noise of its random start, so in linf nearly every component starts at +epsilon"
    ),
    "no-first-radius": KnownIssue(
        "its first estimate of the radius is infinite, so the perturbation is not bounded until an image is fooled",
        ("linf", "l2", "l1"),
    ),
    "gamma-overwritten": KnownIssue("overwrites the given gamma with 0.05, so gamma is not a parameter here"),
    "small-first-radius": KnownIssue(
        "starts at a radius of 8/255 by default instead of the paper's 1, so 100 steps do not fool every image"
    ),
}
