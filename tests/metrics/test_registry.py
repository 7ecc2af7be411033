"""The decorator, the reduction and the count of what is undefined."""

import inspect
import math
from typing import get_args, get_type_hints

import pytest
import torch

from davylamp.metrics import (
    METRICS,
    Metric,
    Summary,
    aliases_of,
    default_symbols,
    metric,
    record_of,
    summarise,
    symbols_named,
)
from davylamp.metrics.registry import Need, Table, reduce


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
    with pytest.raises(ValueError, match="the symbol 'X' already belongs to a metric"):
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


# The names of CANARY (3.1.2 to 3.1.4), AISafety (Table I), Mopuri et al. and of the field.
CALLED = {
    "AV": "CAV", "RR": "CRR", "SR": "CSR", "AND": "AMD AED APCR", "AMS": "ALMS ADMS", "QNC": "QNC_F QNC_B",
    "AED-FD": "FDL FDH", "ACAMC": "ACAMC_A ACAMC_T", "MCV": "CAV FV CV", "ANDV": "AMDV AEDV APCRV",
    "AMSV": "ADMSV ALMSV", "ACV": "MRV AMDV AEDV APCRV ADMSV ALMSV", "ALD_p": "ALD", "relative mCE": "RmCE",
    "EBD-2": "EBD2", "QI-Wup": "QI_Wup", "QI-Vis-Targeted": "QI_Vis_T", "AuC": "FR_AUC", "FR": "FR@K", "SSIM": "ASS",
    "DISTS": "ADMS", "mr": "MR", "MCE": "mCE", "Half distortion": "D_half", "rectify_ratio": "CRR", "nothing": "",
}  # fmt: skip


@pytest.mark.parametrize(("name", "symbols"), CALLED.items())
def test_a_metric_has_the_names_of_the_papers(name, symbols):
    assert symbols_named(name) == tuple(symbols.split())


def test_a_symbol_is_no_other_metrics_name():
    for symbol in METRICS:
        assert symbols_named(symbol) == symbols_named(symbol.lower()) == (symbol,)
    named = [alias for record in METRICS.values() for alias in aliases_of(record)]
    assert all(symbols_named(alias) for alias in named)
    assert not {alias.casefold() for alias in named} & {symbol.casefold() for symbol in METRICS} - {"dists"}


def test_a_formula_counts_the_images_that_the_function_counts():
    arguments = {symbol: inspect.signature(record.function).parameters for symbol, record in METRICS.items()}
    assert {symbol for symbol, record in METRICS.items() if "over successes" in record.formula} == {
        symbol
        for symbol, names in arguments.items()
        if ("success" in names or symbol == "OTR" or METRICS[symbol].over == "success")
        and "(defended)" not in METRICS[symbol].formula
    }
    valid = {symbol for symbol, record in METRICS.items() if "over valid" in record.formula}
    generator = torch.Generator().manual_seed(0)
    logits, adv_logits = torch.randn(2, 40, 4, generator=generator)
    labels = torch.randint(4, (40,), generator=generator)
    for symbol in ("MR", "AIAC", "ARTC", "AAB", "ACAC", "NTE"):
        values = METRICS[symbol].function(
            *[logits][: "logits" in arguments[symbol]], adv_logits, labels, reduction="none"
        )
        assert (symbol in valid) == bool(torch.equal(~values.isnan(), logits.argmax(1) == labels)), symbol
    assert all(record.formula for record in METRICS.values())


def test_a_record_is_found_by_any_name_of_its_metric_alone():
    assert METRICS["ASR"] is METRICS["attack success rate"] is METRICS["MR"]
    assert METRICS["RA_worst"] is METRICS["robust accuracy"] is METRICS["RA"]
    assert METRICS["mean robust accuracy"] is METRICS["RA_mean"]
    with pytest.raises(KeyError, match=r"unknown metric 'QNC'; did you mean QNC_F, QNC_B\?"):
        METRICS["QNC"]
    with pytest.raises(KeyError, match=r"unknown metric 'ssmi'; did you mean ASS\?"):
        METRICS["ssmi"]
    with pytest.raises(KeyError, match="unknown metric 'nothing'"):
        METRICS["nothing"]


def test_a_symbol_may_carry_a_parameter_of_its_metric():
    carried = {
        "FR@10": "FR@K",
        "ALD@inf": "ALD",
        "QI_Wup@0.5": "QI_Wup",
        "KMNCov@clean": "KMNCov",
        "NS@fc": "NS",
        "l2": "l2",
    }
    assert {symbol: record.symbol for symbol in carried if (record := record_of(symbol))} == carried
    assert [record_of(symbol) for symbol in ("FR@0", "FR@x", "MR@3", "asr", "my.py:f")] == [None] * 5


def test_tables_show_metrics_in_their_order_but_for_those_that_name_the_one_before():
    assert default_symbols("models")[:5] == ("CA", "RA", "RA_union", "RA_mean", "CF")
    assert default_symbols("pairs") == ("MR", "TAS", "RA", "seconds", "QNC_F", "QNC_B", "AMD", "AED")


def test_facts_name_metrics_and_values_that_there_are():
    kinds = get_type_hints(Metric)
    for symbol, record in METRICS.items():
        assert not record.base or record.base in METRICS
        for name in ("kind", "stored", "over", "across", "invalid", "knowledge"):
            assert getattr(record, name) in get_args(kinds[name]), (symbol, name)
        assert {*record.needs} <= {*get_args(Need)}
        assert {*record.tables, *record.only} <= {*get_args(Table)}


def test_a_reading_has_a_title_and_a_range_that_are_its_own():
    """Equation 11 of AISafety ranges over -1 to 1, and a norm without a divisor over all positive numbers."""
    assert record_of("NTE").between == (0, 1)
    assert record_of("NTE@printed").between == (-1, 1)
    assert record_of("FDL@formula").between[1] == math.inf
    assert record_of("AED@formula").title != record_of("AED").title
    assert record_of("AED@formula").symbol == "AED"
