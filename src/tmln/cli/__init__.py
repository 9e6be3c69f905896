"""The command line; commands import what they need when they run, so that help is fast."""

from tmln.cli.app import app, main

__all__ = ["app", "main"]
