"""What the page says of pairs of implementations is the same whatever order the process has for a set of texts."""

from types import SimpleNamespace

from davylamp.report.sections.agreement import _note


def test_the_powers_named_do_not_depend_on_the_seed_of_hashes():
    powers = [f"with {images} images" for images in range(880, 920)]
    pairs = [SimpleNamespace(judgement=SimpleNamespace(power=power)) for power in reversed(powers)]
    said = _note(pairs)  # pyright: ignore[reportArgumentType]
    assert said.endswith("Here: with 880 images; with 881 images; and 38 other numbers of images.")
