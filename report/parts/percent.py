"""Shares as a sentence writes them: in per cent, with two digits."""

import math


def percent_text(share: float) -> str:
    """A share in per cent: "18 %", "2.5 %", "0.04 %"; never 0 or 100 unless it is."""
    value = 100 * share
    if math.isnan(value):
        return "unknown"
    if value in (0, 100):
        return f"{value:.0f} %"
    text = f"{value:.0f}" if 10 <= value < 99.5 else f"{value:.3g}" if value >= 99.5 else f"{value:.2g}"
    return f"{'> 99.9' if text == '100' else text} %"


def percent_range(low: float, high: float) -> str:
    """Both ends of an interval of a share in per cent: "8.6 to 31 %"."""
    return f"{percent_text(low).removesuffix(' %')} to {percent_text(high)}"
