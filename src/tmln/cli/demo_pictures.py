"""``tmln demo --pictures``: the commands for your own data, on images that tmln draws."""

from __future__ import annotations

import shlex
from pathlib import Path

from tmln.cli import deploy
from tmln.cli.echo import echo


def show_pictures(root: Path) -> None:
    """Draw images of four shapes, learn them in two weeks, and test what is known."""
    from tmln.deploy.demo import draw_weeks

    state = root / "shapes.tmln"
    if state.exists():
        raise ValueError(f"{state} is there already: remove it, or choose another folder with --runs")
    echo(f"Images of four shapes, drawn by tmln (no photographs), in {root}: week1, week2, test.")
    draw_weeks(root)
    for week in ("week1", "week2"):
        _announce("learn", "--state", state, "--data", root / week)
        deploy.learn(state=state, data=root / week)
    _announce("evaluate", "--state", state, "--data", root / "test")
    deploy.evaluate(state=state, data=root / "test")
    pictures = [root / "test" / name / "0.png" for name in ("circle", "ring")]
    _announce("predict", "--state", state, *pictures)
    deploy.predict(pictures=pictures, state=state)
    echo("")
    echo(f"Next: tmln undo --state {shlex.quote(str(state))}, or a folder of your own (docs/own_data.md)")


def _announce(*words: object) -> None:
    """Print a command as a person types it."""
    echo("")
    echo(f"$ tmln {shlex.join(map(str, words))}")
