"""Draw the pictures of own_data.md: what each task shows, and the accuracy after each."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image

import tmln
from tmln.deploy.learn import LearnRequest, learn_into
from tmln.learner import Retention

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))
import growing_shop  # noqa: E402
import new_camera  # noqa: E402

INK, MUTED = "#222222", "#777777"
COLOURS = ("#0072b2", "#d55e00")
RATES = {"tmln": (0.01,), "naive": (0.01, 0.03, 0.1)}  # tmln at its default; naive has the best of three, as 0.1 fails
Learn = Callable[[Path], Retention]


def accuracies(tasks: Sequence[Path], learn: Learn) -> list[float]:
    """Return the mean accuracy over all tasks so far after each task, in percent."""
    found = []
    for task in tasks:
        right = [share for _, share in learn(task).tasks().values()]
        found.append(100 * sum(right) / len(right))
    return found


def drawn(tasks: Sequence[Path], begin: Callable[[str, float], Learn], title: str, file: Path) -> None:
    """Draw an image of each class of each task, and the mean accuracy over all tasks so far."""
    after: dict[str, list[float]] = {}
    for method, rates in RATES.items():
        tried = {rate: accuracies(tasks, begin(method, rate)) for rate in rates}
        rate = max(tried, key=lambda rate: sum(tried[rate]))
        after[f"{method}, lr={rate:g}"] = tried[rate]
        print(file.stem, method, {rate: [round(value) for value in values] for rate, values in tried.items()})
    classes = {task: sorted(path.name for path in task.iterdir()) for task in tasks}
    wide = max(map(len, classes.values()))
    figure = plt.figure(figsize=(9, 0.9 + 1.05 * max(3, len(tasks))), layout="constrained")
    figure.suptitle(title, color=INK, x=0.01, ha="left")
    left, right = figure.subfigures(1, 2, width_ratios=(wide, 4))
    for axes, task in zip(left.subplots(len(tasks), wide, squeeze=False), tasks, strict=True):
        for axis in axes:
            axis.axis("off")
        axes[0].text(-0.15, 0.5, task.name, transform=axes[0].transAxes, ha="right", va="center", color=INK)
        for axis, name in zip(axes, classes[task], strict=False):
            axis.imshow(Image.open(task / name / "0.png"))
            axis.set_title(name, fontsize=9, color=MUTED, pad=2)
    axis = right.subplots()
    for colour, mark, (name, values) in zip(COLOURS, ("o-", "s--"), after.items(), strict=True):
        axis.plot(values, mark, color=colour, label=name)
    axis.set_xticks(range(len(tasks)), [f"after\n{task.name}" for task in tasks])
    axis.set_ylim(0, 105)
    axis.set_xlim(-0.3, len(tasks) - 0.7)
    axis.set_ylabel("right in all tasks so far, %")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(title="--method", frameon=False, loc="lower left")
    figure.savefig(file, dpi=90)
    plt.close(figure)


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for number, (week, names) in enumerate(growing_shop.WEEKS.items()):
            for name in names:
                growing_shop.pictures(root / week, name, light=60 if week == "week4" else number)
        title = "A shop whose classes grow: examples/growing_shop.py"
        weeks = [root / week for week in growing_shop.WEEKS]
        drawn(weeks, by_python, title, HERE / "growing_shop.png")
        title = "The same classes from another camera: examples/new_camera.py"
        cameras = [new_camera.shots(root / f"{camera} camera", camera) for camera in ("old", "new")]
        drawn(cameras, partial(by_state, root), title, HERE / "new_camera.png")


def by_python(method: str, rate: float) -> Learn:
    torch.manual_seed(0)
    learner = tmln.Learner(growing_shop.network(), method=method, lr=rate, batch_size=16)

    def learn(folder: Path) -> Retention:
        learner.learn(folder, epochs=20)
        return learner.retention

    return learn


def by_state(root: Path, method: str, rate: float) -> Learn:
    wish = LearnRequest(method=method, epochs=15)
    first = replace(wish, settings={"lr": str(rate)})
    state = root / f"{method} {rate}.tmln"
    return lambda folder: learn_into(state, folder, wish if state.exists() else first)[1]


if __name__ == "__main__":
    main()
