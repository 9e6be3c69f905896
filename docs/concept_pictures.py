"""Draw the pictures of the concepts, with runs on Split-Digits: ``python docs/concept_pictures.py [folder of runs]``.

Runs that the folder has already are not made again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import tmln
from tmln.analysis.fronts import fronts_of
from tmln.analysis.read import read_results
from tmln.analysis.rows import group_rows
from tmln.experiments.result import Result
from tmln.methods.registry import FAMILIES
from tmln.plots.figure import COLOURS, get_look, new_figure, save_figure
from tmln.plots.fronts import pareto_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent / "pictures"
INK, MUTED = "#222222", "#666666"
GRIDS = {
    "step.damping": (0.003, 0.01, 0.03, 0.1, 0.3, 1),
    "step.trajectory": (0, 0.1, 1, 10, 100, 1000),
    "replay.capacity": (20, 50, 100, 200, 500, 1000),
    "lr": (0.001, 0.003, 0.01, 0.03, 0.1),
}
USUAL = {"step.damping": 0.1, "step.trajectory": 1, "replay.capacity": 500, "lr": 0.01}
TITLES = ("damping lambda", "trajectory gamma", "memory, samples", "rate eta")


def make_runs(folder: Path) -> None:
    """What is drawn, and the two pictures that the command line draws."""
    digits = ["--benchmark", "split-digits"]
    three = ["--seeds", "3", "--runs", str(folder)]
    tmln_of("compare", *digits, "--methods", "naive,joint,er,tmln,tmln+", *three)
    for key, values in GRIDS.items():
        tmln_of("sweep", *digits, "--method", "tmln", "--grid", f"{key}={','.join(map(str, values))}", *three)
    drawn = ["-o", str(HERE / "landscape.png"), "--runs", str(folder)]
    tmln_of("landscape", *digits, "--methods", "naive,er,tmln", *drawn)


def tmln_of(*words: str) -> None:
    """Run one command of tmln."""
    subprocess.run([sys.executable, "-m", "tmln", *words], check=True, stdout=subprocess.DEVNULL)


def matrix(results: Sequence[Result]) -> Any:
    """The mean of R over seeds, in percent."""
    return 100 * np.mean([np.array(result.accuracy, dtype=float) for result in results], axis=0)


def dress(axes: Axes, x: str, y: str) -> None:
    """Apply the style that all pictures share."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)


def forgetting(found: dict[str, list[Result]]) -> None:
    """Draw each task's accuracy after each task: naive, with replay alone, and with TMLN."""
    figure = new_figure(9.6, 3.2)
    titles = {"naive": "plain training (naive)", "er": "replay alone (er)", "tmln": "replay and the TMLN step"}
    for axes, method in zip(figure.subplots(1, 3, sharey=True), titles, strict=True):
        R = matrix(found[method])
        for task in range(len(R)):
            axes.plot(range(task + 1, len(R) + 1), R[task:, task], "o-", color=COLOURS[task], label=f"task {task + 1}")
        axes.set_title(titles[method], color=INK)
        axes.set_xticks(range(1, len(R) + 1))
        axes.set_ylim(-4, 104)
        dress(axes, "after learning task", "accuracy of a task, %" if method == "naive" else "")
    axes.legend(frameon=False, loc="lower left")
    for kind in (".svg", ".png"):  # the README is shown where no SVG is
        save_figure(figure, HERE / f"forgetting{kind}")


def intransigence(found: dict[str, list[Result]]) -> None:
    """Draw how well each task is learned, beside joint training on all tasks so far."""
    figure = new_figure(6.4, 3.2)
    axes = figure.subplots()
    for shift, method in zip((-0.22, 0, 0.22), ("joint", "er", "tmln+"), strict=True):
        own = np.diag(matrix(found[method]))
        axes.bar(np.arange(1, len(own) + 1) + shift, own, 0.2, color=get_look(method).colour, label=method)
    axes.set_ylim(80, 101)
    dress(axes, "task, just learned", "right, %")
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.15))
    save_figure(figure, HERE / "intransigence.svg")


def questions() -> None:
    """The loop, and where each family is asked."""
    figure = new_figure(8.4, 2.5)
    axes = figure.subplots()
    axes.axis("off")
    axes.set_xlim(-0.6, 9.2)
    axes.set_ylim(-1.35, 1.1)
    boxes = zip(("batch", "loss", "move", "task's end", "test"), FAMILIES.items(), COLOURS, strict=False)
    for place, (when, (name, family), colour) in enumerate(boxes):
        at = 2.15 * place
        style = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": colour, "linewidth": 2}
        axes.text(at, 0.3, name, ha="center", va="center", fontsize=13, color=INK, bbox=style)
        axes.text(at, 0.95, when, ha="center", va="center", fontsize=9, color=MUTED)
        words = family.question.rstrip("?").split()
        lines = [" ".join(words[k : k + 4]) for k in range(0, len(words), 4)]
        axes.text(at, -0.3, "\n".join(lines) + "?", ha="center", va="top", fontsize=8.5, color=INK)
        if place:
            arrow = {"arrowstyle": "->", "color": MUTED}
            axes.annotate("", (at - 0.72, 0.3), (at - 1.45, 0.3), arrowprops=arrow)
    save_figure(figure, HERE / "questions.svg")


def walked(trajectory: float, damping: float, fisher: float, steps: int = 40) -> tuple[Any, float]:
    """Train two weights, of which task 1 needs the first alone; return the path of task 2 and S-bar."""
    weights = torch.nn.Parameter(torch.zeros(2))
    optimizer = tmln.TMLN([weights], lr=0.05 * damping, damping=damping, trajectory=trajectory)
    for _ in range(200):
        optimizer.zero_grad()
        ((weights[0] - 1) ** 2).backward()
        optimizer.step()
    optimizer.consolidate([torch.tensor([fisher, 0.0])])
    way = [weights.detach().clone().numpy()]
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * ((weights - torch.tensor([0.0, 1.0])) ** 2).sum()).backward()
        optimizer.step()
        way.append(weights.detach().clone().numpy())
    return np.array(way), float(optimizer.state[weights]["sensitivity"][0])


def shield() -> None:
    """The second task's way: as SGD, under F, under S-bar, under both."""
    cases = {"SGD": (0.0, 0.0), "F": (0.0, 0.2), r"$\gamma\bar S$": (1.0, 0.0), r"F and $\gamma\bar S$": (1.0, 0.2)}
    figure = new_figure(5.6, 3.6)
    axes = figure.subplots()
    first, second = np.meshgrid(np.linspace(-0.15, 1.3, 80), np.linspace(-0.15, 1.15, 80))
    axes.contour(first, second, (first - 1) ** 2, 8, colors="#bbbbbb", linewidths=0.8)
    marks = zip(cases.items(), COLOURS[7:] + COLOURS[1:4], ("o", "s", "^", "D"), strict=False)
    for (name, (trajectory, fisher)), colour, mark in marks:
        way, _ = walked(trajectory, 0.1, fisher)
        axes.plot(*way.T, color=colour, marker=mark, markevery=8, label=name)
    axes.plot(1, 0, "*", color=INK, markersize=14)
    axes.annotate("solution of task 1", (1, 0), (1.03, 0.06), color=INK, fontsize=9)
    axes.plot(0, 1, "*", color=INK, markersize=14)
    axes.annotate("solution of task 2", (0, 1), (0.04, 1.05), color=INK, fontsize=9)
    dress(axes, "weight 1: task 1 needs it", "weight 2: free")
    axes.legend(title="the step divides by lambda and", loc="lower left", framealpha=1, edgecolor="white")
    save_figure(figure, HERE / "shield.svg")


def boundary_notes(folder: Path, result: Result) -> list[dict[str, float]]:
    """What the step found out at each task's end."""
    lines = (folder / result.name / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [note["boundary"] for note in map(json.loads, lines) if "boundary" in note]


def boundaries(found: dict[str, list[Result]], folder: Path) -> None:
    """The slow-down after each task, at three values of gamma."""
    figure = new_figure(6.4, 3.2)
    axes = figure.subplots()
    for colour, value in zip(COLOURS, (1, 10, 100), strict=False):
        notes = boundary_notes(folder, chosen(found["tmln"], "step.trajectory", value)[0])
        for kind, style in (("median", "o-"), ("95th percentile", "s--")):
            values = [note[f"step/slow-down, {kind}"] for note in notes]
            axes.plot(range(1, len(values) + 1), values, style, color=colour, label=f"gamma {value:g}, {kind}")
    axes.set_yscale("log")
    axes.set_xticks(range(1, 6))
    dress(axes, "boundary after task", "weights are slower by a factor of")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    save_figure(figure, HERE / "boundaries.svg")


def chosen(results: Sequence[Result], key: str, value: float) -> list[Result]:
    """The runs in which one setting has this value, and the others their usual ones."""
    wanted = {**USUAL, key: value}

    def of(result: Result, name: str) -> float:
        return float(result.config["lr"] if name == "lr" else result.config["settings"][name])

    return [result for result in results if all(of(result, name) == wanted[name] for name in wanted)]


def choosing(found: dict[str, list[Result]], folder: Path) -> None:
    """Draw ACC and FM over four settings, and below them the diagnostics of the last boundary."""
    figure = new_figure(10.5, 5)
    grid = figure.subplots(2, 4, sharey="row", sharex="col")
    for column, ((key, values), title) in enumerate(zip(GRIDS.items(), TITLES, strict=True)):
        picked = [chosen(found["tmln"], key, value) for value in values]
        x = [value or 0.01 for value in values]  # gamma = 0 at the left end
        for metric, style, colour in (("acc", "o-", COLOURS[0]), ("fm", "s--", COLOURS[1])):
            grid[0][column].plot(
                x,
                [100 * np.mean([r.metrics[metric] for r in runs]) for runs in picked],
                style,
                color=colour,
                label=metric.upper(),
            )
        for kind, style in (("median", "o-"), ("95th percentile", "s--")):
            slow = [
                np.mean([boundary_notes(folder, r)[-1][f"step/slow-down, {kind}"] for r in runs]) for runs in picked
            ]
            grid[1][column].plot(x, slow, style, color=COLOURS[2], label=kind)
        for axes in grid[:, column]:
            axes.set_xscale("log")
            axes.axvline(USUAL[key], color="#cccccc", zorder=0)
        dress(grid[0][column], "", "%" if column == 0 else "")
        dress(grid[1][column], title, "slow-down" if column == 0 else "")
    grid[1][0].set_yscale("log")
    grid[0][0].legend(frameon=False)
    grid[1][0].legend(frameon=False)
    save_figure(figure, HERE / "choosing.svg")


def front(found: dict[str, list[Result]]) -> None:
    """Draw TMLN over gamma beside others at their defaults, and the front."""
    over = [result for value in GRIDS["step.trajectory"] for result in chosen(found["tmln"], "step.trajectory", value)]
    rows = group_rows([*over, *found["er"], *found["tmln+"], *found["joint"]])
    save_figure(pareto_figure([fronts_of([row for row in rows if row.method != "joint"])]), HERE / "front.svg")


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    HERE.mkdir(exist_ok=True)
    make_runs(folder)
    found: dict[str, list[Result]] = {}
    for result in read_results(folder)[0]:
        found.setdefault(result.method, []).append(result)
    usual = {**found, "tmln": chosen(found["tmln"], "lr", USUAL["lr"])}
    forgetting(usual)
    intransigence(usual)
    questions()
    shield()
    boundaries(found, folder)
    choosing(found, folder)
    front(found)


if __name__ == "__main__":
    main()
