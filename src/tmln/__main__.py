"""``python -m tmln`` is ``tmln``."""

from tmln.cli import main

main()
