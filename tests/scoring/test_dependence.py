"""What a fit takes for granted: by brute force."""

import numpy as np
import pytest

from davylamp.scoring.dependence import missing_by_subject


def test_cochrans_q_by_permutation():
    """The names of the subjects are exchanged on each image, its responses together."""
    generator = np.random.default_rng(0)
    missing = generator.binomial(5, 0.2, size=(4, 40)).astype(float)
    missing[0] += generator.binomial(2, 0.15, size=40)

    def spread(counts):
        return counts.sum(1).var()

    shuffled = [spread(generator.permuted(missing, axis=0)) for _ in range(4000)]
    expected = np.mean(np.array(shuffled) >= spread(missing) - 1e-9)
    assert missing_by_subject(missing) == pytest.approx(expected, abs=0.02)


def test_nothing_to_test():
    assert missing_by_subject(np.ones((3, 5))) == 1
    assert missing_by_subject(np.ones((1, 5))) == 1


def test_one_image_proves_nothing_however_many_responses_it_has():
    missing = np.zeros((3, 20))
    missing[0, 0] = 100
    assert missing_by_subject(missing) > 0.3
