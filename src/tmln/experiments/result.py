"""``result.json``: what a finished run observed. Fractions, not percent; what is undefined is null there, NaN here.

From format 2 on it carries a checksum of all that it says; format 3 is that of streams so long that matrices, which
grow with the square of the tasks, are packed (:func:`tmln.evaluation_counts.pack_rows`). Whatever the format, its
configuration must be the one that its folder is named by: another run's result, or a damaged one, is rejected.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tmln.evaluation_counts import pack_rows, unpack_rows
from tmln.experiments.files import from_json, read_own, to_json, write_whole
from tmln.experiments.identity import HEAD, is_named, spelled
from tmln.methods.recipes import RECIPES
from tmln.metrics import measure, metric_of
from tmln.printable import readable

Oracle = Literal[
    "prefix", "final", "independent", "none"
]  # kinds of reference of intransigence: tmln.experiments.reference_runs
ORACLES: tuple[Oracle, ...] = ("prefix", "final", "independent")  # the first that is there, unless one is named
REFERENCES: dict[str, Oracle] = {  # methods that see more data, or less, than those they are held against
    **{name: "prefix" for name, recipe in RECIPES.items() if recipe.joint},
    **{name: "independent" for name, recipe in RECIPES.items() if recipe.independent},
}
FORMAT = 3
USUAL_FORMAT, PACKED_FORMAT = 2, 3  # the second: long matrices are packed
NEEDED = ("benchmark", "method", "seed", "config", "accuracy", "metrics")
MOST_BYTES = 1 << 28  # of a result that is read
LONG = 1 << 18  # numbers of a matrix from which on it is packed: 512 tasks
MATRICES = ("accuracy", "masked_accuracy", "validation_accuracy")
MOST = 1e100  # no number of a run is as large
CHECKSUM = "checksum"
ACCURACIES = (
    "accuracy", "masked_accuracy", "validation_accuracy", "baseline", "extra_accuracy", "reference_accuracy"
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What a finished run observed; its metrics are computed when they are asked for.

    ``said`` are the metrics as they were when it was written. They count where what a metric needs was not stored, as
    by earlier versions. ``references`` names the run that each kind of reference is, ``reference`` the one that the run
    was held against, whose a*_k are ``reference_accuracy``. ``changed`` names the settings that were not the defaults.
    Both are None in results of earlier versions.
    """

    benchmark: str
    method: str
    seed: int
    config: Mapping[str, Any]
    accuracy: Sequence[Sequence[float]] = ()
    name: str = ""
    masked_accuracy: Sequence[Sequence[float]] = ()
    validation_accuracy: Sequence[Sequence[float]] = ()
    baseline: Sequence[float] = ()
    extra_accuracy: Mapping[str, Sequence[float]] = field(default_factory=dict)
    train_accuracy: float = math.nan
    class_names: Sequence[str] = ()  # of the head's outputs
    confusion: Sequence[str] = ()  # after each task, over all tests: tmln.evaluation_counts.unpack_confusion
    calibration: Mapping[str, Any] = field(default_factory=dict)  # bins after each task, of the tasks learned by then
    within: Mapping[str, Any] = field(default_factory=dict)  # tests every so many steps: every, step, task, accuracy
    dormant_units: Sequence[float] = ()  # their share after each task
    feature_rank: Sequence[float] = ()  # effective, after each task
    predictions_sha256: str = ""  # of predictions.safetensors, where it was kept
    reference_accuracy: Sequence[float] = ()
    oracle: str = "none"
    reference: str = ""
    references: Mapping[str, str] | None = None
    changed: Sequence[str] | None = None
    effective_rate: float = math.nan
    diverged: str = ""
    steps: int = 0
    seconds: float = math.nan
    parameters: int = 0
    peak_memory_bytes: int = 0
    micro_batch: int = 0  # samples that went through the model at a time; 0: a batch whole
    weights_sha256: str = ""
    log_crc32: int = -1  # of log.jsonl when the run finished; -1: it was not kept
    stream: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""  # of tmln's own source, where it ran from a checkout: tmln.experiments.commit
    said: Mapping[str, float] = field(default_factory=dict)
    checksum: bool = True

    @classmethod
    def of(cls, plain: Mapping[str, Any], name: str = "") -> Result:
        """From the values of a file; what is of another kind than it should be is not there."""
        given = {**plain, "name": name, "said": plain.get("metrics"), CHECKSUM: has_checksum(plain)}
        known = {f.name: _like(_default(f), given[f.name]) for f in fields(cls) if f.name in given}
        return cls(**known)

    @cached_property
    def metrics(self) -> dict[str, float]:
        """By the names of :data:`tmln.metrics.METRICS`."""
        return {**{key: value for key, value in self.said.items() if _is_number(value)}, **measure(vars(self))}

    @property
    def merged(self) -> bool:
        """Of all tasks as one: the ``final`` reference, which is no row of a table."""
        return bool(self.config.get("merged"))

    @property
    def kind(self) -> Oracle | None:
        """Which reference this run is, if it is one."""
        return "final" if self.merged else REFERENCES.get(self.method)

    def as_reference(self, oracle: Oracle) -> Sequence[float]:
        """a*_k for every task; nothing if it diverged."""
        if self.diverged:
            return ()
        return self.accuracy[-1] if oracle == "final" else [row[k] for k, row in enumerate(self.accuracy)]

    def without_reference(self) -> Result:
        """The same, held against nothing."""
        kept = {key: v for key, v in self.said.items() if not metric_of(key).against_reference}
        return replace(self, oracle="none", reference="", reference_accuracy=(), said=kept)


def _default(of: Any) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()


def _like(default: Any, value: Any) -> Any:
    """The value, if it is of the default's kind; what has no default was checked."""
    if default is MISSING:
        return value
    if default is None:
        return value if isinstance(value, (list, Mapping)) else None
    if isinstance(default, str):
        return str(value) if value else default
    if _is_number(default):
        return value if _is_number(value) else default
    wanted = list if isinstance(default, tuple) else type(default)
    return value if isinstance(value, wanted) else default


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class NewerResult(ValueError):
    """Written by a later version of tmln."""


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """The file appears whole; what could not be read again is not written."""
    content = {key: value for key, value in result.items() if key not in ("format", CHECKSUM)}
    complete = pack_long({"format": USUAL_FORMAT, **content})
    _check(complete, path.name)
    complete["config"] = spelled(complete["config"])
    _check_name(complete, path.parent.name, path.name)
    complete[CHECKSUM] = checksum_of(json.loads(to_json(complete)))
    text = to_json(complete, indent=1) + "\n"
    if len(text) > MOST_BYTES:
        raise ValueError(f"{path.name} would have {len(text):,} bytes, more than the {MOST_BYTES:,} that are read")
    write_whole(path, text)


def pack_long(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result's content with every matrix of more than ``LONG`` numbers packed, in the format that has that."""
    packed: dict[str, Any] = {key: pack_rows(content[key]) for key in MATRICES if _is_long(content.get(key))}
    within = content.get("within") or {}
    if _is_long(within.get("accuracy")):
        packed["within"] = {**within, "accuracy": pack_rows(within["accuracy"])}
    return {**content, **packed, "format": PACKED_FORMAT if packed else content["format"]}


def _is_long(rows: Any) -> bool:
    return isinstance(rows, (list, tuple)) and sum(len(row) for row in rows if isinstance(row, (list, tuple))) > LONG


def _unpack_long(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the matrices that are packed in a result's content, unpacked."""
    if content.get("format") != PACKED_FORMAT:
        return {}
    found: dict[str, Any] = {key: unpack_rows(content[key]) for key in MATRICES if _is_packed(content.get(key))}
    within = content.get("within")
    if isinstance(within, Mapping) and _is_packed(within.get("accuracy")):
        found["within"] = {**within, "accuracy": unpack_rows(within["accuracy"])}
    return found


def _is_packed(value: Any) -> bool:
    return isinstance(value, Mapping) and "codes" in value


def read_result(path: Path) -> Result:
    """The result; a ValueError says what is wrong with it."""
    data = read_own(path, MOST_BYTES)
    try:
        result = from_json(data)
    except ValueError:
        raise ValueError(f"{path.name} is not JSON") from None
    if not isinstance(result, dict):
        raise ValueError(f"{path.name} holds no result")
    _check_version(result, path.name)
    version = result.get("format")
    if (CHECKSUM in result or version not in (None, 1)) and result.pop(CHECKSUM, None) != checksum_of(result):
        raise ValueError(f"{path.name} does not match its checksum: it was damaged, or edited")
    halves = b"\\ud" in data.lower() or b"\0" in data  # the second: of an encoding that is wider than a byte
    return believed(result, path.parent.name, path.name, halves)


def believed(content: dict[str, Any], name: str, file: str, halves: bool | None = None) -> Result:
    """The result of the run ``name`` that ``file`` tells of; a ValueError if it says what no run could have said.

    ``halves``: whether there may be halves of characters in it; looked for where that is not known.
    """
    _check_version(content, file)
    _check(content, file)
    _check_name(content, name, file)
    for key in (*ACCURACIES, "dormant_units", "feature_rank", "metrics"):
        if key in content and not _is_packed(content[key]):
            content[key] = _numbers(content[key])
    if halves is None:
        halves = "\\ud" in json.dumps(content)  # a look at each string takes longer
    return Result.of({**(readable(content) if halves else content), **_unpack_long(content)}, name)


def _check_version(content: Mapping[str, Any], file: str) -> None:
    version = content.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise NewerResult(f"{file} has format {version}, this tmln reads up to {FORMAT}: upgrade tmln")


def has_checksum(result: Mapping[str, Any]) -> bool:
    """Results of format 1, from earlier versions, have none: they are believed as they are."""
    return result.get("format") not in (None, 1)


def checksum_of(content: Mapping[str, Any]) -> str:
    """SHA-256 over JSON in one order and one spelling."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _numbers(value: Any) -> Any:
    """NaN for null."""
    if isinstance(value, Mapping):
        return {key: _numbers(item) for key, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else math.nan if value is None else value


def _check(result: Mapping[str, Any], name: str) -> None:
    if result.get("format") == PACKED_FORMAT:  # what is packed is checked when it is unpacked
        result = {key: [] if key in MATRICES and _is_packed(value) else value for key, value in result.items()}
    missing = [key for key in NEEDED if key not in result]
    if missing:
        raise ValueError(f"{name} lacks {', '.join(missing)}")
    for key in ("config", "metrics"):
        if not isinstance(result[key], Mapping):
            raise ValueError(f"{name}: {key} is no mapping but {reprlib.repr(result[key])}")
    if not _is_matrix(result["accuracy"]):
        raise ValueError(f"{name}: accuracy is no list of rows of numbers but {reprlib.repr(result['accuracy'])}")
    for key in (*ACCURACIES[1:], "dormant_units", "feature_rank"):
        found = result.get(key)
        lists = list(found.values()) if isinstance(found, Mapping) else [found or []]
        if not all(isinstance(numbers, (list, tuple)) and _of_numbers(numbers) for numbers in lists):
            raise ValueError(f"{name}: {key} has other things than numbers in it: {reprlib.repr(result[key])}")
    references = result.get("references")
    if references is not None and not (isinstance(references, Mapping) and all(map(_is_text, references.values()))):
        raise ValueError(f"{name}: references are no names but {reprlib.repr(references)}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _of_numbers(value: Any) -> bool:
    """Numbers that can be squared, nothing, or lists of them."""
    if isinstance(value, (list, tuple)):
        return all(map(_of_numbers, value))
    return value is None or (isinstance(value, (int, float)) and not abs(value) >= MOST)


def _is_matrix(value: Any) -> bool:
    rows = value if isinstance(value, list) else [None]
    numbers = (int, float, type(None))
    return all(isinstance(row, list) and all(isinstance(item, numbers) for item in row) for row in rows)


def _check_name(result: Mapping[str, Any], name: str, file: str) -> None:
    if not is_named(result["config"], name):
        raise ValueError(f"{file} is of another run: its configuration is not the one that {name!r} names")
    for key in () if has_checksum(result) else HEAD:
        if result[key] != result["config"].get(key):
            raise ValueError(f"{file}: its {key} is not that of its configuration")
