"""Configure the site: `make docs` builds it without a network, and a warning is an error."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import tmln

project = "tmln"
copyright = "The tmln developers"
release = version = tmln.__version__
extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.viewcode",
    "docs.extensions.mathml", "docs.extensions.made", "docs.extensions.reference_pages",
]  # fmt: skip
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of torch, of which there is no inventory without a network
autosummary_generate = False  # docs/extensions/reference_pages.py writes the pages
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_use_ivar = True  # attributes are described once
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
        body = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
        # viewcode has one name for all of a module; the page is right
        context["body"] = re.sub(r'(class="viewcode-back" href="[^"#]+)#[^"]+', r"\1", body)


def setup(app: Any) -> None:
    app.connect("html-page-context", reachable, priority=900)  # after the theme
