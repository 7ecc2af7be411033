"""A newcomer against a baseline: a closed form, the refit of all, gaps, and what the two results have in common."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

from davylamp.scoring import ResponseModel, place_new_subject, place_results
from davylamp.scoring.anchor import Anchor, partial_design_effect
from davylamp.scoring.irt import fit_irt
from davylamp.scoring.placement import align_results
from davylamp.scoring.responses import build_against

from .simulation import simulate

NAMES = [f"model {place}" for place in range(8)]


def logistic(values):
    return 1 / (1 + np.exp(-values))


def chance_by_quadrature(anchor, responses, ability, value, *, density=None):
    """P(response) to one item: its difficulty integrated over its posterior given each draw of the baseline."""
    difficulty = np.linspace(-5, 5, 2001)
    result = []
    for place in anchor._state.ability:  # the draws as the tables hold them
        drawn = anchor._tables.ability[place].double().numpy()
        right = logistic(drawn[:, None] - difficulty)
        likelihood = np.where(responses[:, None] == 1, right, 1 - right)[~np.isnan(responses)]
        weight = norm.pdf(difficulty) * likelihood.prod(0)
        curve = logistic(ability[:, None] - difficulty)
        result.append((weight * (curve if value else 1 - curve)).sum(1) / weight.sum())
    return np.array(result)


def test_an_item_is_integrated_given_each_draw():
    responses = np.array([[1, 0, 1.0], [0, 0, np.nan], [1, 1, 0], [1, 0, 0]])
    fit = fit_irt(responses, ResponseModel("1pl", hierarchical=False), method="fast", chains=2, draws=100)
    anchor = Anchor(fit, responses, draws=5)
    assert anchor.baseline.shape == (5, 4)
    grid = anchor.ability[0]
    expected = [chance_by_quadrature(anchor, responses[:, item], grid, 1) for item in range(3)]
    assert anchor.response_probabilities([0, 1, 2]).numpy() == pytest.approx(np.array(expected), abs=0.01)
    log = anchor.log_likelihood(np.array([1, np.nan, 0])).numpy()
    assert log == pytest.approx(np.log(expected[0]) + np.log(1 - expected[2]), abs=0.03)
    weight = anchor.posterior(anchor.log_likelihood(np.array([1, np.nan, 0]))).numpy()
    posterior = norm.pdf(grid) * np.exp(np.log(expected[0]) + np.log(1 - expected[2]))
    assert weight == pytest.approx(posterior / posterior.sum(1, keepdims=True), abs=0.002)


def test_draws_have_the_posterior_that_they_are_drawn_from():
    truth = simulate(5, 40, model="1pl", seed=3)
    fit = fit_irt(truth.responses, ResponseModel("1pl"), method="fast", chains=2, draws=100)
    anchor = Anchor(fit, truth.responses, draws=20)
    log = anchor.log_likelihood(truth.responses[0])
    weight = anchor.posterior(log).numpy()
    drawn = anchor.draw(log, 4000)
    mean = (weight * anchor.ability).sum(1)
    spread = np.sqrt((weight * (anchor.ability - mean[:, None]) ** 2).sum(1))
    assert drawn.mean(1) == pytest.approx(mean, abs=0.01)
    assert drawn.std(1) == pytest.approx(spread, rel=0.03)
    assert anchor.draw(log, 3).std() > 0.9 * spread.mean()  # few draws are as wide
    assert anchor.expect(log) == pytest.approx(mean.mean())


def test_scores_between_are_densities():
    generator = np.random.default_rng(5)
    responses = generator.beta(3, 3, (6, 30))
    fit = fit_irt(responses, ResponseModel("1pl", "beta"), method="fast", chains=2, draws=100)
    anchor = Anchor(fit, responses, draws=3)
    low, high = (anchor.expect(anchor.log_likelihood(np.full(30, value))) for value in (0.3, 0.7))
    assert low < -0.3 < 0.3 < high
    # A density integrates to one over the responses, whatever the ability.
    grid = np.linspace(0, 1, 41)
    inside = (grid * 5 + 0.5) / 6  # Smithson and Verkuilen's, for six subjects
    one = np.array([anchor.log_likelihood(np.where(np.arange(30) == 2, value, np.nan)).numpy() for value in grid])
    total = trapezoid(np.exp(one), inside, axis=0)
    middle = slice(one.shape[2] // 3, -(one.shape[2] // 3))
    assert total[:, middle] == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(("model", "subjects"), [("1pl", 6), ("2pl", 12)])
def test_a_refit_of_all_says_the_same(model, subjects):
    truth = simulate(subjects, 100, model=model, seed=11, missing=0.1)
    names = [str(place) for place in range(subjects)]
    together = fit_irt(truth.responses, ResponseModel(model), method="fast", draws=500)
    draws = together.ability.reshape(-1, subjects)
    for one in (0, 3)[: 2 if model == "1pl" else 1]:
        rest = np.delete(np.arange(subjects), one)
        alone = fit_irt(truth.responses[rest], ResponseModel(model), method="fast", draws=500)
        placed = place_new_subject(
            truth.responses[rest], [names[each] for each in rest], truth.responses[one], "new", fit=alone
        )
        apart = draws[:, one] - draws[:, rest].mean(1)
        assert placed.score == pytest.approx(apart.mean(), abs=0.06)
        assert np.diff(placed.interval)[0] == pytest.approx(np.diff(np.quantile(apart, (0.025, 0.975)))[0], rel=0.15)
        beats = [(draws[:, one] > draws[:, other]).mean() for other in rest]
        assert list(placed.beats.values()) == pytest.approx(beats, abs=0.12)
        assert placed.ranking.score[:-1] == pytest.approx(placed.ranking.fit.expected)  # the baseline stays


def test_fewer_responses_wider_interval_and_no_item_is_changed():
    truth = simulate(8, 80, model="1pl", seed=2)
    fit = fit_irt(truth.responses[1:], ResponseModel("1pl"), method="fast")
    answers = truth.responses[0].copy()
    whole = place_new_subject(truth.responses[1:], NAMES[1:], answers, "new", fit=fit)
    answers[20:] = np.nan
    part = place_new_subject(truth.responses[1:], NAMES[1:], answers, "new", fit=fit)
    assert (part.responses, part.images) == (20, 20)
    assert np.diff(part.interval)[0] > 1.5 * np.diff(whole.interval)[0]
    assert part.rank_interval[0] <= part.rank <= part.rank_interval[1]
    frame, document = part.to_frame(), json.loads(json.dumps(part.to_dict(), allow_nan=False))
    assert frame["beats"].isna().sum() == 1
    assert document["placed"]["beats"] == pytest.approx(part.beats)
    assert "new" in repr(part)


def test_responses_of_one_image_widen_the_interval_by_how_many_were_answered(few_draws):
    assert partial_design_effect(3.0, np.repeat(np.arange(10), 5), np.repeat(np.arange(4), 5)) == pytest.approx(3)
    assert partial_design_effect(3.0, np.repeat(np.arange(10), 5), np.repeat(np.arange(4), 3)) == pytest.approx(2)
    assert partial_design_effect(3.0, np.repeat(np.arange(10), 5), np.arange(10)) == 1
    assert partial_design_effect(1.0, np.arange(10), np.arange(3)) == 1
    truth = simulate(6, 40, model="1pl", seed=4)
    copies = np.repeat(truth.responses, 4, axis=1)  # four attacks of which each says the same
    images = np.repeat(np.arange(40), 4).astype(str)
    alone = place_new_subject(truth.responses[1:], NAMES[1:6], truth.responses[0], "new", method="fast")
    placed = place_new_subject(copies[1:], NAMES[1:6], copies[0], "new", images, method="fast")
    assert any("are correlated" in note for note in placed.notes)
    assert np.diff(placed.interval)[0] == pytest.approx(np.diff(alone.interval)[0], rel=0.35)
    naive = place_new_subject(copies[1:], NAMES[1:6], copies[0], "new", method="fast")
    assert np.diff(naive.interval)[0] < 0.75 * np.diff(placed.interval)[0]


@pytest.mark.parametrize(
    ("newcomer", "name", "message"),
    [
        (np.full(5, np.nan), "new", "at least one new response that is not NaN"),
        (np.ones(4), "new", r"expected new responses of shape \(5,\), got shape \(4,\)"),
        (np.full(5, 2.0), "new", "expected responses in"),
        (np.ones(5), "a", "expected a new name, got a, which is a subject"),
    ],
)
def test_what_cannot_be_placed_is_said(newcomer, name, message):
    responses = np.tril(np.ones((3, 5)))
    with pytest.raises(ValueError, match=message):
        place_new_subject(responses, ["a", "b", "c"], newcomer, name)


def table(model, attacks, images, *, fooled=(), **columns):
    """Rows of results; an attack is "library:name"."""
    rows = [
        {
            "cell": f"{model} {attack}",
            "model": model,
            "attack": attack.partition(":")[2],
            "implementation": attack,
            "library": attack.partition(":")[0],
            "norm": "linf",
            "epsilon": 0.1,
            "targeted": False,
            "parameters": "{}",
            "seed": 0,
            "data": "photos",
            "image": f"image {image}",
            "label": image % 3,
            "attacked": True,
            "success": (attack, image) in fooled,
            "violated": False,
            "model_digest": f"weights of {model}",
            "data_digest": "pixels",
            "version": "1.0",
            **columns,
        }
        for attack in attacks
        for image in images
    ]
    return pd.DataFrame(rows)


BOTH = ("art:pgd", "foolbox:pgd")
BASELINE = pd.concat(
    [
        table("a", (*BOTH, "art:cw"), range(6), fooled={("art:pgd", 0), ("foolbox:pgd", 1)}),
        table("b", (*BOTH, "art:cw"), range(6), fooled={("art:pgd", image) for image in range(4)}),
    ],
    ignore_index=True,
)


def against(new, baseline=BASELINE, **options):
    return build_against(align_results(baseline, new).results, **options)


def test_an_item_is_what_both_tried():
    new = table("c", ("foolbox:pgd", "foolbox:fgsm"), range(4), fooled={("foolbox:pgd", 2)})
    (matrix,) = against(new)
    assert matrix.subjects == ("a", "b", "c")
    rows = dict(zip(matrix.items, matrix.values.T, strict=True))
    one = {
        image: next(values for name, values in rows.items() if f"image {image} " in name and "pgd" in name)
        for image in range(6)
    }
    # On the images of the newcomer foolbox alone counts; on the others the stronger of the two, and a gap.
    assert one[0].tolist() == [1, 1, 1]
    assert one[1].tolist() == [0, 1, 1]
    assert one[2].tolist() == [1, 1, 0]
    assert one[4].tolist() == pytest.approx([1, 1, np.nan], nan_ok=True)
    assert np.isnan(matrix.values[2]).sum() == 2 + 6  # two images, and everything of cw
    notes = "\n".join(matrix.notes)
    assert "omitted: 4 results of the baseline for which c has no corresponding result" in notes
    assert "omitted: 4 results of c that the baseline lacks: foolbox:fgsm linf 0.1" in notes


def test_each_newcomer_is_placed_alone_and_known_ones_are_left_out(few_draws):
    new = pd.concat([table(name, BOTH, range(6), fooled={("art:pgd", 3)}) for name in ("a", "c", "d")])
    matrices = against(new)
    assert [matrix.subjects for matrix in matrices] == [("a", "b", "c"), ("a", "b", "d")]
    assert "omitted: the new results of a, which the baseline already has" in matrices[0].notes
    placed = place_results(BASELINE, new)
    assert [each.newcomer for each in placed] == ["c", "d"]
    assert placed[0].score == placed[1].score
    assert any("12 items answered" in note or "6 of 12 items" in note for note in placed[0].notes)


def test_names_that_mean_something_else():
    other = table("a", BOTH, range(6), model_digest="other weights")
    (matrix,) = against(other)
    assert matrix.subjects == ("a", "b", "a (new)")
    assert align_results(BASELINE, other).notes == ("same name as in the baseline, but a different model: a",)
    moved = table("c", BOTH, range(6), data="copy of the photos")
    assert not np.isnan(against(moved)[0].values[2]).all()  # the same pixels by another name
    fewer = align_results(BASELINE, table("c", BOTH, range(3), data_digest="fewer pixels"))
    assert fewer.notes == ("the images of photos are matched by name, because the image sets differ",)
    strange = table("c", BOTH, range(3), data_digest="other pixels", label=7)
    aligned = align_results(BASELINE, strange)
    assert aligned.notes[0].startswith("same name as in the baseline, but different data: photos (label of image 0: 7")
    with pytest.raises(ValueError, match=r"c has no image in common with the baseline: got photos .new. image 0"):
        build_against(aligned.results)
    code = [
        each.assign(implementation="my.py:f", attack="f", version=f"code {n}")
        for n, each in enumerate((BASELINE, moved))
    ]
    assert "same name as in the baseline, but different code: my.py:f" in align_results(*code).notes
    newer = align_results(BASELINE, table("c", BOTH, range(3), version="2.0"))
    assert newer.notes[0].startswith("run with a different version than the baseline: art:pgd: 2.0 here, 1.0 there")


def test_nothing_in_common_is_one_line():
    for new, message in (
        (table("c", BOTH, range(10, 12)), "c has no image in common with the baseline: got photos image 10"),
        (
            table("c", ("foolbox:fgsm",), range(3)),
            "c has no run in common with the baseline: got foolbox:fgsm linf",
        ),
        (
            table("c", BOTH, range(3), epsilon=0.2),
            "got art:pgd linf 0.2, foolbox:pgd linf 0.2; the baseline has art:pgd",
        ),
        (table("a", BOTH, range(3)), "no new models: the baseline already has a"),
    ):
        with pytest.raises(ValueError, match=message):
            against(new)


def test_a_new_attack_on_the_models_of_a_baseline():
    new = table("b", ("torchattacks:fgsm",), range(5), fooled={("torchattacks:fgsm", 1)})
    (matrix,) = against(new, subjects="attacks")
    assert matrix.subjects == ("pgd", "cw", "fgsm")
    assert np.nansum(matrix.values[2]) == 1
    assert (~np.isnan(matrix.values[2])).sum() == 5  # the other model is a gap


def test_a_new_defence_of_the_models_of_a_baseline(few_draws):
    flip, blur = "a+d.py:flip", "a+d.py:blur"
    baseline = pd.concat(
        [
            table("a", BOTH, range(6), fooled={("art:pgd", image) for image in range(4)}),
            table(flip, BOTH, range(6), fooled={("foolbox:pgd", 1), ("art:pgd", 5)}),
        ],
        ignore_index=True,
    )
    new = table(blur, BOTH, range(4), fooled={("art:pgd", 2)})
    (matrix,) = against(new, baseline, subjects="defences")
    assert (matrix.kind, matrix.subjects) == ("defences", ("none", "d.py:flip", "d.py:blur"))
    gap = [np.nan] * 2
    rows = [[0, 0, 0, 0, 1, 1], [1, 0, 1, 1, 1, 0], [1, 1, 0, 1, *gap]]
    assert matrix.values.tolist() == [pytest.approx(row, nan_ok=True) for row in rows]
    (placed,) = place_results(baseline, new, "defences")
    assert placed.newcomer == "d.py:blur"
    assert set(placed.beats) == {"none", "d.py:flip"}
    assert placed.beats["none"] > placed.beats["d.py:flip"]  # right on 3 of 4 where none is on none and flip on 3
    whole = table(blur, BOTH, range(6), fooled={("art:pgd", 2)}).replace({"model": {blur: "b"}})
    others = baseline.replace({"model": {flip: "flipped"}})
    (named,) = place_results(others, whole, "defences", original="a")
    assert (named.newcomer, set(named.beats)) == ("b", {"none", "flipped"})


def test_what_is_missing_is_compared_where_all_were_asked():
    violated = pd.concat([BASELINE.assign(violated=BASELINE["image"].isin(["image 0", "image 1"]))])
    new = table("c", BOTH, range(2, 4))
    (matrix,) = against(new, violated)
    assert not any("depends on the subject" in note for note in matrix.notes)
