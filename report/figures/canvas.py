"""Style of figures for papers (width, fonts, colours), and writing of reproducible files."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...engine.store.atomic_files import write_atomic
from ...errors import InvalidInput, MissingLibrary, UnknownName

WIDTHS: Mapping[str, float] = {"column": 3.25, "text": 6.75}  # inches, of two-column papers
STYLES: Mapping[str, Mapping[str, Any]] = {
    "sans": {"font.family": "DejaVu Sans"},
    "serif": {"font.family": "STIXGeneral", "mathtext.fontset": "stix"},
}
# Okabe and Ito's colour-blind-safe palette. Line styles and markers repeat the colours for greyscale.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = "osD^vPX*"
FONT = 8  # points at the printed size
NORM_NAMES: Mapping[str, str] = {
    "linf": "\u2113\u221e",
    "l2": "\u21132",
    "l1": "\u21131",
    "l0": "\u21130",
}
_SMALL, _THIN = 7, 0.6
_FORMATS = ("pdf", "svg", "png")
_NARROWEST, _WIDEST = 1.5, 20.0


def read_width(text: str) -> float:
    """Convert a figure width such as "column", "text", "3.25in", "8.5cm" or "246pt" to inches.

    Raises:
        InvalidInput: If the text is not a width, or the width is out of range.
    """
    if text in WIDTHS:
        return WIDTHS[text]
    units = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
    unit = next((each for each in units if text.endswith(each)), "in")
    try:
        inches = float(text.removesuffix(unit)) * units[unit]
    except ValueError:
        inches = float("nan")
    if not _NARROWEST <= inches <= _WIDEST:
        wanted = f"{', '.join(WIDTHS)}, or a length from {_NARROWEST} to {_WIDEST:.0f} in such as 3.25in, 8.5cm, 246pt"
        raise InvalidInput(f"expected a width ({wanted}), got {text!r}")
    return inches


@contextmanager
def drawing(style: str = "sans") -> Iterator[type]:
    """Yield Matplotlib's `Figure` class. The style of figures for papers is active until the block ends.

    Args:
        style: "sans" or "serif".

    Raises:
        MissingLibrary: If Matplotlib is not installed.
        UnknownName: If there is no such style.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingLibrary("matplotlib", "plot") from error
    if style not in STYLES:
        raise UnknownName("style", style, STYLES)
    look: Any = {"font.size": FONT, "axes.labelsize": FONT, "axes.titlesize": FONT, "legend.fontsize": _SMALL}
    look |= {"xtick.labelsize": _SMALL, "ytick.labelsize": _SMALL, "axes.linewidth": _THIN, "lines.linewidth": 1.1}
    look |= {"xtick.major.width": _THIN, "ytick.major.width": _THIN, "grid.linewidth": 0.4, "grid.color": "#d0d0d0"}
    look |= {"axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
    look |= {"text.parse_math": False, "text.usetex": False, **STYLES[style]}  # a name with dollar signs is a name
    with rc_context(look):
        yield Figure


def write_figure(figure: Any, path: str | Path) -> Path:
    """Write a Matplotlib figure as PDF (with TrueType fonts), SVG or PNG, and return the path.

    The same figure always gives the same bytes.

    Args:
        figure: Matplotlib figure.
        path: path of the file. The suffix selects the format.

    Raises:
        InvalidInput: If the suffix is not supported.
        Unavailable: If the file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    form = Path(path).suffix.lower().removeprefix(".")
    if form not in _FORMATS:
        raise InvalidInput(f"expected a file that ends in .{', .'.join(_FORMATS)}, got {path}")
    dates = {"pdf": {"CreationDate": None, "ModDate": None}, "svg": {"Date": None}}.get(form)
    picture = io.BytesIO()
    FigureCanvasAgg(figure)
    with rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "davylamp", "text.parse_math": False}):
        figure.savefig(picture, format=form, dpi=300, metadata=dates)
    return write_atomic(path, picture.getvalue())
