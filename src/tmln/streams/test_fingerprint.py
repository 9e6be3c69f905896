"""What a stream is tested by, as a short text: runs whose texts differ were tested by different samples."""

from __future__ import annotations

import hashlib

from tmln.streams.samples import Mapped, Samples, Source
from tmln.streams.stream import Stream

LOOKED_AT = 4  # images of each class in each test set: a look at all of them would read large sets once more


def exam_of(stream: Stream) -> dict[str, object]:
    """For a run's result: ``tests``, the mark of the test sets, and how many classes each of them asks for."""
    return {"tests": mark_of(stream.tests), "test_classes": [len(task.classes) for task in stream]}


def mark_of(tests: tuple[Samples, ...]) -> str:
    """A sum over classes, so that neither the order of classes nor that of tasks changes it.

    Of each class in each test set it sees how many samples there are, and the first few of them as they are stored:
    what is made of them, the benchmark's options say, and the last bits of a turned image are the machine's.
    """
    total = 0
    for samples in tests:
        for label in samples.classes:
            mine = (samples.y == label).nonzero().squeeze(1)
            images = _as_stored(samples.source).take(samples.rows[mine[:LOOKED_AT]])
            digest = hashlib.sha256(f"{label} {len(mine)} {images.dtype} {tuple(images.shape)}".encode())
            digest.update(images.cpu().contiguous().numpy().tobytes())
            total += int.from_bytes(digest.digest()[:8], "big")
    return f"{total % 2**64:016x}"


def _as_stored(source: Source) -> Source:
    return _as_stored(source.source) if isinstance(source, Mapped) else source
