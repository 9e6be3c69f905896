"""Measure how long an exported program takes for one input on one core."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tmln.learner import Learner
from tmln.learner.exported_model import make_stored_example

RUNS, SECONDS = 30, 1.0  # at most, after one that is not counted


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
