"""Images chosen by name: those of the data, in its order, with records that are theirs in a run of all images."""

import numpy as np
import pytest
import torch

from davylamp.adapters.data.datasets import find_places, load_data_for
from davylamp.engine import Config, ResultsStore, evaluate, load, make_plan
from davylamp.engine.attack_run import AttackRun, ModelOnData
from davylamp.engine.plan.rerun import configs_of
from davylamp.engine.sources import DataSource
from davylamp.errors import InvalidInput

from ..conftest import ATTACKS

CHOSEN = ("digit_11", "digit_2", "digit_5")


@pytest.fixture(scope="module")
def chosen_plan(digits, images):
    config = Config(attacks=ATTACKS, data="digits", images=CHOSEN)
    return make_plan(config, models={"cnn": digits.classifier}, data=images)


def test_records_are_those_of_a_run_of_all_images(chosen_plan, small_folder, tmp_path):
    evaluate(chosen_plan, ResultsStore(tmp_path))
    some, every = load(tmp_path), load(small_folder)
    assert sorted(some["image"].unique()) == sorted(CHOSEN)
    assert len(some) == len(CHOSEN) * len(ATTACKS)
    key = ["implementation", "image"]
    both = some.merge(every, on=key, suffixes=("", "_all"))
    assert len(both) == len(some)
    assert (both["label"] == both["label_all"]).all()
    assert (both["success"] == both["success_all"]).all()
    np.testing.assert_allclose(both["distance"], both["distance_all"], rtol=1e-5)


def test_the_order_of_the_names_is_of_no_account(chosen_plan, digits, images):
    config = Config(attacks=ATTACKS, data="digits", images=CHOSEN[::-1])
    again = make_plan(config, models={"cnn": digits.classifier}, data=images)
    assert [cell.key for cell in again.cells] == [cell.key for cell in chosen_plan.cells]
    assert again.cells[0].subject.chosen == ("digit_2", "digit_5", "digit_11")


def test_the_config_of_the_cells_has_the_images(chosen_plan, digits, images):
    (config,) = configs_of(chosen_plan.cells)
    assert (config.images, config.limit) == (("digit_2", "digit_5", "digit_11"), None)
    again = make_plan(config, models={"cnn": digits.classifier}, data=images)
    assert {cell.key for cell in again.cells} == {cell.key for cell in chosen_plan.cells}


def test_a_cell_comes_back_from_its_spec_and_is_not_that_of_all_images(chosen_plan, small_plan):
    cell = chosen_plan.cells[0]
    assert AttackRun.from_spec(cell.spec) == cell
    assert ModelOnData(**cell.subject.spec) == cell.subject
    assert not {cell.key for cell in chosen_plan.cells} & {cell.key for cell in small_plan.cells}
    assert "chosen" not in small_plan.cells[0].subject.spec


def test_files_of_these_names_alone_are_read(digits, monkeypatch):
    from davylamp.adapters.data import datasets

    every = DataSource("foolbox:mnist").load(digits.classifier)
    read = []
    open_image = datasets._open_image
    monkeypatch.setattr(
        datasets, "_open_image", lambda path, wanted: read.append(path.name) or open_image(path, wanted)
    )
    names = (every.names[7], every.names[3])
    data = load_data_for(digits.classifier, "foolbox:mnist", None, names)
    assert data.names == [every.names[3], every.names[7]] == read
    assert torch.equal(data.inputs, every.inputs[[3, 7]])
    assert torch.equal(data.labels, every.labels[[3, 7]])


@pytest.mark.parametrize(
    ("names", "chosen", "said"),
    [
        (["a", "b"], ["c"], r"expected one image of the name c, got no such name among 2 images \(the first is a\)"),
        (["a", "a"], ["a"], "expected one image of the name a, got 2"),
    ],
)
def test_a_name_of_no_image_or_of_several_is_refused(names, chosen, said):
    with pytest.raises(InvalidInput, match=said):
        find_places(names, chosen)
