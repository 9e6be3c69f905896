"""One self-contained page from a folder of runs."""

from tmln.report.document import build_document
from tmln.report.page import render_page, write_report

__all__ = ["build_document", "render_page", "write_report"]
