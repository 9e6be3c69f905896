"""Convert equations to MathML, which a browser draws without a script and without a network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def mathml(latex: str, block: bool) -> str:
    """What stands in the page; a block can be scrolled on a phone, also with the keyboard."""
    drawn = convert(latex, display="block" if block else "inline")
    return f'<div class="equation" tabindex="0">{drawn}</div>' if block else drawn


def visit(self: Any, node: nodes.Element) -> None:
    """Convert a node of ``$...$`` or ``$$...$$`` alike."""
    self.body.append(mathml(node.astext(), isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """The renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (visit, None), (visit, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
