"""What a person types: commands that import what they need when they run, so that ``tmln --help`` answers at once."""

from tmln.cli.app import app, main

__all__ = ["app", "main"]
