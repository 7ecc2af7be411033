"""The decorator, the reduction and the count of what is undefined."""

import math

import pytest
import torch

from davylamp.metrics import METRICS, Summary, metric, summarise
from davylamp.metrics.registry import reduce


def test_the_decorator_records_and_returns_the_function_unchanged(monkeypatch):
    monkeypatch.setattr("davylamp.metrics.registry.METRICS", recorded := {})

    def function():
        """Meaning of it.

        More.
        """

    decorate = metric(symbol="X", robust_when="lower", between=(0, 1), source="nowhere")
    assert decorate(function) is function
    assert recorded["X"].function is function
    assert recorded["X"].meaning == "Meaning of it."
    with pytest.raises(ValueError, match="expected a new symbol, got 'X' twice"):
        decorate(function)


def test_the_decorator_asks_for_a_docstring():
    with pytest.raises(ValueError, match="expected a docstring"):
        metric(symbol="X", robust_when=None, between=(0, 1), source="")(lambda: None)
    assert "X" not in METRICS


def test_undefined_values_are_skipped_and_counted():
    values = torch.tensor([1.0, math.nan, 4.0])
    assert reduce(values, "mean") == 2.5
    assert reduce(values, "sum") == 5
    assert reduce(values, "none") is values
    assert summarise(values) == Summary(2.5, 2, 1)
    nothing = summarise(values[1:2])
    assert math.isnan(nothing.mean)
    assert nothing[1:] == (0, 1)
    with pytest.raises(ValueError, match=r"expected values of shape \(N,\), got \(\)"):
        summarise(values.mean())


def test_infinite_values_are_defined():
    assert summarise(torch.tensor([1.0, math.inf])) == Summary(math.inf, 2, 0)
