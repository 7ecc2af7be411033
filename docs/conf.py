"""Sphinx's settings. `make docs` builds the site; it opens from disk and asks no network for anything."""

import os
import re
import sys
from functools import partial
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS / "generate")]

import mathml  # noqa: E402 - in the folder that was just added
import notebooks  # noqa: E402
import pages  # noqa: E402
from jupyter_cache.executors import utils as execution  # noqa: E402

import davylamp  # noqa: E402

project = "davylamp"
author = "The davylamp authors"
version = release = davylamp.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "generate", "generated/notebooks", "generated/reasons.md"]
html_theme = "furo"
html_title = f"davylamp {version}"
html_show_sourcelink = html_show_copyright = html_show_sphinx = False
html_copy_source = False
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_dmath_allow_space = myst_dmath_allow_digits = False  # a price is no formula
html_math_renderer = "mathml"
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_in_temp = nb_execution_raise_on_error = True
nb_execution_timeout = 300
# What a command prints arrives in pieces of 100 bytes. MyST-NB's nb_merge_streams would end a line after each.
execution.executenb = partial(execution.executenb, coalesce_streams=True)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # these models are small
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # `davylamp`, in cells
copybutton_prompt_text = "$ "
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature says them
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
maximum_signature_line_length = 100


def _quote(app, what, name, obj, options, lines):
    """Names between single backticks become literals before napoleon looks for the colons that it splits at."""
    lines[:] = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", "\n".join(lines)).split("\n")


def _escape(app, what, name, obj, options, lines):
    """Docstrings are plain text with names between backticks: what reStructuredText would read into them is escaped."""
    text = "\n".join(lines)
    parts = re.split(r"(``[^`]*``)", text)
    plain = [part if place % 2 else _plain(part) for place, part in enumerate(parts)]
    lines[:] = "".join(plain).removeprefix("\\ ").split("\n")


def _plain(text: str) -> str:
    """Stars, bars and trailing underscores; and a letter may follow a name between backticks."""
    kept = re.sub(r"(?<!\\)\|", r"\\|", text)
    kept = re.sub(r"(\w)_(?=\W|$)", r"\1\\_", kept)
    kept = re.sub(r"(?<![\\*])\*(?!\*)", r"\\*", kept)
    return re.sub(r"^(?=\w)", r"\\ ", kept)


def _add_setup(app, document, source):
    source[0] = notebooks.add_setup(source[0])


def _tutorials(app, env, added, changed, removed):
    return [f"tutorials/{page.stem}" for page in notebooks.executed(DOCS / "tutorials")]


def setup(app):
    """Write the generated pages before Sphinx looks for pages, mend links out of the folder, execute every tutorial."""
    mathml.register(app)
    app.connect("builder-inited", lambda _: pages.write_all(DOCS / "generated"))
    app.connect("source-read", pages.mend_links)
    app.connect("source-read", _add_setup)
    app.connect("env-get-outdated", _tutorials)
    app.connect("autodoc-process-docstring", _quote, priority=100)
    app.connect("autodoc-process-docstring", _escape, priority=1000)
