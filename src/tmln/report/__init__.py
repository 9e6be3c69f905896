"""One self-contained page from a folder of runs."""

from tmln.report.document import document
from tmln.report.page import page, write_report

__all__ = ["document", "page", "write_report"]
