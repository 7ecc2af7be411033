"""Wu-Palmer similarity on a small tree, and the facts known of ImageNet's."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from davylamp.metrics import METRICS, imagenet_wup, semantic_confusion, wordnet, wup_from_paths


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
        ([["a"], ["b"]], "got 2 roots"),
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


def test_first_senses_are_those_of_the_paper():
    """0.46 of coral and jackfruit (3.3), and the shares of 6.3; with a loop over every pair of paths."""
    first = imagenet_wup("first")
    assert float(first[109, 955]) == pytest.approx(12 / 26)
    assert torch.equal(first, first.T)
    assert (first.diagonal() == 1).all()
    pairs = first[tuple(torch.triu_indices(1000, 1000, offset=1))]
    assert float(pairs.median()) == pytest.approx(0.381, abs=5e-4)
    assert float((pairs > 0.4).double().mean()) == pytest.approx(0.420, abs=5e-4)
    assert float((pairs < 0.7).double().mean()) == pytest.approx(0.948, abs=5e-4)
    with np.load(Path(wordnet.__file__).parent / "data" / "imagenet_first_senses.npz") as stored:
        paths = [[] for _ in range(1000)]
        for nodes, owner in zip(stored["nodes"].tolist(), stored["owner"].tolist(), strict=True):
            paths[owner].append([node for node in nodes if node])
    chooser = random.Random(1)
    for _ in range(300):
        a, b = chooser.randrange(1000), chooser.randrange(1000)
        best = max(
            2 * (max(i for i, (x, y) in enumerate(zip(p, q, strict=False)) if x == y) + 1) / (len(p) + len(q))
            for p in paths[a]
            for q in paths[b]
        )
        assert float(first[a, b]) == pytest.approx(best)
    with pytest.raises(ValueError, match="expected sense to be one of 'class', 'first'"):
        imagenet_wup("second")


def test_first_senses_count_as_a_reading():
    """Coral taken for jackfruit: far by the class (0.19), nearer by the first sense, at any threshold between."""
    logits, adv_logits = torch.eye(1000)[[109]], torch.eye(1000)[[955]]
    similarity = METRICS["QI_Wup"].readings["first-sense"].options["similarity"]()
    for threshold in (0.19, 0.3, 0.46, 0.47):
        near = semantic_confusion(logits, adv_logits, imagenet_wup(), threshold)
        assert near == (threshold > 2 * 2 / 21)
        assert semantic_confusion(logits, adv_logits, similarity, threshold) == (threshold > 12 / 26)
