"""Wu-Palmer similarity on a small tree, and the facts known of ImageNet's."""

import random

import pytest
import torch

from davylamp.metrics import imagenet_wup, wup_from_paths


@pytest.fixture(scope="module")
def wup():
    return imagenet_wup()


def test_by_hand():
    paths = [["thing", "animal", "dog", "puppy"], ["thing", "animal", "cat"], ["thing", "stone"], ["thing", "animal"]]
    expected = [
        [1, 2 * 2 / 7, 2 * 1 / 6, 2 * 2 / 6],
        [2 * 2 / 7, 1, 2 * 1 / 5, 2 * 2 / 5],
        [2 * 1 / 6, 2 * 1 / 5, 1, 2 * 1 / 4],
        [2 * 2 / 6, 2 * 2 / 5, 2 * 1 / 4, 1],
    ]
    torch.testing.assert_close(wup_from_paths(paths), torch.tensor(expected, dtype=torch.float64))
    assert wup_from_paths([["root"]]) == 1


def test_against_a_loop_over_a_random_tree():
    chooser = random.Random(0)
    paths = [[0]]
    for node in range(1, 60):
        paths.append([*chooser.choice(paths), node])

    def similarity(a, b):
        depth = max(i + 1 for i, (x, y) in enumerate(zip(a, b, strict=False)) if x == y)
        return 2 * depth / (len(a) + len(b))

    expected = torch.tensor([[similarity(a, b) for b in paths] for a in paths], dtype=torch.float64)
    torch.testing.assert_close(wup_from_paths(paths), expected)


def test_paths_that_meet_again_share_their_last_common_node():
    paths = [["root", "a", "meeting", "x"], ["root", "b", "meeting", "y"]]
    assert wup_from_paths(paths)[0, 1] == 2 * 3 / 8


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "expected at least one path"),
        ([["a"], []], "expected at least one path"),
        ([["a"], ["b"]], "expected one root, got 2"),
        ([["a", "b", "c"], ["a", "c"]], "expected one depth for node 'c', got 3 and 2"),
    ],
)
def test_paths_that_are_no_tree(paths, message):
    with pytest.raises(ValueError, match=message):
        wup_from_paths(paths)


def test_imagenet(wup):
    assert wup.shape == (1000, 1000)
    assert wup.dtype == torch.float64
    assert torch.equal(wup, wup.T)
    assert (wup.diagonal() == 1).all()
    assert wup.min() > 0
    assert wup.max() == 1
    different = wup[tuple(torch.triu_indices(1000, 1000, 1))]
    assert different.max() < 1
    assert wup[109, 955] == pytest.approx(0.190, abs=5e-4)  # brain coral and jackfruit
    assert different.median() == pytest.approx(0.381, abs=5e-4)
    assert (different > 0.4).double().mean() == pytest.approx(0.452, abs=5e-4)
    assert (different < 0.7).double().mean() == pytest.approx(0.949, abs=5e-4)


def test_imagenet_neighbours(wup):
    tench, goldfish, great_white, tiger_shark = range(4)
    assert wup[great_white, tiger_shark] > wup[tench, great_white] > wup[tench, 955]
    assert wup[tench, goldfish] > wup[tench, great_white]
