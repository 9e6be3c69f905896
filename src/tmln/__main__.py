"""Run the command line: ``python -m tmln`` is ``tmln``."""

import signal


def main() -> None:
    """Run the command line; until handlers are installed, Ctrl-C ends the process at once."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tmln.signals import owned

    with owned():
        from tmln.cli import main as work

        work()


if __name__ == "__main__":
    main()
