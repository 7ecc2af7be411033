"""Which images repeat, against NumPy's `unique`."""

import numpy as np
import torch

from davylamp.adapters.data.duplicates import duplicate_warning, first_occurrence


def test_first_places_are_those_of_unique_rows():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(50, 3, 8, 8, generator=generator)[torch.randint(50, (200,), generator=generator)]
    inputs[7, 2, 7, 6] += 0.001  # between the pixels that are looked at
    _, first, inverse = np.unique(inputs.flatten(1).numpy(), axis=0, return_index=True, return_inverse=True)
    assert first_occurrence(inputs) == first[inverse.ravel()].tolist()
    assert first_occurrence(inputs.half()[:1]) == [0]


def test_the_line_counts_them_and_what_contradicts_itself():
    inputs, labels = torch.rand(6, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    assert duplicate_warning(inputs, labels) == []
    inputs[[3, 5]] = inputs[[0, 1]]
    assert duplicate_warning(inputs, labels) == [
        "2 of 6 images duplicate an earlier image; intervals treat duplicates as independent; "
        "1 with a different label than the earlier image"
    ]
