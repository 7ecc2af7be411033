"""Renders formulas as MathML, which browsers typeset without a script or a network."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

_STYLE = "overflow: auto hidden; padding: 0.5em 0"  # a long formula scrolls on a phone


def register(app: Any) -> None:
    """Register the renderer with Sphinx. The setting `html_math_renderer` selects it."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div style="{_STYLE}">{tex2mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode
