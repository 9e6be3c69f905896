"""The commands for your own data: tmln learn, predict, serve and the others."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tmln.cli.echo import echo, echo_block, echo_note
from tmln.cli.options import split_settings
from tmln.printable import csv_cell
from tmln.progress import PAUSE

if TYPE_CHECKING:
    from tmln.deploy.candidates import Candidate
    from tmln.deploy.learn import LearnNotes, StepProgress
    from tmln.learner import Retention

FORGOT = 3  # the exit code when more was forgotten than --max-forgetting allows
State = Annotated[Path, typer.Option(metavar="FILE", help="State file: model, replay memory, classes, history.")]
Data = Annotated[
    Path, typer.Option(metavar="PATH", help="Folder with a folder per class or domain, .npz, or .csv of texts.")
]
AnyState = Annotated[Path | None, typer.Option("--state", metavar="FILE", help="State file.")]
OldPosition = Annotated[Path | None, typer.Argument(hidden=True)]


PredictionFormat = Literal["table", "csv", "json"]
ClassChange = Literal["rename", "merge", "remove"]
FitName = Literal["pad", "stretch", "crop"]
FITTED = {"pad": "shown whole, with a border", "stretch": "stretched to a square", "crop": "cropped to their centre"}


def learn(
    state: State,
    data: Data,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="tmln list models, timm:NAME or package.module:Class.")
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(min=8, metavar="N", help="Size of scaled images; by default at most 64, pre-trained 224."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="By default from the number of images.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Method (tmln list methods); chosen by default.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting: lr=0.02, model.width=32."),
    ] = None,
    initial_weights: Annotated[
        Path | None, typer.Option(exists=True, metavar="FILE", help="Pre-trained weights, as safetensors.")
    ] = None,
    weights_partial: Annotated[
        bool, typer.Option("--weights-partial", help="Take what fits of the weights, also if that is not all.")
    ] = False,
    freeze: Annotated[str | None, typer.Option(metavar="WHAT", help="backbone: train only the head.")] = None,
    hold_out: Annotated[
        float, typer.Option(min=0.0, max=0.9, metavar="SHARE", help="Share of each class held out to measure accuracy.")
    ] = 0.1,
    max_forgetting: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="POINTS",
            help="Accuracy that earlier data may lose, as far as held-out samples tell; else exit code 3.",
        ),
    ] = None,
    undo_levels: Annotated[int, typer.Option(min=0, metavar="N", help="How many calls can be undone.")] = 1,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Train a new network, also where a pre-trained one is installed.")
    ] = False,
    fit: Annotated[
        FitName | None,
        typer.Option(metavar="NAME", help="Make images square: pad (default), stretch or crop; fixed by the first."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out bad files and empty folders; list them.")
    ] = False,
    try_candidates: Annotated[
        bool,
        typer.Option("--try", help="For a new state: compare two or three methods on held-out images, keep the best."),
    ] = False,
) -> None:
    """Train a model on your data, or continue it with new data.

    New classes and new domains of known classes are recognised by their folders. After Ctrl-C,
    the same command continues.

    \b
    Example:
      tmln learn --state shop.tmln --data week2/ --max-forgetting 5
    """
    from tmln.deploy.learn import LearnNotes, LearnRequest, learn_into
    from tmln.learner import Forgot
    from tmln.signals import asked_to_stop

    if freeze not in (None, "backbone"):
        raise ValueError(f"--freeze takes `backbone`, got {freeze!r}")
    most = None if max_forgetting is None else max_forgetting / 100
    request = LearnRequest(
        model,
        image_size,
        method,
        epochs,
        initial_weights,
        freeze is not None,
        hold_out,
        most,
        undo_levels,
        split_settings(settings),
        from_scratch,
        weights_partial,
        fit=fit,
        skip_bad=skip_bad,
        try_candidates=try_candidates,
    )
    notes = LearnNotes()
    begun = not state.exists()
    try:
        with asked_to_stop() as stop, _progress() as shown:
            learner, table = learn_into(state, data, request, _announce_resumption(shown), stop, notes)
    except Forgot as error:
        echo_block(str(error.retention))
        kept = f"tmln accept --state {state} takes the task all the same"
        remedy = kept if undo_levels else "with --undo-levels 1 tmln accept could take the task"
        echo(f"tmln: {error}; {state} answers as it did. {remedy}", err=True)
        raise typer.Exit(FORGOT) from None
    if notes.candidates:
        _show_candidates(notes.candidates)
    echo_block(str(table))
    earlier = [task.name for task in learner.seen.record.tasks[:-1]]
    _report_task(table, notes, most, [name for name in earlier if name not in table.tasks()])
    if begun:
        about = learner.about
        size = "x".join(map(str, about["shape"]))
        echo("")
        count = len(learner.class_names) or about["outputs"]
        echo(f"made {state}: {about['model']} for inputs of {size}, {count} classes")
        if data.is_dir() and learner.seen.transforms is not None:
            applied = learner.seen.transforms["fit"]
            echo(f"images that are not square are {FITTED[applied]} (--fit {applied})")
        for key in ("weights", "reason"):
            if key in about:
                echo_note(about[key])


def accept(state: State) -> None:
    """Take the task that --max-forgetting refused, as it was learned.

    \b
    Example:
      tmln accept --state shop.tmln
    """
    from tmln.deploy.state_file import open_learner
    from tmln.signals import saving

    learner = open_learner(state)
    learner.accept()
    with saving():
        learner.save(state)
    echo_block(str(learner.retention))
    echo("")
    echo(f"{state} has learned {learner.seen.record.tasks[-1].name!r}; tmln undo takes it back")


def _show_candidates(candidates: Sequence[Candidate]) -> None:
    """Print what the methods of --try reached."""
    best = max(candidates, key=lambda one: one.accuracy)
    rows = [
        (one.method, f"{one.accuracy:.1%}", f"{one.seconds:.0f} s", one.about + " (kept)" * (one is best))
        for one in candidates
    ]
    _table(("method", "accuracy", "took", f"on {best.count:,} held-out images"), rows)
    echo("")


def _report_task(table: Retention, notes: LearnNotes, most: float | None, unmeasured: Sequence[str]) -> None:
    """Print what was left out, what a task took, and what to do where it went badly.

    ``unmeasured``: earlier tasks of which nothing is held out.
    """
    echo("")
    echo(f"took {notes.seconds:.0f} s, {notes.read_seconds:.0f} s of it reading")
    if notes.left_out:
        echo(f"left out {len(notes.left_out):,} bad file{'s' * (len(notes.left_out) != 1)}:")
        for problem in notes.left_out:
            echo(f"  {problem}")
    if most is not None and (unclear := table.undecided(most)):
        echo_note(
            f"{', '.join(unclear)} may have lost more than {100 * most:g} points, but too few images are held out to "
            "tell (see the interval): learned; tmln undo takes it back, a larger --hold-out tells more"
        )
    if most is not None and unmeasured:
        echo_note(
            f"no images of {', '.join(unmeasured)} are held out, so that --max-forgetting could not tell what was lost "
            "there: --hold-out above 0 keeps some of later tasks"
        )
    for line in table.advice():
        echo_note(line)


def evaluate(state: State, data: Data) -> None:
    """Measure a model's accuracy on a folder, per class.

    \b
    Example:
      tmln evaluate --state shop.tmln --data test/
    """
    from tmln.deploy.describe import evaluate_classes
    from tmln.deploy.state_file import open_learner

    rows = evaluate_classes(open_learner(state), data)
    total = sum(count for _, count, _ in rows)
    echo(f"accuracy {sum(count * right for _, count, right in rows) / total:.1%} of {total:,} samples")
    _table(("class", "samples", "accuracy"), [(name, f"{count:,}", f"{right:.1%}") for name, count, right in rows])


def predict(
    pictures: Annotated[
        list[str],
        typer.Argument(metavar="PATHS...", help="Images, folders of images, an .npz with the array x; texts, a .csv."),
    ],
    state: State,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Classes per prediction.")] = 1,
    format: Annotated[PredictionFormat, typer.Option(metavar="NAME", help="table, csv or json.")] = "table",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out files that cannot be read.")] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", help='Say "unknown" of what fits no class, by the held-out samples.')
    ] = False,
    keep_known: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=1.0, metavar="SHARE", help="Held-out samples that --unknown keeps; 0.95 unless given."
        ),
    ] = None,
) -> None:
    """Predict the classes of images, texts or arrays, with probabilities.

    \b
    Example:
      tmln predict --state shop.tmln photos/ a.png --top 3 --format json
      tmln predict --state intents.tmln "what is my balance" questions.csv
    """
    from tmln.deploy.state_file import open_learner

    learner = open_learner(state)
    least: bool | float = False
    if unknown or keep_known is not None:
        least = learner.unknown_threshold() if keep_known is None else learner.unknown_threshold(keep_known)
    found = learner.predict(pictures, top, skip_bad=skip_bad, unknown=least)
    judged = least is not False
    if format == "json":
        from tmln.deploy.serve import make_record

        records = [{"path": str(one.path), **make_record(one, judged, top)} for one in found]
        typer.echo(json.dumps(records, indent=2))  # ASCII: nothing in it can steer a terminal
        return
    shown = max((len(one.top) for one in found), default=1)
    if top > max(shown, 1):
        echo(f"tmln: --top {top}, and there are {shown} classes: all are shown", err=True)
    headings = ["path", *(name for k in range(1, shown + 1) for name in (f"label {k}", f"probability {k}"))]
    if top == 1:
        headings = ["path", "label", "probability"]
    headings += ["nearest"] * judged
    rows = []
    for one in found:
        named = one.top or ((one.nearest, one.probability),)
        named = ((one.label, one.probability), *named[1:])
        cells = (text for label, share in named for text in (label, f"{share:.4f}"))
        rows.append((str(one.path), *cells, *([one.nearest] if judged else [])))
    if format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(headings)
        writer.writerows([csv_cell(cell) for cell in row] for row in rows)
        echo_block(text.getvalue().rstrip("\n"))
    else:
        _table(headings, rows)


def inspect(state: AnyState = None, file: OldPosition = None) -> None:
    """Describe a state file: classes, history, memory, protection.

    \b
    Example:
      tmln inspect --state shop.tmln
    """
    from tmln.deploy.describe import describe_state

    for line in describe_state(_one_source(file, state)):
        echo(line)


def undo(state: State) -> None:
    """Undo the last `tmln learn`.

    \b
    Example:
      tmln undo --state shop.tmln
    """
    from tmln.deploy.state_file import open_learner
    from tmln.signals import saving

    learner = open_learner(state)
    tasks = learner.seen.record.tasks
    learner.undo()
    with saving():
        learner.save(state)
    left = len(learner.seen.record.tasks)
    what = repr(tasks[-1].name) if left < len(tasks) else "the last change of classes"
    echo(f"{state} is as before {what}: {left} task{'s' * (left != 1)}, {len(learner.class_names)} classes")


def classes(
    state: Annotated[Path, typer.Argument(metavar="FILE", help="State file.")],
    change: Annotated[ClassChange | None, typer.Argument(metavar="CHANGE", help="rename, merge or remove.")] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAMES...", help="OLD NEW; those to merge and TARGET; or NAME...")
    ] = None,
) -> None:
    """List, rename, merge or remove the classes of a state; `tmln undo` takes it back.

    \b
    Example:
      tmln classes shop.tmln
      tmln classes shop.tmln rename ant wasp
      tmln classes shop.tmln merge scratch scrape damage
      tmln classes shop.tmln remove owl
    """
    from tmln.deploy.describe import count_samples, measure_held_accuracy
    from tmln.deploy.state_file import open_learner
    from tmln.signals import saving

    learner, given = open_learner(state), names or []
    if change is None:
        counts = count_samples(learner)
        rows = [(learner.name_of(label), f"{counts.get(label, 0):,}") for label in learner.classes]
        _table(("class", "samples learned"), rows)
        return
    before = measure_held_accuracy(learner)
    if change == "rename":
        if len(given) != 2:
            raise ValueError(f"rename takes the old name and the new one, got {len(given)} names")
        learner.rename_class(*given)
    elif change == "merge":
        if len(given) < 2:
            raise ValueError("merge takes classes and the one that they become: merge scratch scrape damage")
        learner.merge_classes(given[:-1], given[-1])
    else:
        learner.remove_classes(given)
    with saving():
        learner.save(state)
    echo(f"{state} has {len(learner.class_names)} classes: {', '.join(learner.class_names)}")
    after = measure_held_accuracy(learner)
    if change != "rename" and before is not None and after is not None:
        echo(f"right of the held-out samples: {before:.1%} before, {after:.1%} now")
    if not learner.seen.previous:
        echo("it cannot be undone: the state keeps no earlier one (--undo-levels)", err=True)


def export(
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help=".safetensors, .onnx, .pt2, labels.json; .tmln of a run."),
    ],
    state: AnyState = None,
    run: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of a finished run.")] = None,
    file: OldPosition = None,
) -> None:
    """Export a model for other programs, or a run as a state file.

    \b
    Example:
      tmln export --state shop.tmln -o model.onnx
      tmln export --run runs/NAME -o model.tmln
    """
    from tmln.deploy.state_file import open_learner

    source = _one_source(file, state, run)
    if source.is_dir():
        from tmln.deploy.state_file import learner_of_run

        learner = learner_of_run(source)
    else:
        learner = open_learner(source)
    if output.suffix == ".tmln":
        if not source.is_dir():
            raise ValueError(f"{source} is a state already: copy it")
        learner.save(output)
    else:
        learner.export(output)
    echo(f"wrote {output}")
    if output.suffix in (".onnx", ".pt2"):
        from tmln.deploy.describe import describe_inputs, measure_speed

        echo(f"input: {describe_inputs(learner)}")
        seconds = measure_speed(output, learner) or 0.0
        echo(f"one input takes {1000 * seconds:.3g} ms on one core, measured here")


def serve(
    state: Annotated[Path, typer.Argument(metavar="FILE", help="State file.")],
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 chooses a free one.")] = 8000,
    host: Annotated[str, typer.Option(metavar="NAME", help="Address to listen on; this machine alone.")] = "127.0.0.1",
    max_megabytes: Annotated[int, typer.Option(min=1, metavar="N", help="Size of a request.")] = 32,
    max_batch: Annotated[int, typer.Option(min=1, metavar="N", help="Pictures of a request.")] = 64,
    threads: Annotated[int, typer.Option(min=1, metavar="N", help="Requests at a time.")] = 8,
) -> None:
    """Predict by HTTP, until Ctrl-C; nothing that is sent is kept.

    \b
    Example:
      tmln serve shop.tmln
      curl --data-binary @a.jpg "http://127.0.0.1:8000/predict?top=3"
    """
    from tmln.deploy.serve import LOOPBACK, Limits, PredictionServer
    from tmln.deploy.state_file import open_learner
    from tmln.models.text_model import find_tokenizer
    from tmln.signals import asked_to_stop

    learner = open_learner(state)
    if find_tokenizer(learner.model) is not None:
        raise ValueError(f"{state} is of texts, and pictures are served: use tmln predict, or Python")
    try:
        server = PredictionServer(learner, (host, port), Limits(max_megabytes << 20, max_batch, threads))
    except (OSError, OverflowError) as error:
        raise ValueError(f"cannot listen on {host}:{port} ({error}); --port 0 chooses a free port") from None
    if host not in LOOPBACK:
        echo(f"warning: every client that reaches {host} can ask: there are no passwords and no encryption", err=True)
    with asked_to_stop() as stop:
        echo(f"{state} on {server.url}: POST /predict, GET /health, GET /metadata; Ctrl-C ends it")
        sys.stdout.flush()
        server.run(stop)
    echo("stopped", err=True)


def _one_source(file: Path | None, *named: Path | None) -> Path:
    """Return the one file that was given; without the option's name it warns for one release."""
    found = [path for path in (file, *named) if path is not None]
    if len(found) != 1:
        raise ValueError(f"give one file, e.g. --state shop.tmln; got {len(found)}")
    if file is not None:
        option = "--run" if file.is_dir() else "--state"
        echo(f"warning: write {option} {file}; a file without it goes with the next release", err=True)
    return found[0]


def _table(headings: Any, rows: list[Any]) -> None:
    wide = [max(len(str(row[k])) for row in [headings, *rows]) for k in range(len(headings))]
    for row in [headings, *rows]:
        echo("  ".join(str(cell).ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip())


@contextmanager
def _progress() -> Iterator[Callable[[StepProgress], None]]:
    """Show a progress bar in a terminal, elsewhere a line every fifteen seconds."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def print_step(info: StepProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= PAUSE:
                last = time.monotonic()
                echo(f"learning: step {info.step:,} of {info.steps:,}, {_describe(info)}", err=True)

        yield print_step
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("learning", total=None)

        def show(info: StepProgress) -> None:
            bar.update(task, total=info.steps, completed=info.step, description=_describe(info))

        yield show


def _announce_resumption(shown: Callable[[StepProgress], None]) -> Callable[[StepProgress], None]:
    """Return a callback that says once that an interrupted call continues."""
    begun = False

    def show(info: StepProgress) -> None:
        nonlocal begun
        if not begun and info.step > 1:
            echo(f"going on after step {info.step - 1:,} of {info.steps:,}", err=True)
        begun = True
        shown(info)

    return show


def _describe(info: StepProgress) -> str:
    return f"epoch {info.epoch + 1} of {info.epochs}, loss {info.loss:.3f}"
