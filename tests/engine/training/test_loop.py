"""A training that is killed and started again ends with the weights of one that was not."""

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.engine.training.checkpoint import Checkpoint
from davylamp.engine.training.loop import train
from davylamp.engine.training.methods import METHODS, make_settings
from davylamp.engine.training.student import TrainableModel
from davylamp.errors import InvalidInput, TrainingFailed, Unavailable

QUICK = {"epochs": 2, "batch_size": 10, "learning_rate": 0.05}


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 3)
        )


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(31, 1, 6, 6, generator=generator), torch.randint(3, (31,), generator=generator)


def trained(data, settings, checkpoint=None, progress=None):
    student = TrainableModel(Classifier(network()))
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        train(student, *data, settings, checkpoint=checkpoint, progress=progress)
    return student.state_dict()


class Killed(Exception):
    """Stands for a SIGKILL: nothing after it is run."""


def killed_after(batches):
    seen = []

    def progress(name, images):
        seen.append(name)
        if len(seen) == batches:
            raise Killed

    return progress


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_killed_training_ends_with_the_same_weights(data, tmp_path, method, optimiser):
    more = {"steps": 2} if "steps" in METHODS[method].defaults else {}
    settings = make_settings(method, "linf", 0.1, {**QUICK, **more, "optimiser": optimiser}, seed=3)
    whole = trained(data, settings)
    checkpoint = Checkpoint(tmp_path / "w.pt.partial", settings.to_dict(), every=0)
    for batches in (2, 3):  # killed twice: in the first epoch, and in the second
        with pytest.raises(Killed):
            trained(data, settings, checkpoint, killed_after(batches))
    resumed = trained(data, settings, Checkpoint(checkpoint.path, settings.to_dict(), every=0))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    other = trained(data, make_settings(method, "linf", 0.1, {**QUICK, **more, "optimiser": optimiser}, seed=4))
    assert not all(torch.equal(whole[name], other[name]) for name in whole)


def test_the_time_left_counts_what_was_done_before(data, tmp_path):
    settings = make_settings("distillation", "linf", 0.1, QUICK)
    checkpoint, before = Checkpoint(tmp_path / "p", {}, every=0), []
    with pytest.raises(Killed):
        trained(data, settings, checkpoint, killed_after(9))  # 3 batches an epoch, 2 epochs a stage
    trained(data, settings, checkpoint, lambda name, images: before.append((name, images)))
    assert before[0][0] == ""
    assert sum(images for _, images in before) == 31 * 2 * 2
    assert before[-1][0] == "distillation, stage 2 of 2, epoch 2 of 2"


def test_one_image_alone_is_never_a_batch(data):
    """Batch normalisation fails on it."""
    images = []
    trained(data, make_settings("natural", "linf", 0.1, QUICK), progress=lambda _, count: images.append(count))
    assert images == [10, 10, 11] * 2


def test_a_checkpoint_of_another_training_is_refused(data, tmp_path):
    settings = make_settings("natural", "linf", 0.1, QUICK)
    with pytest.raises(Killed):
        trained(data, settings, Checkpoint(tmp_path / "p", {"seed": 0}, every=0), killed_after(2))
    with pytest.raises(InvalidInput, match="seed 0, not 1"):
        Checkpoint(tmp_path / "p", {"seed": 1}).read()
    (tmp_path / "p").write_bytes(b"no checkpoint")
    with pytest.raises(Unavailable, match="delete it"):
        Checkpoint(tmp_path / "p", {"seed": 0}).read()


def test_a_loss_without_a_number_ends_the_training(data):
    settings = make_settings("natural", "linf", 0.1, {**QUICK, "learning_rate": 1e5, "epochs": 30})
    with pytest.raises(TrainingFailed, match=r"expected a finite loss, got (nan|inf).*lower the learning rate"):
        trained((data[0] * 1e4, data[1]), settings)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "cyclic"])
def test_the_learning_rate_follows_its_schedule(data, schedule, monkeypatch):
    rates = []
    step = torch.optim.SGD.step
    monkeypatch.setattr(torch.optim.SGD, "step", lambda self: (rates.append(self.param_groups[0]["lr"]), step(self)))
    trained(data, make_settings("natural", "linf", 0.1, {**QUICK, "schedule": schedule}))
    shares = {
        "constant": [1] * 6,
        "cosine": [1, 0.933, 0.75, 0.5, 0.25, 0.067],
        "cyclic": [0, 1 / 3, 2 / 3, 1, 2 / 3, 1 / 3],
    }
    assert rates == pytest.approx([0.05 * share for share in shares[schedule]], abs=1e-4)


def test_mixed_precision_trains(data):
    """bfloat16 on a CPU, where torch has it, too; the weights stay float32."""
    weights = trained(data, make_settings("pgd", "linf", 0.1, QUICK, mixed_precision=True))
    plain = trained(data, make_settings("pgd", "linf", 0.1, QUICK))
    assert all(tensor.isfinite().all() for tensor in weights.values())
    assert weights["model.5.weight"].dtype == torch.float32
    assert not torch.equal(weights["model.5.weight"], plain["model.5.weight"])
    assert torch.allclose(weights["model.5.weight"], plain["model.5.weight"], atol=0.1)
