"""``result.json``: what a finished run observed.

Accuracies are fractions, not percent; undefined is null in the file and NaN in Python. Formats: 1
had no checksum; 2 has one over the content; 3 is that of long streams, whose matrices are packed,
as they grow with the square of the tasks (:func:`tmln.evaluation_counts.pack_rows`); 4 may have
``online`` and packed matrices. A file has the lowest format that can hold it. Any other change of
the file needs the next number. A result's configuration must be the one that its folder is named
by.
"""

from __future__ import annotations

import collections.abc
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tmln.evaluation_counts import pack_rows, unpack_rows
from tmln.experiments.files import from_json, read_regular, to_json, write_whole
from tmln.experiments.identity import HEAD, is_named, spell_numbers
from tmln.methods.recipes import BUILT_IN
from tmln.metrics import measure, metric_of
from tmln.printable import one_line, readable
from tmln.streams.benchmarks import split_name

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Oracle = Literal["prefix", "final", "independent", "none"]  # kinds of reference: tmln.experiments.reference_runs
ORACLES: tuple[Oracle, ...] = ("prefix", "final", "independent")  # the first that is available, unless one is named
REFERENCES: dict[str, Oracle] = {  # methods that see more data, or less, than those they are compared with
    **{name: "prefix" for name, recipe in BUILT_IN.items() if recipe.joint},
    **{name: "independent" for name, recipe in BUILT_IN.items() if recipe.independent},
}
FORMAT = 4
USUAL_FORMAT, PACKED_FORMAT, ONLINE_FORMAT = 2, 3, 4
NEEDED = ("benchmark", "method", "seed", "config", "accuracy", "metrics")
MOST_BYTES = 1 << 28  # of a result that is read
LONG = 1 << 18  # numbers of a matrix from which on it is packed: 512 tasks
MATRICES = ("accuracy", "masked_accuracy", "validation_accuracy")
MOST = 1e100  # no number of a run is as large
CHECKSUM = "checksum"
ACCURACIES = (*MATRICES, "baseline", "extra_accuracy", "reference_accuracy")


@dataclass(frozen=True, kw_only=True)
class Observations:
    """The observations of a run so far, a row after each task.

    Checkpoint and result have them under these names.
    """

    accuracy: Sequence[Sequence[float]] = ()
    masked_accuracy: Sequence[Sequence[float]] = ()
    validation_accuracy: Sequence[Sequence[float]] = ()
    baseline: Sequence[float] = ()  # before the first task
    extra_accuracy: Mapping[str, Sequence[float]] = field(default_factory=dict)
    confusion: Sequence[str] = ()  # after each task, over all tests: tmln.evaluation_counts.unpack_confusion
    calibration: Mapping[str, Any] = field(default_factory=dict)  # bins after each task, of the tasks learned by then
    online: Mapping[str, Any] = field(default_factory=dict)  # tests before training: tmln.evaluation_counts.add_online
    within: Mapping[str, Any] = field(default_factory=dict)  # tests every so many steps: every, step, task, accuracy
    dormant_units: Sequence[float] = ()  # their share after each task
    feature_rank: Sequence[float] = ()  # effective, after each task
    steps: int = 0
    seconds: float = math.nan
    peak_memory_bytes: int = 0
    micro_batch: int = 0  # samples that went through the model at a time; 0: a whole batch


@dataclass(frozen=True)
class Result(Observations):
    """The result of a finished run; its metrics are computed when they are read.

    ``said`` are the metrics as they were when it was written. They count where the inputs of a
    metric were not stored, as by earlier versions. ``references`` names the run that each kind of
    reference is, ``reference`` the one that this run is compared with, whose a*_k are
    ``reference_accuracy``. ``changed`` names the settings that differ from the defaults. Both are
    None in earlier results.
    """

    benchmark: str
    method: str
    seed: int
    config: Mapping[str, Any]
    name: str = ""
    train_accuracy: float = math.nan
    class_names: Sequence[str] = ()  # of the head's outputs
    predictions_sha256: str = ""  # of predictions.safetensors, where it was kept
    reference_accuracy: Sequence[float] = ()
    oracle: str = "none"
    reference: str = ""
    references: Mapping[str, str] | None = None
    changed: Sequence[str] | None = None
    effective_rate: float = math.nan
    diverged: str = ""
    parameters: int = 0
    weights_sha256: str = ""
    log_crc32: int = -1  # of log.jsonl when the run finished; -1: it was not kept
    stream: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    commit: str = ""  # of tmln's own source, where it ran from a checkout: tmln.experiments.machine
    said: Mapping[str, float] = field(default_factory=dict)
    checksum: bool = True
    searched: Sequence[str] = ()  # settings that a search chose; in no file of the run

    @classmethod
    def of(cls, plain: Mapping[str, Any], name: str = "") -> Result:
        """Return the result of a checked content (:func:`check_content`).

        Null stands for a default.
        """
        given = {**plain, "name": name, "said": plain.get("metrics"), CHECKSUM: has_checksum(plain)}
        return cls(**{f.name: given[f.name] for f in fields(cls) if given.get(f.name) is not None})

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics by the names of :data:`tmln.metrics.METRICS`."""
        stated = {key: v for key, v in self.said.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        return {**stated, **measure({**vars(self), "effective_rate": self.rate})}

    @property
    def rate(self) -> float:
        """The effective learning rate at the start, momentum included: eta/(lambda (1 - mu))."""
        settings = self.config.get("settings")
        found = settings if isinstance(settings, Mapping) else {}
        momentum = next((v for k, v in found.items() if k.startswith("step.") and k.endswith(".momentum")), 0.0)
        is_share = isinstance(momentum, (int, float)) and not isinstance(momentum, bool) and 0 <= momentum < 1
        return self.effective_rate / (1.0 - momentum) if is_share else self.effective_rate

    @property
    def merged(self) -> bool:
        """Whether all tasks were learned as one: the ``final`` reference, no row of a table."""
        return bool(self.config.get("merged"))

    @property
    def kind(self) -> Oracle | None:
        """Which kind of reference this run is, or None."""
        return "final" if self.merged else REFERENCES.get(self.method)

    def as_reference(self, oracle: Oracle) -> Sequence[float]:
        """Return a*_k for every task; nothing if the run diverged."""
        if self.diverged:
            return ()
        return self.accuracy[-1] if oracle == "final" else [row[k] for k, row in enumerate(self.accuracy)]

    def without_reference(self) -> Result:
        """Return the same result, compared with no reference."""
        kept = {key: v for key, v in self.said.items() if not metric_of(key).against_reference}
        return replace(self, oracle="none", reference="", reference_accuracy=(), said=kept)


class NewerResult(ValueError):
    """A result that a later version of tmln wrote."""


def make_schema(
    of: type, number: Any, needed: Sequence[str] = (), without: Sequence[str] = (), **more: Any
) -> type[BaseModel]:
    """Return the pydantic model of a dataclass's fields: strict types and no other keys.

    Sequences are lists and mappings dictionaries, as in JSON.

    Args:
        of: The dataclass.
        number: The type that stands for each float.
        needed: Keys that must be there; others may be missing or null.
        without: Fields that are left out.
        **more: Types of further keys.
    """
    from pydantic import ConfigDict, create_model

    def convert(hint: Any) -> Any:
        inner = [convert(one) for one in typing.get_args(hint)]
        origin = typing.get_origin(hint)
        if origin is collections.abc.Sequence:
            return list[inner[0]]  # type: ignore[valid-type]
        if origin is collections.abc.Mapping:
            return dict[str, inner[1]]  # type: ignore[valid-type]
        if origin is types.UnionType:
            return typing.Union[tuple(inner)]  # noqa: UP007
        return number if hint is float else hint

    hints = {key: convert(hint) for key, hint in {**typing.get_type_hints(of), **more}.items() if key not in without}
    kinds: dict[str, Any] = {key: (kind, ...) if key in needed else (kind | None, None) for key, kind in hints.items()}
    settings = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, protected_namespaces=())
    found: type[BaseModel] = create_model(f"{of.__name__}Content", __config__=settings, **kinds)
    return found


@cache
def _content_schema() -> type[BaseModel]:
    from pydantic import Field

    number = Annotated[float, Field(gt=-MOST, lt=MOST)] | None
    more = {"format": int, "metrics": Mapping[str, float], "command": str}
    return make_schema(Result, number, NEEDED, ("name", "said", "searched", CHECKSUM), **more)


def describe_error(error: ValidationError) -> str:
    """Return what is wrong with a file's content, in one line."""
    found = error.errors(include_url=False)
    for kind, text in (("missing", "lacks"), ("extra_forbidden", "has the unknown key")):
        keys = [".".join(map(str, one["loc"])) for one in found if one["type"] == kind]
        if keys:
            return one_line(f"{text} {', '.join(keys)[:200]}")
    where = ".".join(map(str, found[0]["loc"]))
    return one_line(f"{where} = {found[0]['input']!r:.40}: {found[0]['msg']}"[:300])


def check_content(content: Mapping[str, Any], name: str) -> None:
    """Raise a ValueError that says how a result's content differs from the schema."""
    from pydantic import ValidationError

    if content.get("format") in (PACKED_FORMAT, ONLINE_FORMAT):  # what is packed is checked when it is unpacked
        content = {key: [] if key in MATRICES and _is_packed(value) else value for key, value in content.items()}
    try:
        _content_schema().model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{name}: {describe_error(error)}") from None


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result file at once, whole; raise a ValueError for what could not be read again."""
    content = {key: value for key, value in result.items() if key not in ("format", CHECKSUM)}
    if not content.get("online"):
        content.pop("online", None)
    content["config"] = spell_numbers(content.get("config"))
    complete = json.loads(to_json(pack_long({"format": USUAL_FORMAT, **content})))
    check_content(complete, path.name)
    _check_name(complete, path.parent.name, path.name)
    complete[CHECKSUM] = checksum_of(complete)
    text = to_json(complete, indent=1) + "\n"
    if len(text) > MOST_BYTES:
        raise ValueError(f"{path.name} would have {len(text):,} bytes, more than the {MOST_BYTES:,} that are read")
    write_whole(path, text)


def pack_long(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with every matrix of more than ``LONG`` numbers packed, and its format."""
    packed: dict[str, Any] = {key: pack_rows(content[key]) for key in MATRICES if _is_long(content.get(key))}
    within = content.get("within") or {}
    if _is_long(within.get("accuracy")):
        packed["within"] = {**within, "accuracy": pack_rows(within["accuracy"])}
    least = ONLINE_FORMAT if content.get("online") else PACKED_FORMAT if packed else content["format"]
    return {**content, **packed, "format": least}


def _is_long(rows: Any) -> bool:
    return isinstance(rows, (list, tuple)) and sum(len(row) for row in rows if isinstance(row, (list, tuple))) > LONG


def _unpack_long(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the packed matrices of a content, unpacked."""
    if content.get("format") not in (PACKED_FORMAT, ONLINE_FORMAT):
        return {}
    found: dict[str, Any] = {key: unpack_rows(content[key]) for key in MATRICES if _is_packed(content.get(key))}
    within = content.get("within")
    if isinstance(within, Mapping) and _is_packed(within.get("accuracy")):
        found["within"] = {**within, "accuracy": unpack_rows(within["accuracy"])}
    return found


def _is_packed(value: Any) -> bool:
    return isinstance(value, Mapping) and "codes" in value


def read_result(path: Path) -> Result:
    """Read a result; a ValueError says what is wrong with it."""
    data = read_regular(path, MOST_BYTES)
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
    return check_result(result, path.parent.name, path.name, halves)


def check_result(content: dict[str, Any], name: str, file: str, halves: bool | None = None) -> Result:
    """Return the result of the run ``name``; raise a ValueError if no run could have written it.

    Args:
        content: The content of the file.
        name: The name of the run.
        file: The name of the file, for errors.
        halves: Whether there may be halves of characters in it; searched for if not known.
    """
    _check_version(content, file)
    check_content(content, file)
    _check_name(content, name, file)
    for key in (*ACCURACIES, "dormant_units", "feature_rank", "metrics"):
        if content.get(key) is None:  # null as a whole is nothing, within it is no number
            content.pop(key, None)
        elif not _is_packed(content[key]):
            content[key] = _nan_for_null(content[key])
    if halves is None:
        halves = "\\ud" in json.dumps(content)  # a look at each string takes longer
    return Result.of({**(readable(content) if halves else content), **_unpack_long(content)}, name)


def _check_version(content: Mapping[str, Any], file: str) -> None:
    version = content.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise NewerResult(f"{file} has format {version}, this tmln reads up to {FORMAT}: upgrade tmln")


def has_checksum(result: Mapping[str, Any]) -> bool:
    """Return whether results of this format have a checksum; format 1 has none."""
    return result.get("format") not in (None, 1)


def checksum_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the content as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _nan_for_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _nan_for_null(item) for key, item in value.items()}
    return [_nan_for_null(item) for item in value] if isinstance(value, list) else math.nan if value is None else value


def _check_name(result: Mapping[str, Any], name: str, file: str) -> None:
    if not is_named(result["config"], name):
        raise ValueError(f"{file} is of another run: its configuration is not the one that {name!r} names")
    options = result["config"].get("benchmark_options")
    given = isinstance(options, Mapping) and options.get("fingerprint")
    if not given and split_name(str(result["config"].get("benchmark")))[0] == "own":  # it would be taken of the data
        raise ValueError(f"{file}: its data have no fingerprint, which every run of one's own data has")
    for key in () if has_checksum(result) else HEAD:
        if result[key] != result["config"].get(key):
            raise ValueError(f"{file}: its {key} is not that of its configuration")
