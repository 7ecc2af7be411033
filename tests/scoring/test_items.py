"""Items: found as hard as they were made, and unlike for a group only where they were made so."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import fisher_exact

from davylamp.scoring import (
    ResponseModel,
    Responses,
    describe_differences,
    describe_items,
    differential_groups,
    differential_items,
    fit_irt,
    informative_items,
    item_kinds,
    libraries_of,
)

from .simulation import simulate


def simulated_groups(shifted, subjects=24, images=60, items=1, seed=0) -> Any:
    """Two groups of equal subjects; `shifted` images are easier for the first by two logits."""
    generator = np.random.default_rng(seed)
    ability, difficulty = generator.normal(size=subjects), generator.normal(size=images * items)
    image = np.repeat(np.arange(images), items)
    focal = np.arange(subjects) < subjects // 2
    ability[focal] += 0.5  # the groups differ in ability: that alone is no differential functioning
    linear = ability[:, None] - difficulty
    linear[np.ix_(focal, image < shifted)] += 2
    responses = (generator.random(linear.shape) < 1 / (1 + np.exp(-linear))).astype(float)
    return responses, focal, [f"image {place}" for place in image]


def test_differential_items_are_found():
    responses, focal, images = simulated_groups(shifted=6, items=5)
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=200, warmup=60)
    table = differential_items(fit, responses, focal, images)
    differential = set(table.loc[table["p_adjusted"] < 0.05, "item"])
    assert len(differential & set(images[:30])) >= 5
    assert len(differential - set(images[:30])) <= 2
    assert (table.set_index("item").loc[images[:30], "effect"] > 0.5).all()


def test_nothing_is_found_where_nothing_is():
    responses, focal, images = simulated_groups(shifted=0, images=150, items=5)
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=100, warmup=60)
    table = differential_items(fit, responses, focal, images)
    assert 0.005 < (table["p"] < 0.05).mean() < 0.08  # exact, so below 5 %; 3.7 % of many
    assert (table["p_adjusted"] < 0.05).sum() <= 1


def test_items_of_an_image_are_put_together():
    truth = simulate(10, 40, model="1pl", seed=1)
    truth.responses[0, 0] = np.nan
    fit = fit_irt(truth.responses, ResponseModel("1pl"), method="fast", draws=100, warmup=60)
    images: Any = np.repeat([f"image {place}" for place in range(20)], 2)
    table = describe_items(fit, truth.responses, images)
    assert list(table["difficulty"]) == sorted(table["difficulty"], reverse=True)
    first = table.set_index("item").loc["image 0"]
    assert first["difficulty"] == pytest.approx(fit.difficulty[:2].mean())
    assert first["mean"] == pytest.approx(np.nanmean(truth.responses[:, :2]))
    assert first["responses"] == 19
    assert np.corrcoef(table["difficulty"], table["mean"])[0, 1] < -0.9


def test_one_group_is_no_comparison():
    responses = simulate(4, 10, model="1pl", seed=1).responses
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=20, warmup=10)
    with pytest.raises(ValueError, match="got 4 of 4 subjects in the group"):
        differential_items(fit, responses, [True] * 4, list("abcdefghij"))


def test_the_p_value_is_fishers_where_all_are_equally_able():
    """One item, equal abilities: the group's successes given all successes are hypergeometric."""
    responses = np.array([[1, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1.0]])
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=20, warmup=10)
    fit = replace(fit, expected=np.zeros(7))
    focal: Any = np.arange(7) < 3
    table = differential_items(fit, responses, focal, list("xyz")).set_index("item")
    for name, column in zip("xyz", responses.T, strict=True):
        counts = [[column[focal].sum(), 3 - column[focal].sum()], [column[~focal].sum(), 4 - column[~focal].sum()]]
        exact: Any = fisher_exact(counts)
        assert table.loc[name, "p"] == pytest.approx(exact.pvalue)


def test_the_p_value_counts_all_outcomes_of_unequal_subjects():
    """Every outcome of two items with its probability, written out, at other difficulties."""
    ability, difficulty = np.array([1.0, -0.5, 0.2, 2.0]), np.array([0.3, -1.0])
    responses = np.array([[1, 1], [0, 1], [1, 0], [0, 1.0]])
    fit = fit_irt(np.tile(responses, 4), ResponseModel("1pl"), method="fast", draws=20, warmup=10)
    fit = replace(fit, expected=ability, difficulty=difficulty, discrimination=np.array([1.0, 1.5]))
    focal: Any = np.array([True, True, False, False])
    chances = {}
    for outcome in product((0, 1), repeat=8):
        matrix = np.array(outcome).reshape(4, 2)
        if (matrix.sum(0) == responses.sum(0)).all():
            right = 1 / (1 + np.exp(-fit.discrimination * (ability[:, None] - [4.0, -2.0])))
            weight = np.prod(np.where(matrix, right, 1 - right))
            count = matrix[focal].sum()
            chances[count] = chances.get(count, 0) + weight
    total, here = sum(chances.values()), chances[int(responses[focal].sum())]
    expected = sum(chance for chance in chances.values() if chance <= here * (1 + 1e-9)) / total
    assert differential_items(fit, responses, focal, ["x", "x"])["p"][0] == pytest.approx(expected)


def test_groups_are_tested_together_and_put_into_words():
    responses, focal, images = simulated_groups(shifted=6, items=5)
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=200, warmup=60)
    table = differential_groups(fit, responses, np.where(focal, "art", "foolbox").tolist(), images)
    assert len(table) == 2 * 60
    alone = differential_items(fit, responses, focal, images).set_index("item")["p_adjusted"]
    together = table[table["group"] == "art"].set_index("item")["p_adjusted"]
    assert (together >= alone.loc[together.index] - 1e-12).all()
    odd = table[(table["p_adjusted"] < 0.05) & (table["group"] == "art")]
    better, worse = int((odd["effect"] > 0).sum()), int((odd["effect"] < 0).sum())
    assert better >= 5
    first, second, rule = describe_differences(table)
    assert first.startswith("At equal ability art is ")
    assert f"better than expected on {better} (image " in first
    assert first.endswith("of 60 images.")
    assert (f"worse than expected on {worse} (" in first) == (worse > 0)
    assert second.startswith(f"At equal ability foolbox is worse than expected on {better} (")
    assert rule == "By exact conditional tests, 5% false discoveries over 120 tests (Benjamini-Hochberg)."
    (nothing,) = describe_differences(table.assign(p_adjusted=1.0))
    assert "No difference at equal ability was found between art, foolbox on any of 60 images" in nothing
    assert nothing.endswith("This does not show that there is none.")


def test_what_divides_the_subjects_is_informative():
    """Items that all or none withstand, and items that half withstand, of which half the items are."""
    ability = np.linspace(-1.5, 1.5, 8)
    generator = np.random.default_rng(1)
    difficulty = np.concatenate([np.full(30, -5.0), np.full(30, 0.0), np.full(30, 5.0)])
    chance = 1 / (1 + np.exp(-(ability[:, None] - difficulty)))
    responses = (generator.random(chance.shape) < chance).astype(float)
    kinds = ["easy"] * 30 + ["middle"] * 30 + ["hard"] * 30
    fit = fit_irt(responses, ResponseModel("1pl"), method="fast", draws=300, warmup=100)
    table = informative_items(fit, responses, kinds).set_index("item")
    assert table.index[0] == "middle"
    assert table["share"].sum() == pytest.approx(1)
    true = (chance * (1 - chance)).mean(0)
    assert table.loc["middle", "information"] == pytest.approx(true[30:60].mean(), rel=0.15)
    assert table.loc["easy", "information"] < 0.4 * table.loc["middle", "information"]
    unbroken = responses.copy()
    unbroken[:, 60:] = 0
    table_of_rest = informative_items(fit, unbroken, kinds).set_index("item")  # nobody withstands the hard ones
    assert table_of_rest.loc["hard", ["share", "differ"]].tolist() == [0, 0]
    assert table_of_rest.index[-1] == "hard"
    assert table_of_rest["share"].sum() == pytest.approx(1)
    few = ["few" if place in range(44, 46) else kind for place, kind in enumerate(kinds)]  # of the most informative
    by_share = informative_items(fit, responses, few)
    assert by_share["item"].tolist()[0] == "middle"
    assert by_share["item"].tolist() != by_share.sort_values("information", ascending=False)["item"].tolist()
    assert by_share["share"].is_monotonic_decreasing
    first = responses[:, :30]
    assert table.loc["easy", "differ"] == pytest.approx((first.max(0) > first.min(0)).mean())
    with pytest.raises(
        ValueError,
        match="a curve other than 'intercept', got response='beta'",
    ):
        informative_items(replace(fit, model=ResponseModel("1pl", "beta")), responses, kinds)


def test_kinds_are_what_items_have_beside_their_image():
    items = ("d 1 x pgd linf 0.1 False 0", "d 1 x cw l2 nan False 0", "d 2 x pgd linf 0.1 False 0")
    responses = Responses(np.ones((2, 3)), ("a", "b"), items, ("d 1", "d 1", "d 2"))
    assert item_kinds(responses) == ("pgd linf 0.1", "cw l2", "pgd linf 0.1")
    alone = responses._replace(items=("d 1 x m 0",), images=("d 1",))
    assert item_kinds(alone) == ("m",)


def test_libraries_are_those_of_the_names():
    names = ["art:pgd", "foolbox:pgd linf 0.1", "best(foolbox:pgd)", "mine.py:f"]
    assert libraries_of(names) == ["art", "foolbox", "foolbox", "mine.py"]
