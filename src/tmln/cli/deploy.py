"""The commands for data of one's own: tmln learn, evaluate, predict, inspect, undo, export."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tmln.cli.echo import say
from tmln.printable import csv_cell
from tmln.progress import PAUSE

if TYPE_CHECKING:
    from tmln.deploy.learn import Moment

FORGOT = 3  # the exit code of a lesson that cost too much
State = Annotated[Path, typer.Option(help="The state file: the model, its memory, its classes and its lessons.")]
Data = Annotated[Path, typer.Option(help="A folder with a folder for each class, or for each domain, or an .npz.")]


class Listed(str, Enum):
    """How predictions are written."""

    table = "table"
    csv = "csv"
    json = "json"


def learn(
    state: State,
    data: Data,
    model: Annotated[
        str | None, typer.Option(help="tmln list models, timm:NAME or package.module:Class; by the data unless given.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=8, help="Pictures are made so large; at most 64 unless given.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="By the number of pictures unless given.")] = None,
    method: Annotated[str | None, typer.Option(help="A name from `tmln list methods`; tmln unless given.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="E.g. lr=0.02, step.damping=0.2, model.width=32."),
    ] = None,
    weights: Annotated[Path | None, typer.Option(exists=True, help="Weights to begin with, as safetensors.")] = None,
    freeze: Annotated[str | None, typer.Option(help="`backbone`: only the head learns.")] = None,
    hold_out: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="The share of each class that is not learned, but judges.")
    ] = 0.1,
    max_forgetting: Annotated[
        float | None,
        typer.Option(min=0.0, help="Points that an earlier lesson may lose; more is exit code 3, and the state stays."),
    ] = None,
    keep: Annotated[int, typer.Option(min=0, help="Lessons that can be undone.")] = 1,
) -> None:
    """Learn a folder: a new model, or one that goes on with new classes or a new camera. Ctrl-C, and the same goes on.

    \b
    Example:
      tmln learn --state shop.tmln --data week2/ --max-forgetting 5
    """
    from tmln.deploy.learn import Wish, teach
    from tmln.learner import Forgot
    from tmln.signals import asked_to_stop

    if freeze not in (None, "backbone"):
        raise ValueError(f"--freeze takes `backbone`, got {freeze!r}")
    most = None if max_forgetting is None else max_forgetting / 100
    wish = Wish(model, image_size, method, epochs, weights, freeze is not None, hold_out, most, keep, _pairs(settings))
    begun = not state.exists()
    try:
        with asked_to_stop() as stop, _bar() as shown:
            learner, table = teach(state, data, wish, _announced(shown), stop)
    except Forgot as error:
        say(str(error.retention))
        say(f"tmln: {error}; {state} is as it was", err=True)
        raise typer.Exit(FORGOT) from None
    say(str(table))
    if begun:
        about = learner.about
        size = "x".join(map(str, about["shape"]))
        say(f"\nmade {state}: {about['model']} for inputs of {size}, {len(learner.names) or about['outputs']} classes")


def evaluate(state: State, data: Data) -> None:
    """How well a state does on a folder of classes: the accuracy, and that of each class.

    \b
    Example:
      tmln evaluate --state shop.tmln --data test/
    """
    from tmln.deploy.describe import by_class
    from tmln.deploy.state_file import opened

    rows = by_class(opened(state), data)
    total = sum(count for _, count, _ in rows)
    say(f"accuracy {sum(count * right for _, count, right in rows) / total:.1%} of {total:,} samples")
    _table(("class", "samples", "accuracy"), [(name, f"{count:,}", f"{right:.1%}") for name, count, right in rows])


def predict(
    pictures: Annotated[list[Path], typer.Argument(help="Pictures, and folders of them; or an .npz with the array x.")],
    state: State,
    top: Annotated[int, typer.Option(min=1, help="How many classes to name.")] = 1,
    format: Annotated[Listed, typer.Option(help="A table, csv or json.")] = Listed.table,
) -> None:
    """What a state takes pictures, or the rows of an .npz, for, and how sure it is.

    \b
    Example:
      tmln predict --state shop.tmln photos/ a.png --top 3 --format json
    """
    from tmln.deploy.state_file import opened

    found = opened(state).predict([str(path) for path in pictures], top)
    if format is Listed.json:
        records: list[dict[str, Any]] = []
        for one in found:
            record: dict[str, Any] = {
                "path": str(one.path),
                "label": one.label,
                "probability": round(one.probability, 6),
            }
            if top > 1:
                record["top"] = [{"label": label, "probability": round(share, 6)} for label, share in one.top]
            records.append(record)
        typer.echo(json.dumps(records, indent=2))  # ASCII: nothing in it can steer a terminal
        return
    headings = ["path", *(name for k in range(1, top + 1) for name in (f"label {k}", f"probability {k}"))]
    if top == 1:
        headings = ["path", "label", "probability"]
    rows = []
    for one in found:
        named = one.top or ((one.label, one.probability),)
        rows.append((str(one.path), *(text for label, share in named for text in (label, f"{share:.4f}"))))
    if format is Listed.csv:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(headings)
        writer.writerows([csv_cell(cell) for cell in row] for row in rows)
        say(text.getvalue().rstrip("\n"))
    else:
        _table(headings, rows)


def inspect(state: Annotated[Path, typer.Argument(help="A state file.")]) -> None:
    """What is in a state file: classes, lessons, memory, method, size, and how shielded each layer is.

    \b
    Example:
      tmln inspect shop.tmln
    """
    from tmln.deploy.describe import told

    for line in told(state):
        say(line)


def undo(state: State) -> None:
    """Back to before the last lesson.

    \b
    Example:
      tmln undo --state shop.tmln
    """
    from tmln.deploy.state_file import opened
    from tmln.signals import saving

    learner = opened(state)
    lesson = learner.record.lessons[-1].name if learner.record.lessons else ""
    learner.undo()
    with saving():
        learner.save(state)
    left = len(learner.record.lessons)
    say(f"{state} is as before {lesson!r}: {left} lesson{'s' * (left != 1)}, {len(learner.names)} classes")


def export(
    source: Annotated[Path, typer.Argument(help="A state file, or the folder of a finished run.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="model.safetensors, .onnx, .pt2, labels.json; of a run also a .tmln.")
    ],
) -> None:
    """The model for programs without tmln; a run as a state that can go on learning.

    \b
    Example:
      tmln export shop.tmln -o model.onnx
    """
    from tmln.deploy.state_file import opened

    if source.is_dir():
        from tmln.deploy.from_run import from_run

        learner = from_run(source)
    else:
        learner = opened(source)
    if output.suffix == ".tmln":
        if not source.is_dir():
            raise ValueError(f"{source} is a state already: copy it")
        learner.save(output)
    else:
        learner.export(output)
    say(f"wrote {output}")


def _pairs(settings: list[str] | None) -> dict[str, str]:
    found = {}
    for text in settings or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, e.g. step.damping=0.2; got {text!r}")
        found[key.strip()] = value.strip()
    return found


def _table(headings: Any, rows: list[Any]) -> None:
    wide = [max(len(str(row[k])) for row in [headings, *rows]) for k in range(len(headings))]
    for row in [headings, *rows]:
        say("  ".join(str(cell).ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip())


@contextmanager
def _bar() -> Iterator[Callable[[Moment], None]]:
    """A bar where there is a terminal; elsewhere a line every fifteen seconds."""
    if not sys.stderr.isatty():
        said = time.monotonic()

        def tell(moment: Moment) -> None:
            nonlocal said
            if time.monotonic() - said >= PAUSE:
                said = time.monotonic()
                say(f"learning: step {moment.step:,} of {moment.steps:,}, {_words(moment)}", err=True)

        yield tell
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("learning", total=None)

        def show(moment: Moment) -> None:
            bar.update(task, total=moment.steps, completed=moment.step, description=_words(moment))

        yield show


def _announced(shown: Callable[[Moment], None]) -> Callable[[Moment], None]:
    """A lesson that goes on says so, once."""
    begun = False

    def show(moment: Moment) -> None:
        nonlocal begun
        if not begun and moment.step > 1:
            say(f"going on after step {moment.step - 1:,} of {moment.steps:,}", err=True)
        begun = True
        shown(moment)

    return show


def _words(moment: Moment) -> str:
    return f"epoch {moment.epoch + 1} of {moment.epochs}, loss {moment.loss:.3f}"
