"""``predictions.safetensors``: what each test sample was taken for after each task, where somebody asked to keep that.

``predicted`` is [tasks, samples], ``true`` and ``task`` are [samples]: a byte each for up to 256 classes. The result
has the file's checksum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from tmln.experiments.files import read_own, write_whole
from tmln.streams.samples import Samples

NAME = "predictions.safetensors"
MOST_BYTES = 1 << 30


def compact(values: Tensor, many: int) -> Tensor:
    """Whole numbers below ``many`` in as few bytes as they need."""
    return values.to(torch.uint8 if many <= 2**8 else torch.int16 if many <= 2**15 else torch.int32)


def write_predictions(folder: Path, predicted: Sequence[Tensor], tests: Sequence[Samples]) -> str:
    """The file appears whole; its checksum is returned."""
    true = torch.cat([test.y for test in tests])
    task = torch.cat([torch.full((len(test),), index) for index, test in enumerate(tests)])
    tensors = {
        "predicted": torch.stack(list(predicted)) if predicted else torch.zeros(0, len(true), dtype=torch.uint8),
        "true": compact(true, int(true.max()) + 1),
        "task": compact(task, len(tests)),
    }
    data = safetensors.torch.save(tensors)
    write_whole(folder / NAME, data)
    return hashlib.sha256(data).hexdigest()


def read_predictions(folder: Path, checksum: str) -> dict[str, Tensor]:
    """Of a run's folder; ``checksum`` is its result's ``predictions_sha256``."""
    if not checksum:
        raise ValueError(f"run {folder.name} kept no predictions; `tmln run --keep predictions` does")
    data = read_own(folder / NAME, MOST_BYTES)
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError(f"{folder / NAME} is not what the run wrote: it was damaged, or edited")
    try:
        return safetensors.torch.load(data)
    except SafetensorError as error:
        raise ValueError(f"{folder / NAME} cannot be read: {error}") from None
