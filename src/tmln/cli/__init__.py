"""What a person types. Commands import what they need when they run: ``tmln --help`` answers at once."""

from tmln.cli.app import app, main

__all__ = ["app", "main"]
