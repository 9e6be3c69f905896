"""Describe a state file: classes, tasks, memory, method, slowed weights, accuracy by class.

Of an export, measure the seconds that an input takes.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import tmln
from tmln.deploy.state_file import open_learner
from tmln.learner import Learner
from tmln.learner.export import describe_export, make_stored_example
from tmln.learner.history import measure_accuracies
from tmln.optim import TMLN
from tmln.optim.protection import SLOWED_ABOVE, shields_of
from tmln.printable import one_line

BAR = 20  # characters
RUNS, SECONDS = 30, 1.0  # at most, after one that is not counted


def slowed_shares(learner: Learner) -> dict[str, float]:
    """Return for each layer the share of weights that TMLN slows by more than 10%."""
    optimizer = learner.step.optimizer
    if not isinstance(optimizer, TMLN):
        return {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    moved = [p for p in parameters if p.requires_grad or optimizer.state.get(p)]
    slowed = {
        p: int((shield.slowdown(None) > SLOWED_ABOVE).sum())
        for p, shield in zip(moved, shields_of(optimizer, {}, {}), strict=True)
    }
    layers: dict[str, list[int]] = {}
    for name, p in learner.model.named_parameters():
        if p in slowed:
            counts = layers.setdefault(name.rpartition(".")[0] or name, [0, 0])
            counts[0] += slowed[p]
            counts[1] += p.numel()
    return {name: some / max(1, total) for name, (some, total) in layers.items()}


def describe_inputs(learner: Learner) -> str:
    """Return dtype, shape and preparation of the inputs of an export in a line."""
    about = describe_export(learner)
    given = about["input"]
    if given is None:
        return "unknown, nothing was learned"
    text = f"{given['dtype']} {' x '.join(map(str, given['shape']))}"
    if "pictures" in about:
        text += f" {given['channels']}, pictures {about['pictures']['fit']}, {about['pictures']['resampling']}"
    if "texts" in about:
        return f"{text}, tokens of texts, shorter ones filled with {about['texts']['padding']}"
    done = about["normalisation"]
    if "mean" not in done:
        return f"{text}, prepared by a function of your own"
    size = f", resized to {' x '.join(map(str, done['network_size']))}" if "network_size" in done else ""
    mean, std = (", ".join(f"{value:g}" for value in done[key]) for key in ("mean", "std"))
    return f"{text}; {'pixels / 255, ' * ('scale' in done)}mean {mean}, std {std}{size}"


def count_samples(learner: Learner) -> dict[int, int]:
    """Return the number of samples learned of each class."""
    counts: dict[int, int] = {}
    for note in learner.seen.record.tasks:
        for label, count in note.counts.items():
            counts[label] = counts.get(label, 0) + count
    return counts


def measure_held_accuracy(learner: Learner) -> float | None:
    """Return the share of all held-out samples that is right now; None without any."""
    found = [pair for task in measure_accuracies(learner, learner.seen.record) for pair in task.values()]
    total = sum(count for count, _ in found)
    return sum(count * right for count, right in found) / total if total else None


def describe_state(path: str | Path) -> list[str]:
    """Return the lines of ``tmln inspect``."""
    path = Path(path).expanduser()
    learner = open_learner(path)
    about, record = learner.about, learner.seen.record
    size = "x".join(map(str, about["shape"]))
    weights = sum(p.numel() for p in learner.model.parameters())
    lines = [
        f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, {about['model']} for inputs of {size}, {weights:,} weights",
        f"input: {describe_inputs(learner)}",
        f"method {about.get('method', '?')}: " + ", ".join(f"{f} {p.name}" for f, p in learner.components.items()),
        f"read by tmln {tmln.__version__}",
    ]
    memory = learner.replay.memory
    if memory is not None:
        lines.append(f"memory: {len(memory):,} of {memory.capacity:,} samples")
    held = sum(len(one.y) for one in record.held if one is not None)
    lines += [f"held-out samples: {held:,}", f"tasks that can be undone: {len(learner.seen.previous)}", ""]
    counts = count_samples(learner)
    lines.append(f"{len(counts)} classes, by samples learned:")
    lines += [f"  {learner.name_of(label)}: {count:,}" for label, count in sorted(counts.items())]
    lines += ["", f"{len(record.tasks)} task{'s' * (len(record.tasks) != 1)}:"]
    for note in record.tasks:
        right = "nothing held out" if note.accuracy is None else f"{note.accuracy:.0%} right at its end"
        new = f", new: {', '.join(learner.name_of(label) for label in note.new)}" if note.new else ""
        lines.append(f"  {note.date[:10]}  {note.name}: {sum(note.counts.values()):,} samples, {right}{new}")
    if layers := slowed_shares(learner):
        lines += ["", "weights slowed by more than 10%, by layer:"]
        wide = max(map(len, layers))
        for name, share in layers.items():
            bar = ("#" * round(BAR * share)).ljust(BAR, ".")
            lines.append(f"  {name.ljust(wide)}  {bar} {share:>4.0%}")
    return [one_line(line) for line in lines]


def evaluate_classes(learner: Learner, data: str | Path) -> list[tuple[str, int, float]]:
    """Return for each class in ``data`` its name, the number of samples, and the accuracy."""
    from tmln.learner.task_data import read_test

    samples = read_test(learner, data)
    right = learner.predict_labels(samples) == samples.y
    return [
        (learner.name_of(c), int((mine := samples.y == c).sum()), float(right[mine].to(torch.float32).mean()))
        for c in samples.classes
    ]


def measure_speed(path: Path, learner: Learner) -> float | None:
    """Return the median seconds of one input on one core; None of files that are no programs."""
    x = make_stored_example(learner, 1)
    if path.suffix == ".onnx":
        onnxruntime = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        (name,) = (given.name for given in session.get_inputs())
        array = x.numpy()
        return time_calls(lambda: session.run(None, {name: array}))
    if path.suffix != ".pt2":
        return None
    program = torch.export.load(path).module()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            return time_calls(lambda: program(x))
    finally:
        torch.set_num_threads(before)


def time_calls(call: Callable[[], Any]) -> float:
    """Return the median seconds of a call."""
    call()
    seconds: list[float] = []
    while len(seconds) < RUNS and sum(seconds) < SECONDS:
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return median(seconds)
