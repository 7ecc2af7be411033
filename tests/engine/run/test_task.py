"""What a task is when it comes out of the pipe to another process."""

import pickle

import numpy as np
import pytest
import torch

from davylamp.engine.attack_run import ModelOnData
from davylamp.engine.run.task import Task
from davylamp.engine.sources import DataSource, ModelSource

GRID = (torch.arange(256).float() / 255).view(1, 1, 16, 16)


def make_task(**tensors):
    return Task("transfer", ModelOnData("m", "", "d", "", 1), ModelSource("m"), DataSource("d"), **tensors)


@pytest.mark.parametrize("examples", [GRID, GRID * 0.999])
def test_tensors_arrive_bit_by_bit(examples):
    tensors = {"logits": torch.randn(3, 10), "adv_inputs": examples}
    there = pickle.loads(pickle.dumps(make_task(**tensors)))
    for name, tensor in tensors.items():
        assert torch.equal(getattr(there, name), tensor), name
    assert there.name == make_task().name
    assert pickle.loads(pickle.dumps(make_task())).logits is None


def test_images_on_the_8_bit_grid_take_a_byte_a_component():
    many = GRID.repeat(100, 1, 1, 1)
    size = [len(pickle.dumps(make_task(adv_inputs=images))) for images in (many, many * 0.999)]
    assert size[0] < many.numel() + 2000
    assert size[1] > 4 * many.numel()


def test_no_tensor_goes_through_shared_memory_and_read_only_arrays_are_copied():
    state = make_task(logits=torch.ones(2, 3), adv_inputs=GRID).__getstate__()
    assert not any(isinstance(value, torch.Tensor) for value in state.values())
    for name in ("logits", "adv_inputs"):
        state[name].flags.writeable = False  # as Ray hands arrays over
    task = Task.__new__(Task)
    task.__setstate__(state)
    task.logits.add_(1)  # type: ignore[union-attr]
    assert np.array_equal(state["logits"], np.ones((2, 3)))
    assert torch.equal(task.adv_inputs, GRID)
