"""The memory layout of a model is the one in which it is faster."""

import time

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier
from davylamp.adapters.models.layout import choose_layout, seconds_of_batch
from davylamp.adapters.models.zoo import load

FIRST, LAST = torch.contiguous_format, torch.channels_last


class SlowIn(nn.Module):
    """A convolution that takes 10 ms longer while its weights have a certain layout."""

    def __init__(self, layout):
        super().__init__()
        self.convolution, self.layout = nn.Conv2d(3, 4, 3), layout

    def forward(self, inputs):
        if self.convolution.weight.is_contiguous(memory_format=self.layout):
            time.sleep(0.01)
        return self.convolution(inputs).mean((2, 3))


def classifier_of(module):
    return Classifier(module, num_classes=4).freeze()


def is_in(classifier, layout):
    return classifier.model.convolution.weight.is_contiguous(memory_format=layout)


@pytest.mark.parametrize(("slow", "fast"), [(FIRST, LAST), (LAST, FIRST)])
def test_the_faster_layout_is_kept(slow, fast):
    classifier, before = classifier_of(SlowIn(slow)), torch.random.get_rng_state()
    assert choose_layout(classifier, 16) == fast
    assert is_in(classifier, fast)
    assert not is_in(classifier, slow)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(("gain", "chosen"), [(1.05, FIRST), (1.15, LAST)])
def test_channels_last_must_be_faster_by_a_tenth(gain, chosen):
    classifier = classifier_of(SlowIn(FIRST))
    seen = choose_layout(classifier, 16, lambda each, *_: 1 / gain if is_in(each, LAST) else 1.0)
    assert seen == chosen
    assert is_in(classifier, chosen)


def test_a_trial_without_memory_keeps_channels_first():
    def exhausted(classifier, *_):
        if is_in(classifier, LAST):
            raise torch.cuda.OutOfMemoryError
        return 1.0

    classifier = classifier_of(SlowIn(FIRST))
    assert choose_layout(classifier, 16, exhausted) == FIRST
    assert is_in(classifier, FIRST)


def test_a_model_without_convolutions_or_gradients_is_not_tried():
    def unexpected(*_):
        raise AssertionError

    assert choose_layout(classifier_of(nn.Sequential(nn.Flatten(), nn.Linear(48, 4))), 4, unexpected) == FIRST
    labels_only = Classifier(SlowIn(FIRST), num_classes=4, gradients=False).freeze()
    assert choose_layout(labels_only, 16, unexpected) == FIRST


def test_the_time_is_that_of_a_pass():
    classifier = classifier_of(SlowIn(FIRST))
    assert 0.01 <= seconds_of_batch(classifier, torch.rand(2, 3, 8, 8)) < 1


@pytest.mark.parametrize(("device", "tried"), [("cpu", []), ("cuda", [16])])
def test_only_a_gpu_is_asked(monkeypatch, device, tried):
    """On a CPU channels last is faster for every architecture that was measured."""
    asked = []
    monkeypatch.setattr(load, "choose_layout", lambda _, side: asked.append(side))
    monkeypatch.setattr(Classifier, "to", lambda self, *_, **__: self)
    classifier = Classifier(SlowIn(FIRST), num_classes=4, crop=16)
    load._Loader("demo:x", device, True, None)._place(classifier, "demo:x")
    assert asked == tried
