"""From results to responses, by hand."""

import numpy as np
import pandas as pd
import pytest

from davylamp.scoring import build_responses, complete_items


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


def as_dict(found):
    pairs = {(s, i): v for s, row in zip(found.subjects, found.values) for i, v in zip(found.items, row)}  # noqa: B905
    return {key: value for key, value in pairs.items() if not np.isnan(value)}


def test_models_are_right_where_they_are_not_fooled():
    found = build_responses(results(), "models")
    assert as_dict(found) == {
        ("one", "x x art:pgd linf 0.1 False 0"): 0,
        ("one", "y x art:pgd linf 0.1 False 0"): 1,
        ("one", "z x art:pgd linf 0.1 False 0"): 0,
        ("one", "x x foolbox:pgd linf 0.1 False 0"): 0,
        ("two", "x x art:pgd linf 0.1 False 0"): 1,
        ("two", "y x art:pgd linf 0.1 False 0"): 0,
    }
    assert found.images == ("x", "y", "z", "x")


def test_implementations_are_right_where_they_fooled():
    found = build_responses(results(), "implementations")
    assert as_dict(found) == {
        ("art:pgd", "x x one 0"): 1,
        ("art:pgd", "y x one 0"): 0,
        ("art:pgd", "x x two 0"): 0,
        ("art:pgd", "y x two 0"): 1,
        ("foolbox:pgd", "x x one 0"): 1,
    }


def test_attacks_are_told_apart_by_threat_and_answer_for_each_library():
    found = build_responses(results(), "attacks")
    assert found.subjects == ("pgd",)
    assert ("pgd", "x x one foolbox 0") in as_dict(found)
    twice = pd.concat([results(), results(epsilon=0.2)], ignore_index=True)
    assert build_responses(twice, "attacks").subjects == ("pgd linf 0.1", "pgd linf 0.2")
    art = results(epsilon=0.2).query("library == 'art'")  # foolbox has the smaller radius only
    partly = build_responses(pd.concat([results(), art], ignore_index=True), "attacks")
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
    found = as_dict(build_responses(results(epsilon=np.nan), "implementations", budget=0.2))
    assert found["foolbox:pgd", "x x one 0"] == 0
    assert found["art:pgd", "x x one 0"] == 1
    models = as_dict(build_responses(results(epsilon=np.nan), "models", budget=0.2))
    assert models["two", "y x art:pgd linf nan False 0"] == 1


def test_the_order_of_rows_does_not_matter():
    shuffled = results().sample(frac=1, random_state=1)
    assert as_dict(build_responses(shuffled)) == as_dict(build_responses(results()))


def test_tables_that_hold_nothing():
    with pytest.raises(ValueError, match="got a table without image, violated"):
        build_responses(results().drop(columns=["image", "violated"]))
    with pytest.raises(ValueError, match="got 'people'"):
        build_responses(results(), "people")
    with pytest.raises(ValueError, match="attacked images, got none"):
        build_responses(results(violated=True))


def test_a_larger_ball_says_nothing_about_a_smaller_budget():
    """A fixed budget was not asked for the smallest change: fooled at 0.3, nothing is known of 0.2."""
    found = build_responses(results(minimum_norm=False), "models", 0.2)
    assert ("one", "x x foolbox:pgd linf 0.1 False 0") not in as_dict(found)
    assert as_dict(found)["one", "x x art:pgd linf 0.1 False 0"] == 0
    assert "2 responses are missing: fooled in a larger ball, not asked about this budget" in found.notes
    smallest = build_responses(results(minimum_norm=True), "models", 0.2)
    assert as_dict(smallest)["one", "x x foolbox:pgd linf 0.1 False 0"] == 1


def test_notes_say_what_is_missing_what_counts_twice_and_what_is_mixed():
    rows = results()
    rows["knowledge"] = ["white-box"] * 5 + ["decision-based"] * 2
    rows["targeted"] = [True] + [False] * 6
    found = build_responses(rows, "models")
    assert found.notes == (
        "1 of 7 responses are missing: the example broke a rule",
        "an attack counts once for each library: pgd (art, foolbox)",
        "responses to different kinds of attacks are ranked together: white-box (5) and decision-based (2); "
        "targeted (1) and untargeted",
    )
    broken = results()
    broken.loc[broken["model"] == "two", "violated"] = True
    assert "left out: two: no response at all" in build_responses(broken, "models").notes


def test_means_are_over_the_items_that_all_answered():
    found = complete_items(build_responses(results(), "models"))
    assert set(found.items) == {"x x art:pgd linf 0.1 False 0", "y x art:pgd linf 0.1 False 0"}
    assert not np.isnan(found.values).any()
    assert found.notes[-1] == "means are over the 2 of 4 items that every subject answered"
    assert complete_items(found) is found
    with pytest.raises(ValueError, match="all 2 subjects answered, got none"):
        complete_items(found._replace(values=np.array([[1, np.nan], [np.nan, 0]])))


def test_settings_that_are_not_in_the_parameters_make_other_items():
    both = pd.concat([results(pixels=True), results(pixels=False)], ignore_index=True)
    assert len(build_responses(both, "models").items) == 2 * len(build_responses(results(), "models").items)
