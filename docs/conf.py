"""Configure the site: `make docs` builds it without a network, and a warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import tmln

project = "tmln"
copyright = "The tmln developers"
release = version = tmln.__version__
extensions = ["myst_parser", "docs.extensions.mathml", "docs.extensions.made"]
nitpicky = True
highlight_language = "text"  # indented blocks are formulas and pictures of loops

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

html_theme = "furo"
html_title = "tmln"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it would fetch the pages, which a browser refuses for files on a disk
html_domain_indices = False
html_use_index = False
templates_path: list[str] = []


def reachable(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """What scrolls sideways on a phone can be scrolled with the keyboard, too; headings of the tree have a level."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')
    if "body" in context:
        body = context["body"].replace("<pre>", '<pre tabindex="0">')
        context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')


def setup(app: Any) -> None:
    app.connect("html-page-context", reachable, priority=900)  # after the theme
