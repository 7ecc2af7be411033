"""A small evaluation on the digits whose every number can be recomputed."""

import pytest

from davylamp.adapters.zoo import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan

ATTACKS = (
    AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 5}),
    AttackChoice("torchattacks:fgsm", "linf", 0.05),
    AttackChoice("foolbox:ddn", "l2", parameters={"steps": 20}),
)


@pytest.fixture(scope="session")
def images(digits) -> Data:
    return Data(digits.inputs, digits.labels, [f"digit_{i}" for i in range(len(digits.labels))])


@pytest.fixture(scope="session")
def small_plan(digits, images):
    """Three attacks on the digits CNN, 16 images in shards of 6."""
    config = Config(attacks=ATTACKS, data="digits", shard_size=6, keep_images=True)
    return make_plan(config, models={"cnn": digits.classifier}, data=images)


@pytest.fixture(scope="session")
def small_folder(small_plan, tmp_path_factory):
    """Its results folder."""
    folder = tmp_path_factory.mktemp("results")
    evaluate(small_plan, ResultsStore(folder))
    return folder
