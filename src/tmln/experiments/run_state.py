"""The state in a run's checkpoint, and the file of predictions.

A checkpoint's state is a :class:`RunState` under the names of its fields, matrices as float64
tensors, and a ``version``. Version 1 had neither a version nor these names; version 3 has the
counts ``online``, without which a state is still of version 2. Any change of the
fields needs the next version, a function that upgrades the last one, and a frozen checkpoint in
``tests/golden/fixtures``.

``predictions.safetensors`` has the predicted class of each test sample after each task, if kept:
``predicted`` is [tasks, samples], ``true`` and ``task`` are [samples]. The result has its checksum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from tmln.evaluation_counts import CALIBRATION, COUNT, MOST_BYTES, pack_confusion
from tmln.experiments.files import read_regular, write_whole
from tmln.experiments.result import MATRICES, Observations, describe_error, make_schema
from tmln.learner.checkpoint import NewerFormat
from tmln.learner.evaluation_statistics import Liveliness, Tally
from tmln.streams.samples import Samples

VERSION = 3
PREDICTIONS = "predictions.safetensors"
MOST_PREDICTION_BYTES = 1 << 30


@dataclass(frozen=True)
class RunState:
    """The state of a run between two steps."""

    learner: dict[str, Any]
    observations: Observations
    keep: list[str] = field(default_factory=list)
    predicted: list[Tensor] = field(default_factory=list)  # the classes of all test samples, after each task
    log_size: int = 0
    log_crc32: int | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return the state as a checkpoint stores it."""
        observed = vars(self.observations)
        matrices = {key: torch.tensor(observed[key], dtype=torch.float64) for key in MATRICES if observed[key]}
        observed = {**observed, **matrices}
        version = VERSION if observed["online"] else 2
        if version == 2:
            del observed["online"]
        return {"version": version, **vars(self), "observations": observed}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> RunState:
        """Return the state of a checkpoint; raise a ValueError if it is no state of a run."""
        version = plain.get("version", 1)
        if isinstance(version, int) and version > VERSION:
            raise NewerFormat(f"its state has version {version}, this tmln reads up to {VERSION}: upgrade tmln")
        try:
            state = dict(plain) if version in (2, VERSION) else _upgrade_version_1(plain)
            observed = state["observations"]
            rows = {key: observed[key].tolist() for key in MATRICES if isinstance(observed.get(key), Tensor)}
            state["observations"] = {key: list(v) if isinstance(v, tuple) else v for key, v in observed.items()} | rows
            _schema().model_validate(state)
        except ValidationError as error:
            raise ValueError(f"its state {describe_error(error)}") from None
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"it is of another version of tmln ({type(error).__name__}: {error})") from None
        del state["version"]
        return cls(**{**state, "observations": Observations(**state["observations"])})


@cache
def _schema() -> type[BaseModel]:
    observations = make_schema(Observations, float)
    return make_schema(RunState, float, ("learner", "observations"), observations=observations, version=int)


def _upgrade_version_1(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of version 1 under the names of version 2."""
    names = {
        "masked": "masked_accuracy", "validation": "validation_accuracy", "extra": "extra_accuracy", "step": "steps",
        "dormant": "dormant_units", "rank": "feature_rank", "peak": "peak_memory_bytes",
        **{key: key for key in ("accuracy", "baseline", "confusion", "seconds")},
    }  # fmt: skip
    rest = dict(old)
    observed = {new: rest.pop(name) for name, new in names.items()}
    bins, every, within = rest.pop("bins"), rest.pop("every"), rest.pop("within")
    observed["calibration"] = {key: [rows[place] for rows in bins] for place, key in enumerate(CALIBRATION)}
    observed["within"] = start_within(every)
    for row in within:
        observed["within"] = add_within(observed["within"], **row)
    observed["micro_batch"] = rest.pop("pieces") or 0
    return {"version": 2, "observations": observed, "keep": rest.pop("keeps"), **rest}


def start_within(every: int) -> dict[str, Any]:
    """Return the record of tests within tasks before the first one; empty where none are made."""
    return {"every": every, "step": [], "task": [], "accuracy": []} if every else {}


def add_within(within: Mapping[str, Any], **test: Any) -> dict[str, Any]:
    """Return the record with one more test: ``step``, ``task``, ``accuracy`` on the tasks seen."""
    return {"every": within["every"], **{key: [*within[key], value] for key, value in test.items()}}


def add_test(
    observed: Observations, found: Sequence[Mapping[str, float]], tally: Tally, liveliness: Liveliness
) -> Observations:
    """Return the observations with a test of all tasks, after one more task was learned."""
    bins = tally.bins.tolist()
    calibration = {key: [*observed.calibration.get(key, ()), row] for key, row in zip(CALIBRATION, bins, strict=True)}
    confusion = list(observed.confusion)
    if tally.confusion.numel() * COUNT.itemsize <= MOST_BYTES:  # a larger one could not be read again
        complete = len(confusion) == len(observed.accuracy)
        confusion = [*(confusion if complete else ()), pack_confusion(tally.confusion.numpy())]
        if sum(map(len, confusion)) > MOST_BYTES:
            confusion = confusion[-1:]
    dormant, rank = liveliness.dormant, liveliness.rank
    return replace(
        observed,
        accuracy=[*observed.accuracy, [one["accuracy"] for one in found]],
        masked_accuracy=[*observed.masked_accuracy, [one["masked_accuracy"] for one in found]],
        calibration=calibration,
        confusion=confusion,
        dormant_units=[*observed.dormant_units, *([] if dormant is None else [dormant])],
        feature_rank=[*observed.feature_rank, *([] if rank is None else [rank])],
    )


def compact(values: Tensor, many: int) -> Tensor:
    """Return whole numbers below ``many`` in as few bytes as they need."""
    return values.to(torch.uint8 if many <= 2**8 else torch.int16 if many <= 2**15 else torch.int32)


def write_predictions(folder: Path, predicted: Sequence[Tensor], tests: Sequence[Samples]) -> str:
    """Write the file of predictions at once and return its checksum."""
    true = torch.cat([test.y for test in tests])
    task = torch.cat([torch.full((len(test),), index) for index, test in enumerate(tests)])
    tensors = {
        "predicted": torch.stack(list(predicted)) if predicted else torch.zeros(0, len(true), dtype=torch.uint8),
        "true": compact(true, int(true.max()) + 1),
        "task": compact(task, len(tests)),
    }
    data = safetensors.torch.save(tensors)
    write_whole(folder / PREDICTIONS, data)
    return hashlib.sha256(data).hexdigest()


def read_predictions(folder: Path, checksum: str) -> dict[str, Tensor]:
    """Read the predictions of a run; ``checksum`` is its result's ``predictions_sha256``."""
    if not checksum:
        raise ValueError(f"run {folder.name} kept no predictions; `tmln run --keep predictions` does")
    data = read_regular(folder / PREDICTIONS, MOST_PREDICTION_BYTES)
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError(f"{folder / PREDICTIONS} is not what the run wrote: it was damaged, or edited")
    try:
        return safetensors.torch.load(data)
    except SafetensorError as error:
        raise ValueError(f"{folder / PREDICTIONS} cannot be read: {error}") from None
