"""What cannot be measured is refused: no success, no robustness, no library to blame."""

import pytest

import davylamp
from davylamp.errors import DavylampError, InvalidInput, Unsupported
from davylamp.tools.sweep.running import make_images, make_model
from tests.hostile import refused


@pytest.fixture(scope="module")
def images():
    return make_images(10, 1, 3)


@pytest.mark.parametrize("limit", [{}, {"max_queries": 3}])
@pytest.mark.parametrize("name", refused.ATTACKS)
def test_an_attack_that_cannot_be_counted_is_refused_and_left_out(name, limit, images):
    attack, model = refused.ATTACKS[name], make_model(10, 1)
    with pytest.raises(Unsupported, match=f"^user:{name} "):
        davylamp.run_attack(attack, model, *images, norm="linf", epsilon=0.3, **limit)
    comparison = davylamp.compare("foolbox:pgd", model, *images, norm="linf", epsilon=0.3, also=attack, steps=1)
    row = next(row for row in comparison.rows if name in row.implementation.name)
    assert row.excused
    assert row.result is None
    assert [pair.verdict for pair in comparison.pairs] == ["undecided"]


def test_its_cell_has_failed_and_counts_for_nothing(images, tmp_path):
    attack = refused.by_vmap
    made = davylamp.evaluate(make_model(10, 1), *images, attacks=["foolbox:pgd", attack], norm="linf", out=tmp_path)
    assert len(made.summary.failed) == 1
    assert "torch.func" in next(iter(made.summary.failed.values()))
    assert set(made.to_frame()["implementation"]) == {"foolbox:pgd"}


def test_a_model_without_numbers_is_refused(images):
    with pytest.raises(InvalidInput, match="meta"):
        davylamp.run_attack("foolbox:pgd", refused.WithoutWeights(), *images, norm="linf")


def test_a_model_that_refuses_for_an_attack_is_not_robust(images, tmp_path):
    model = refused.SaysUnsupported()
    labels = model(images[0]).argmax(1)
    with pytest.raises(DavylampError):
        davylamp.run_attack("foolbox:pgd", model, images[0], labels, norm="linf")
    with pytest.raises(DavylampError):
        davylamp.evaluate(model, images[0], labels, attacks="foolbox:pgd", norm="linf", out=tmp_path).to_frame()
