"""CANARY's table method: its scales by hand, its Table 9, and the published sampler's own numbers."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from davylamp.benchmarks import Options
from davylamp.benchmarks.canary.table9 import compare_scores, metrics_under
from davylamp.benchmarks.shared.paper_numbers import load_rows
from davylamp.metrics import METRICS
from davylamp.scoring import RULES, metrics_of, place_row, rank_table
from davylamp.scoring import canary as tables
from davylamp.scoring.canary import normalise_metrics


@pytest.fixture(scope="module")
def result():
    return compare_scores("canary_table9", Options(quick=True))["white"]


@pytest.fixture
def few_draws_of_canary(monkeypatch):
    """A quarter of the draws, for what does not hang on how exact a score is."""
    monkeypatch.setattr(tables, "DRAWS", 75)


def test_white_box_column_of_table_9(result):
    assert result["spearman"] >= 0.95
    assert result["max_difference"] < 0.15
    assert result["rhat"] <= 1.01
    assert len(result["rows"]) == 15
    # Pooled over eight chains the published program has Spearman 0.963 and a largest difference of 0.11.
    assert result["spearman"] == pytest.approx(0.963, abs=0.012)
    assert result["max_difference"] == pytest.approx(0.11, abs=0.03)


def test_the_published_order_is_far_from_certain(result):
    best = result["rows"][-1]
    assert best["rank_high"] - best["rank_low"] >= 9
    assert {row["rank"] for row in result["rows"]} == set(range(1, 16))


def test_shipped_tables_are_whole():
    assert [len(load_rows(f"canary_table{table}")) for table in (7, 8, 9)] == [15, 30, 15]
    values, models, metrics = metrics_under("black")
    assert values.shape == (15, 15)
    assert len(set(models)) == 15
    assert set(metrics) <= set(RULES)
    assert values[models.index("ViT"), metrics.index("AIAC")] == 0.063


def test_scales_by_hand():
    metrics = ["MR", "ACAMC_A", "ACAMC_T", "AMD", "AED", "ADMS", "APCR"]
    table = np.array(
        [
            [0.9, 0.75, 0.9, 0.02, 0.05, 0.1, 0.4],
            [0.5, 0.5, 0.9, 16 / 255, 0.2, 0.6, 0.6],
            [0.1, 1.0, 0.6, 0.9, 0.1, 0.2, 0.5],
        ]
    )
    low = 255 * 0.02 / 32
    expected = [
        [0, 0.5, 1, 0, 0, 0, 0],
        [0.5, 0, 0, round((0.5 - low) / (1 - low), 2), 1, 1, 1],
        [1, 1, 0.25, 1, 1, 0.33, 0.5],
    ]
    assert normalise_metrics(table, metrics, "model") == pytest.approx(np.array(expected))
    attacks = normalise_metrics(np.column_stack([table, [100, 60_000, 25_000]]), [*metrics, "QN"], "attack")
    complement = 1 - np.array(expected)
    complement[:, 0] = 1 - complement[:, 0]
    complement[:, 0] = [1, 0.5, 0]  # the misleading ratio speaks for the attack
    assert attacks[:, :7] == pytest.approx(complement, abs=0.011)
    assert attacks[:, 7] == pytest.approx([1, 0, 0.5], abs=0.01)


def test_without_caps_only_the_range_counts():
    """Max-min by hand; with the caps two of these three metrics are the same for all."""
    metrics = ["AED", "AMD", "QN", "APCR"]
    table = np.array([[0.2, 0.3, 60_000, 0.1], [0.4, 0.5, 90_000, 0.9], [0.3, 0.1, 70_000, 0.5]])
    by_hand = (table - table.min(0)) / (table.max(0) - table.min(0))
    uncapped = normalise_metrics(table, metrics, "attack", uncapped=True)
    assert uncapped == pytest.approx(1 - by_hand, abs=0.0051)
    capped = normalise_metrics(table, metrics, "attack")
    assert capped[:, [0, 2]].tolist() == [[0, 0]] * 3
    assert capped[:, 1].tolist() == [0, 0, 1]
    metrics, table = metrics[:2] + metrics[3:], table[:, [0, 1, 3]]
    ranking = rank_table(table, list("abc"), metrics, view="attack")
    note = (
        "at the cap for every subject, so without effect on the ranking: AED; at the cap for some subjects: AMD 2 of 3"
    )
    assert [note in each for each in ranking.notes].count(True) == 1
    assert not any(
        "cap" in each for each in rank_table(table, list("abc"), metrics, view="attack", uncapped=True).notes
    )
    low = rank_table(table / [10, 10, 1], list("abc"), metrics, view="attack")
    assert not any("cap" in each for each in low.notes)


def test_the_categories_of_a_ranking_are_rankings_by_their_metrics_alone():
    values, models, metrics = metrics_under("white")
    values, models = values[::3], models[::3]
    ranking = rank_table(values, models, metrics)
    assert list(ranking.categories) == ["model capability", "attack effects", "disturbance cost"]
    for name, scores in ranking.categories.items():
        columns = [place for place, metric in enumerate(metrics) if RULES[metric].category == name]
        alone = rank_table(values[:, columns], models, [metrics[place] for place in columns])
        assert scores == pytest.approx(alone.score, abs=0.03), name  # another seed for each category
        assert (scores.min(), scores.max()) == (0, 1)
    document = ranking.to_dict()["categories"]
    assert document["attack effects"][models[3]] == ranking.categories["attack effects"][3]


def test_the_curve_of_the_text():
    """D a (theta - b) is steeper by 1.702 than a theta + d at the same prior; the order stays."""
    values, models, metrics = metrics_under("white")
    values, models, metrics = values[::3, :3], models[::3], metrics[:3]
    paper = rank_table(values, models, metrics, curve="paper")
    program = rank_table(values, models, metrics)
    assert paper.fit.model.curve == "paper"
    assert spearmanr(paper.score, program.score).statistic > 0.95
    assert np.abs(paper.score - program.score).max() > 1e-3


def test_attacks_and_defences_by_hand():
    """Fast attacks score high, as the paper has it; of a defence what it sacrifices counts against it."""
    assert set(metrics_of("attack")) & {"CA", "CAV"} == set()
    assert {"QN", "CTC", "OTR"} <= set(metrics_of("attack"))
    assert not {"QN", "CTC", "OTR"} & set(metrics_of("model"))
    assert normalise_metrics(np.array([[0.0], [2], [4]]), ["CTC"], "attack")[:, 0].tolist() == [1, 0.5, 0]
    metrics = ["CAV", "CRR", "CSR", "MRV"]
    table = np.array([[-0.1, 0.02, 0.12, -0.5], [0.0, 0.01, 0.01, -0.1]])
    assert normalise_metrics(table, metrics, "defence").tolist() == [[0, 1, 0, 1], [1, 0, 1, 0]]
    with pytest.raises(
        ValueError, match="CAV cannot be used to rank models, because they are metrics of defence effectiveness"
    ):
        normalise_metrics(table, metrics[:1], "model")


def test_one_category_is_one_layer():
    table = np.linspace(0, 1, 5)[:, None] * [1, -1, 1] + [[0, 1, 0]]
    ranking = rank_table(table, list("abcde"), ["CRR", "CSR", "CAV"], view="defence")
    assert ranking.subjects[int(np.argmax(ranking.score))] == "e"
    assert ranking.subjects[int(np.argmin(ranking.score))] == "a"


def test_the_true_class_map_hangs_on_that_of_the_wrong_one():
    """As the published program has it: a similarity below 1/2 of the one hides the other, whatever that is."""
    table = np.array([[0.4, 0.9], [0.9, 0.4], [0.7, 0.6]])
    scores = normalise_metrics(table, ["ACAMC_A", "ACAMC_T"], "attack")
    assert scores[:, 1] == pytest.approx([1 - 0.2 / 0.4, 1, 0])  # 1 - (0, -0.2, 0.2), max-min normalised


def test_constant_metrics_stay_and_missing_ones_are_left_out():
    table = np.array([[0.5, 0.9], [0.7, 0.9], [np.nan, 0.9]])
    responses = normalise_metrics(table, ["AMD", "CA"], "model")
    assert responses[:2, 0].tolist() == [1, 1]
    assert responses[:, 1].tolist() == [0.9] * 3
    assert np.isnan(responses[2, 0])


def test_propagated_uncertainty_is_wider_or_equal(few_draws_of_canary, monkeypatch):
    monkeypatch.setattr(tables, "IMPUTATIONS", 2)
    generator = np.random.default_rng(0)
    ability = np.linspace(0, 1, 6)[:, None]
    table = np.clip(ability + 0.15 * generator.normal(size=(6, 5)), 0, 1)
    metrics = ["CA", "CF", "CC", "APCR", "AED"]
    plain = rank_table(table, list("abcdef"), metrics)
    wide = rank_table(table, list("abcdef"), metrics, propagate=True)
    assert plain.score == pytest.approx(wide.score)
    assert plain.score.min() == 0
    assert plain.score.max() == 1
    assert plain.score.argmax() == 5
    assert wide.beats[5, 0] <= plain.beats[5, 0] + 0.03


def test_tables_that_cannot_be_ranked():
    with pytest.raises(ValueError, match=r"expected metrics among CA, .*got XYZ"):
        rank_table(np.eye(2), ["a", "b"], ["CA", "XYZ"])
    with pytest.raises(
        ValueError, match="CA cannot be used to rank attacks, because they are metrics of model capability"
    ):
        rank_table(np.eye(2), ["a", "b"], ["CA", "MR"], view="attack")
    with pytest.raises(ValueError, match=r"expected values of shape \(2, 3\), got shape \(2, 2\)"):
        rank_table(np.eye(2), ["a", "b"], ["CA", "MR", "CF"])
    with pytest.raises(ValueError, match=r"^expected at least 2 models to rank, got one: a"):
        rank_table(np.array([[0.5, 0.5]]), ["a"], ["CA", "CF"])


def test_noise_is_not_ranked():
    """What cancels out leaves equal abilities: max-min normalised, the error of the simulation would be 0 and 1."""
    table = np.array([[0.9, 0.4], [0.5, 0.3]])
    with pytest.raises(ValueError, match="the scores differ by less than the simulation error"):
        rank_table(table, ["a", "b"], ["CA", "MR"])
    with pytest.raises(ValueError, match="attack effects: its metrics contradict one another"):
        rank_table(np.array([[0.9, 0.3], [0.5, 0.4]]), ["a", "b"], ["MR", "AIAC"])


def test_a_category_that_says_nothing_is_left_out(few_draws_of_canary):
    """Every model is fooled by everything: the order is that of the rest, as if the category were not there."""
    table = np.array([[0.9, 0.9, 1.0], [0.7, 0.8, 1.0], [0.3, 0.2, 1.0]])
    ranking = rank_table(table, list("abc"), ["CA", "CF", "MR"])
    alone = rank_table(table[:, :2], list("abc"), ["CA", "CF"])
    assert ranking.score == pytest.approx(alone.score)
    assert ranking.notes[:2] == (
        "no metric of disturbance cost: the scores are based on model capability and attack effects only",
        "omitted: attack effects: the same for all subjects",
    )
    # Metrics of one category that cancel out: the other decides alone.
    cancelling = np.array([[0.9, 0.2, 0.9], [0.3, 0.9, 0.2]])
    ranking = rank_table(cancelling, ["a", "b"], ["CA", "MR", "AIAC"])
    assert ranking.score.tolist() == [1, 0]
    assert any(note.startswith("omitted: attack effects: ") and "contradict" in note for note in ranking.notes)


def test_a_subject_without_a_category_is_named():
    table = np.array([[0.9, np.nan], [0.7, 0.2]])
    with pytest.raises(ValueError, match=r"a has a value for none of the disturbance cost metrics \(AED\)"):
        rank_table(table, ["a", "b"], ["CA", "AED"])


def test_ranges_are_those_of_the_metrics():
    """Percentages, negative counts and a sixth level of time are no values of theirs."""
    assert all(rule.between == METRICS[symbol].between for symbol, rule in RULES.items() if symbol in METRICS)
    for metric, value in (("CA", 92.0), ("MR", -0.1), ("AED", 5.0)):
        with pytest.raises(ValueError, match=f"expected {metric} from 0 to 1, got {value:g}"):
            normalise_metrics(np.array([[0.5], [value]]), [metric], "model")
    for metric, value in (("QN", -5.0), ("CTC", 5.0)):
        with pytest.raises(ValueError, match=f"expected {metric} from 0 to"):
            normalise_metrics(np.array([[1.0], [value]]), [metric], "attack")


def test_a_newcomer_of_the_published_table_is_where_it_was(few_draws_of_canary):
    values, models, metrics = metrics_under("white")
    ranking = rank_table(values, models, metrics)
    rest = [place for place in range(len(models)) if models[place] != "DenseNet"]
    one = models.index("DenseNet")
    placed = place_row(values[rest], [models[place] for place in rest], metrics, values[one], "DenseNet")
    assert placed.score == pytest.approx(ranking.score[one], abs=0.15)
    assert abs(placed.rank - ranking.rank[one]) <= 2
    assert placed.responses == len(metrics)
    outside = [name for name, column in zip(metrics, values.T, strict=True) if np.argmax(column) == one]
    assert all(name in " ".join(placed.notes) for name in outside)


def test_a_newcomer_with_gaps_and_at_an_end(few_draws_of_canary):
    values, models, metrics = metrics_under("white")
    robust = np.where(np.isin(metrics, ("MR", "AIAC", "ARTC")), 0.0, np.nan)
    weak = np.where(np.isin(metrics, ("MR", "AIAC", "ARTC")), 1.0, np.nan)
    strong, poor = (place_row(values, models, metrics, row, "new") for row in (robust, weak))
    assert strong.score > poor.score
    assert strong.notes[-2:] == (
        "3 of 15 metrics",
        "outside the range of the baseline and clipped: MR, AIAC, ARTC",
    )
    with pytest.raises(ValueError, match="expected a value of at least one of"):
        place_row(values, models, metrics, np.full(15, np.nan), "new")
    with pytest.raises(ValueError, match="expected a new name"):
        place_row(values, models, metrics, robust, "VGG")
