"""The ranking on a page says what is missing and what counts more than once."""

import numpy as np

from davylamp.report.parts.reading import read_folder
from davylamp.report.sections.ranking import response_frame, write_ranking


def test_a_radius_is_a_number_whether_there_is_one_or_not(folder):
    """Pandas 2 warns where a column of None meets one of numbers."""
    frame = response_frame(read_folder(folder))
    assert frame["epsilon"].dtype == np.float64
    assert frame["epsilon"].isna().any()
    assert frame["epsilon"].notna().any()


def test_the_section_says_that_an_attack_counts_once(folder):
    notes = [block.text for block in write_ranking(read_folder(folder)).blocks if hasattr(block, "text")]
    sentence = (
        "an attack counts once, the strongest of its libraries on each image: "
        "pgd (art, foolbox, torchattacks); deepfool (foolbox, torchattacks)"
    )
    assert sentence in notes
