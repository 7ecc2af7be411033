"""From results to responses, by hand."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from davylamp.scoring import (
    build_responses,
    check_rankable,
    choose_results,
    complete_items,
    of_subjects,
    rank_matrix,
)
from davylamp.scoring.baselines import borda, expected_borda
from davylamp.scoring.ranking import Scoring

EVERY: dict[str, Any] = {"per": "implementation", "unequal": "keep"}


def results(**changes):
    rows = [
        # model, library, attack, image, attacked, success, violated, distance
        ("one", "art", "pgd", "x", True, True, False, 0.1),
        ("one", "art", "pgd", "y", True, False, False, np.inf),
        ("one", "art", "pgd", "z", False, True, False, 0.0),
        ("one", "foolbox", "pgd", "x", True, True, False, 0.3),
        ("one", "foolbox", "pgd", "y", True, True, True, 0.2),
        ("two", "art", "pgd", "x", True, False, False, np.inf),
        ("two", "art", "pgd", "y", True, True, False, 0.4),
    ]
    names = ["model", "library", "attack", "image", "attacked", "success", "violated", "distance"]
    frame = pd.DataFrame(rows, columns=names)
    frame["implementation"] = frame["library"] + ":" + frame["attack"]
    frame = frame.assign(cell="c", norm="linf", epsilon=0.1, targeted=False, seed=0)
    return frame.assign(**changes)


def as_dict(responses):
    pairs = {(s, i): v for s, row in zip(responses.subjects, responses.values) for i, v in zip(responses.items, row)}  # noqa: B905
    return {key: value for key, value in pairs.items() if not np.isnan(value)}


def test_models_are_right_where_they_are_not_fooled():
    responses = build_responses(results(), "models", **EVERY)
    assert as_dict(responses) == {
        ("one", "x x art:pgd linf 0.1 False 0"): 0,
        ("one", "y x art:pgd linf 0.1 False 0"): 1,
        ("one", "z x art:pgd linf 0.1 False 0"): 0,
        ("one", "x x foolbox:pgd linf 0.1 False 0"): 0,
        ("two", "x x art:pgd linf 0.1 False 0"): 1,
        ("two", "y x art:pgd linf 0.1 False 0"): 0,
    }
    assert responses.images == ("x", "y", "z", "x")


def test_implementations_are_right_where_they_fooled():
    responses = build_responses(results(), "implementations", unequal="keep")
    assert as_dict(responses) == {
        ("art:pgd", "x x one 0"): 1,
        ("art:pgd", "y x one 0"): 0,
        ("art:pgd", "x x two 0"): 0,
        ("art:pgd", "y x two 0"): 1,
        ("foolbox:pgd", "x x one 0"): 1,
    }


def test_attacks_are_told_apart_by_threat_and_answer_for_each_library():
    responses = build_responses(results(), "attacks", **EVERY)
    assert responses.subjects == ("pgd",)
    assert ("pgd", "x x one foolbox 0") in as_dict(responses)
    twice = pd.concat([results(), results(epsilon=0.2)], ignore_index=True)
    assert build_responses(twice, "attacks").subjects == ("pgd linf 0.1", "pgd linf 0.2")
    art = results(epsilon=0.2).query("library == 'art'")  # foolbox has the smaller radius only
    partly = build_responses(pd.concat([results(), art], ignore_index=True), "attacks", **EVERY)
    assert partly.subjects == ("pgd linf 0.1", "pgd linf 0.2")
    assert ("pgd linf 0.1", "x x one foolbox 0") in as_dict(partly)
    aimed = pd.concat([results(), results(targeted=True)], ignore_index=True)
    assert build_responses(aimed, "attacks").subjects == ("pgd linf 0.1", "pgd linf 0.1 targeted")


def test_parameters_tell_apart_only_what_the_threat_does_not():
    """A step size that follows from the radius differs with it and is no second setting."""
    runs = [results(parameters=f"steps={steps}", epsilon=radius) for steps, radius in ((1, 0.1), (2, 0.2), (3, 0.2))]
    names = build_responses(pd.concat(runs, ignore_index=True), "implementations").subjects
    expected = [
        f"{name} linf {rest}" for rest in ("0.1", "0.2 steps=2", "0.2 steps=3") for name in ("art:pgd", "foolbox:pgd")
    ]
    assert sorted(names) == sorted(expected)


def test_a_budget_makes_far_examples_harmless():
    responses = as_dict(build_responses(results(epsilon=np.nan), "implementations", budget=0.2, unequal="keep"))
    assert responses["foolbox:pgd", "x x one 0"] == 0
    assert responses["art:pgd", "x x one 0"] == 1
    models = as_dict(build_responses(results(epsilon=np.nan), "models", budget=0.2, **EVERY))
    assert models["two", "y x art:pgd linf nan False 0"] == 1


def test_the_order_of_rows_does_not_matter():
    shuffled = results().sample(frac=1, random_state=1)
    assert as_dict(build_responses(shuffled)) == as_dict(build_responses(results()))


def test_tables_that_hold_nothing():
    with pytest.raises(ValueError, match="image, violated are missing"):
        build_responses(results().drop(columns=["image", "violated"]))
    for subjects in ("models", "implementations"):
        with pytest.raises(ValueError, match="has no rows to rank"):
            build_responses(results().iloc[:0], subjects)
    with pytest.raises(ValueError, match="got 'people'"):
        build_responses(results(), "people")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no valid result of an attacked image"):
        build_responses(results(violated=True))


def test_a_larger_ball_says_nothing_about_a_smaller_budget():
    """A fixed budget was not asked for the smallest change: fooled at 0.3, nothing is known of 0.2."""
    responses = build_responses(results(minimum_norm=False), "models", 0.2, **EVERY)
    assert ("one", "x x foolbox:pgd linf 0.1 False 0") not in as_dict(responses)
    assert as_dict(responses)["one", "x x art:pgd linf 0.1 False 0"] == 0
    assert (
        "2 responses are missing, because the images were fooled only at a radius above this budget" in responses.notes
    )
    smallest = build_responses(results(minimum_norm=True), "models", 0.2, **EVERY)
    assert as_dict(smallest)["one", "x x foolbox:pgd linf 0.1 False 0"] == 1


def test_notes_say_what_is_missing_what_counts_twice_and_what_is_mixed():
    rows = results()
    rows["knowledge"] = ["white-box"] * 5 + ["decision-based"] * 2
    rows["targeted"] = [True] + [False] * 6
    responses = build_responses(rows, "models", **EVERY)
    assert responses.notes == (
        "1 of 7 responses are missing, because their results are invalid",
        "an attack counts once for each library: pgd (art, foolbox)",
        "responses to different kinds of attacks are ranked together: white-box (5) and decision-based (2); "
        "targeted (1) and untargeted",
        "subjects have results for different attacks (one 83%, two 33% of all), kept as requested. Scores are "
        "biased if the choice of runs depended on their outcomes",
    )
    broken = results()
    broken.loc[broken["model"] == "two", "violated"] = True
    assert "omitted: two (no response to any item)" in build_responses(broken, "models").notes


def test_means_are_over_the_items_that_all_answered():
    responses = complete_items(build_responses(results(), "models", **EVERY))
    assert set(responses.items) == {"x x art:pgd linf 0.1 False 0", "y x art:pgd linf 0.1 False 0"}
    assert not np.isnan(responses.values).any()
    assert responses.notes[-1] == "means are over the 2 of 4 items with responses of all subjects"
    assert complete_items(responses) is responses
    with pytest.raises(ValueError, match="no item has responses of all 2 subjects"):
        complete_items(responses._replace(values=np.array([[1, np.nan], [np.nan, 0]])))


def test_what_not_every_model_met_is_left_out_and_named():
    responses = build_responses(results(), "models")
    assert as_dict(responses) == {
        ("one", "x x pgd linf 0.1 False 0"): 0,
        ("one", "y x pgd linf 0.1 False 0"): 1,
        ("two", "x x pgd linf 0.1 False 0"): 1,
        ("two", "y x pgd linf 0.1 False 0"): 0,
    }
    assert responses.notes == (
        "omitted: 1 of 3 responses to art:pgd linf 0.1: no result on two",
        "omitted: foolbox:pgd linf 0.1: no result on two",
        "ranked by the results that all subjects have; unequal='keep' uses all results, and assumes that the others "
        "are missing at random",
    )
    apart = results().query("(model == 'one') == (library == 'foolbox')")
    with pytest.raises(ValueError, match=r"all 2 subjects have no results in common .*unequal='keep'"):
        build_responses(apart, "models")


def attempts(*rows, **columns):
    names = ["model", "library", "image", "success", "violated"]
    frame = pd.DataFrame(rows, columns=names).assign(attack="pgd", cell="c", attacked=True, norm="linf", seed=0)
    return frame.assign(implementation=frame["library"] + ":pgd", **columns)


def test_an_attack_counts_once_the_strongest_library_on_each_image():
    rows = [(model, library, image, fooled, violated)
            for model in ("a", "b")
            for library, image, fooled, violated in (
                ("art", "x", False, False), ("foolbox", "x", True, False),
                ("art", "y", False, False), ("foolbox", "y", False, False),
                ("art", "z", False, False), ("foolbox", "z", True, True),
                ("art", "w", True, True), ("foolbox", "w", False, True))]  # fmt: skip
    responses = build_responses(attempts(*rows), "models")
    once = {"x x pgd linf 0": 0, "y x pgd linf 0": 1, "z x pgd linf 0": 1}
    assert as_dict(responses) == {(model, item): value for model in "ab" for item, value in once.items()}
    assert "an attack counts once, the strongest of its libraries on each image: pgd (art, foolbox)" in responses.notes
    two = pd.concat([attempts(*rows).assign(epsilon=size, seed=seed) for size in (0.1, 0.2) for seed in (0, 1)])
    often = build_responses(two, "models")
    assert len(often.items) == 4 * len(once)
    assert any(note.startswith("an attack counts once for each radius and seed, the strongest") for note in often.notes)
    attacks = build_responses(attempts(*rows), "attacks")
    assert attacks.subjects == ("pgd",)
    assert as_dict(attacks) == {
        ("pgd", f"{image} x {model} 0"): value for model in "ab" for image, value in (("x", 1), ("y", 0), ("z", 0))
    }


def test_settings_are_paired_across_libraries_by_what_varies():
    """A library's other parameters do not make another attack of it; a sweep makes one attack of each setting."""
    rows = [(m, library, "x", False, False) for m in "ab" for library in ("art", "foolbox")]
    settings = {"art": {"steps": 5, "batch": 1}, "foolbox": {"steps": 5}}
    once = attempts(*rows)
    once["parameters"] = [json.dumps(settings[name]) for name in once["library"]]
    assert build_responses(once, "models").items == ("x x pgd linf 0",)
    more = once.assign(parameters=[json.dumps(settings[name] | {"steps": 9}) for name in once["library"]])
    partly = more.query("library == 'art'")
    for second in (more, partly):
        responses = build_responses(pd.concat([once, second], ignore_index=True), "models")
        assert responses.items == ("x x pgd linf steps=5 0", "x x pgd linf steps=9 0")


def test_a_kind_of_attack_is_chosen_or_refused():
    rows = results(knowledge=["white-box"] * 5 + ["score-based", "decision-based"])
    counts = {kind: len(choose_results(rows, None, kind)) for kind in ("white-box", "black-box", "score", "decision")}
    assert counts == {"white-box": 5, "black-box": 2, "score": 1, "decision": 1}
    assert len(choose_results(rows, "linf")) == 7
    with pytest.raises(ValueError, match="expected results in norm l2, got linf only"):
        choose_results(rows, "l2")
    with pytest.raises(ValueError, match="expected score attacks, got decision-based, white-box only"):
        choose_results(rows.query("knowledge != 'score-based'"), None, "score")
    with pytest.raises(ValueError, match="got 'grey-box'"):
        choose_results(rows, None, "grey-box")
    with pytest.raises(ValueError, match="column knowledge"):
        choose_results(results(), None, "score")


def test_one_subject_gets_a_sentence():
    responses = build_responses(results().query("model == 'one'"), "models")
    with pytest.raises(
        ValueError, match=r"^expected at least 2 models to rank, got one: one. .*by='models'.* shows its numbers, "
    ):
        check_rankable(responses)


def test_missing_that_hangs_on_the_subject_is_said():
    generator = np.random.default_rng(0)
    rows = [(model, "art", str(image), False, bool(generator.random() < share))
            for model, share in (("a", 0.4), ("b", 0.02), ("c", 0.02)) for image in range(80)]  # fmt: skip
    (note,) = [note for note in build_responses(attempts(*rows)).notes if "depends on the subject" in note]
    assert "highest and lowest: a 39%, c 1%; p = 3e-11" in note
    alike = [
        (model, "art", str(image), False, bool(generator.random() < 0.2)) for model in "abc" for image in range(80)
    ]
    assert not [note for note in build_responses(attempts(*alike)).notes if "depends on the subject" in note]


def test_a_defence_is_set_against_others_on_the_same_original():
    names = ["net", "net+d.py:blur", "net+d.py:jpeg", "lone"]
    rows = [(name, "art", image, fooled, False) for name in names for image, fooled in (("x", True), ("y", False))]
    rows += [(name, "art", "x", False, False) for name in ("big", "big+d.py:blur", "big+d.py:jpeg")]
    responses = build_responses(attempts(*rows), "defences", unequal="keep")
    assert responses.subjects == ("none", "d.py:blur", "d.py:jpeg")
    assert responses.items == ("x x net pgd linf 0", "y x net pgd linf 0", "x x big pgd linf 0")
    assert "omitted: lone: no model with this defence" in responses.notes
    plain = attempts(*((name, "art", "x", False, False) for name in ("net", "trained")))
    with pytest.raises(ValueError, match=r"no defended models NAME.*original=NAME"):
        build_responses(plain, "defences")
    defended = attempts(*((name, "art", "x", False, False) for name in ("net+blur", "net+jpeg")))
    with pytest.raises(ValueError, match=r"the undefended model of net\+blur, net\+jpeg is missing"):
        build_responses(defended, "defences")
    assert build_responses(plain, "defences", original="net").subjects == ("none", "trained")
    with pytest.raises(ValueError, match="expected `original` as one of the models net, trained, got 'x'"):
        build_responses(plain, "defences", original="x")
    with pytest.raises(ValueError, match="only with subjects='defences'"):
        build_responses(plain, "models", original="net")


def test_named_defences_and_chains_of_them_belong_to_the_original_that_is_there():
    names = ("net", "net+jpeg:quality=50", "net+jpeg:quality=50+bit-depth:bits=4", "my+net")
    rows = [(name, "art", image, False, False) for name in names for image in ("x", "y")]
    responses = build_responses(attempts(*rows), "defences")
    assert responses.subjects == ("none", "jpeg:quality=50", "jpeg:quality=50+bit-depth:bits=4")
    assert "omitted: my+net: no model with this defence" in responses.notes


def test_settings_that_are_not_in_the_parameters_make_other_items():
    both = pd.concat([results(pixels=True), results(pixels=False)], ignore_index=True)
    assert len(build_responses(both, "models").items) == 2 * len(build_responses(results(), "models").items)


@pytest.mark.parametrize("radius", [4 / 255, 8 / 255, 0.05, 0.1, 0.3])
def test_an_example_on_the_sphere_is_within_the_budget(radius):
    """Examples are float32: most end a rounding beyond the radius that they were given."""
    rows = results(epsilon=radius, minimum_norm=False, distance=float(np.float32(radius)))
    responses = build_responses(rows, "models", radius, **EVERY)
    assert as_dict(responses) == as_dict(build_responses(rows, "models", **EVERY))
    rows = results(norm="l2", epsilon=1.0, minimum_norm=False, distance=1.00005)  # as the judge allows in l2
    assert as_dict(build_responses(rows, "models", 1.0, **EVERY)) == as_dict(build_responses(rows, "models", **EVERY))


def test_a_budget_is_a_distance_in_one_norm():
    rows = results()
    rows.loc[0, "norm"] = "l2"
    with pytest.raises(ValueError, match="needs results in one norm, got l2, linf"):
        build_responses(rows, "models", 0.1)
    budgets: tuple[Any, ...] = (0, -1, np.nan, np.inf, "4/255", True)
    for budget in budgets:
        with pytest.raises(ValueError, match="expected a budget as a positive number"):
            build_responses(results(), "models", budget)
    with pytest.raises(ValueError, match="no column distance"):
        build_responses(results().drop(columns="distance"), "models", 0.1)


def test_fewer_subjects_have_the_items_that_they_met():
    responses = of_subjects(build_responses(results(), "models", **EVERY), [1])
    assert responses.subjects == ("two",)
    assert responses.items == ("x x art:pgd linf 0.1 False 0", "y x art:pgd linf 0.1 False 0")
    assert responses.images == ("x", "y")
    assert responses.values.tolist() == [[1, 0]]


def random_rows(images=2000, share=0.35, **columns):
    """A plain model that is fooled on every other image, and a random one of which a share of the draws is."""
    every = [str(place) for place in range(images)]
    rows = [("plain", "art", image, place % 2 == 0, False) for place, image in enumerate(every)]
    rows += [("random", "art", image, share >= 0.5, False) for image in every]
    return attempts(*rows, draws_fooled=[np.nan] * images + [share] * images, **columns)


def test_a_random_model_answers_by_the_shares_of_its_draws():
    """By majority it would withstand all; one draw each is right as often as a draw is."""
    responses = build_responses(random_rows(), "models")
    assert responses.shares is not None
    assert (responses.shares[1] == 0.65).all()
    np.testing.assert_array_equal(responses.values[0], responses.shares[0])
    assert set(responses.values[1]) == {0, 1}
    assert abs(responses.values[1].mean() - 0.65) < 4 * np.sqrt(0.65 * 0.35 / 2000)
    fooled = build_responses(random_rows(), "attacks")
    assert fooled.shares is not None
    assert sorted(set(fooled.shares[0])) == [0, 0.35, 1]
    assert any(note.startswith("random: random: evaluated on many samples") for note in responses.notes)


def test_a_draw_hangs_on_nobody_else():
    alone, both = build_responses(random_rows().query("model == 'random'")), build_responses(random_rows())
    np.testing.assert_array_equal(alone.values[0], both.values[1])
    shuffled = build_responses(random_rows().sample(frac=1, random_state=1))
    assert as_dict(shuffled) == as_dict(both)
    assert build_responses(random_rows().drop(columns="draws_fooled")).shares is None


def test_means_and_borda_counts_are_of_shares_and_stay_with_their_items():
    responses = build_responses(random_rows(images=40, share=0.45), "models")
    cases: list[tuple[Scoring, list[float]]] = [("mean", [0.5, 0.55]), ("borda", [0.475, 0.525])]
    for scoring, expected in cases:
        ranking = rank_matrix(responses, scoring=scoring)
        assert ranking.score == pytest.approx(expected)
        assert ranking.mean == pytest.approx([0.5, 0.55])
    assert rank_matrix(responses, method="fast").mean == pytest.approx([0.5, 0.55])
    few = of_subjects(responses, [1])
    assert few.shares is not None
    assert few.shares.shape == few.values.shape == (1, 40)


def test_the_borda_count_of_shares_is_the_mean_over_draws():
    generator = np.random.default_rng(3)
    shares = generator.random((4, 12))
    shares[0, 3] = np.nan
    drawn = [borda(np.where(np.isnan(shares), np.nan, generator.random(shares.shape) < shares)) for _ in range(4000)]
    assert expected_borda(shares) == pytest.approx(np.mean(drawn, axis=0), abs=0.005)
    outcomes = (shares > 0.5).astype(float)
    assert expected_borda(outcomes) == pytest.approx(borda(outcomes))


def test_a_share_holds_within_a_budget_only_where_its_example_is_known_to_be():
    rows = random_rows(images=10, minimum_norm=False, distance=np.inf)
    in_ball = build_responses(rows.assign(epsilon=0.1), "models", 0.1)
    assert in_ball.shares is not None
    assert (in_ball.shares[1] == 0.65).all()
    with pytest.raises(ValueError, match="no valid result of an attacked image"):
        build_responses(rows.assign(epsilon=0.2, attacked=True).query("model == 'random'"), "models", 0.1)
    smallest = build_responses(rows.assign(epsilon=np.nan, minimum_norm=True), "models", 0.1)
    assert smallest.shares is None
    assert (smallest.values[1] == 1).all()  # as the majority has it, and a curve


def test_attacks_at_two_radii_say_theirs_and_that_they_are_ranked_together():
    """fgsm at 0.15 and pgd at 0.05 were "fgsm" and "pgd"."""
    radii = {"art": 0.15, "foolbox": 0.05}
    rows = attempts(*((m, library, "x", library == "art", False) for m in "ab" for library in radii), targeted=False)
    rows["attack"] = rows["library"].map({"art": "fgsm", "foolbox": "pgd"})
    two = rows.assign(epsilon=rows["library"].map(radii))
    responses = build_responses(two, "attacks")
    assert responses.subjects == ("fgsm linf 0.15", "pgd linf 0.05")
    assert build_responses(two, "implementations").subjects == ("art:pgd linf 0.15", "foolbox:pgd linf 0.05")
    assert [note for note in responses.notes if note.startswith("ranked together: linf 0.15, linf 0.05: ")]
    one = build_responses(rows.assign(epsilon=0.1), "attacks")
    assert one.subjects == ("fgsm", "pgd")
    assert not [note for note in one.notes if note.startswith("ranked together: ")]
    norms = build_responses(
        rows.assign(norm=rows["library"].map({"art": "l2", "foolbox": "linf"}), epsilon=np.nan), "attacks"
    )
    assert norms.subjects == ("fgsm l2", "pgd linf")
    assert [note for note in norms.notes if note.startswith("ranked together: l2, linf: ")]
    assert not [note for note in build_responses(two, "models").notes if note.startswith("ranked together: ")]
