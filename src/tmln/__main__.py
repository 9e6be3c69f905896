"""``python -m tmln`` is ``tmln``."""

import signal


def main() -> None:
    """Until signals have their owner, who comes before anything large is imported, they end the program."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tmln.signals import owned

    with owned():
        from tmln.cli import main as work

        work()


if __name__ == "__main__":
    main()
