"""Formulas as MathML, which browsers set by themselves: no script and no network, and a search finds their letters."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

_STYLE = "overflow: auto hidden; padding: 0.5em 0"  # a long formula scrolls on a phone


def register(app: Any) -> None:
    """Add the renderer; the setting `html_math_renderer` chooses it."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div style="{_STYLE}">{tex2mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode
