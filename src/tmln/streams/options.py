"""Options of benchmarks: type, range, default and description, for checks, help and documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from tmln.suggest import did_you_mean

RUN_SEED = "run-seed"  # an order that a run replaces by ``seed:N`` with its own seed
LATER: JsonDict = {"later": True}  # options without which run names are the old ones
LOCATION_OPTIONS = ("root", "memory_limit")  # where data are, which is no part of a run's identity

Count: TypeAlias = Annotated[int, Field(ge=1)]
Bytes: TypeAlias = Annotated[int, Field(ge=0)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Held: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Fraction: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
AugmentName: TypeAlias = Literal["auto", "none", "crop-flip", "paper", "shift-flip", "resized-crop"]
_ORDERS = "ascending, seeded, run-seed (each run by its own seed), seed:7"
ClassOrder: TypeAlias = Annotated[str | Sequence[int], Field(title=f"{_ORDERS}, icarl1993 or 3,1,0,2")]
TaskClasses: TypeAlias = Annotated[
    tuple[Annotated[tuple[int | str, ...], Field(min_length=1)], ...],
    Field(min_length=1, title="0,1/2,3,4/5 or a list of lists"),
]
Order: TypeAlias = Annotated[str, Field(pattern=r"^(ascending|seeded|run-seed|seed:.*)$", title=_ORDERS)]


class Options(BaseModel):
    """Options of every benchmark."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tasks: Count | None = None
    """number of tasks; the benchmark's own unless given"""
    per_class: Count | None = None
    """training samples of each class (in each domain), for small machines; all unless given"""
    per_class_test: Count | None = None
    """the same for test samples"""
    blurry: Share = 0.0
    """fraction of each task's training samples that appear in other tasks instead"""
    repeats: Count = 1
    """visits to each task, each with its own part of the task's training samples"""
    validation: Held = Field(default=0.0, json_schema_extra=LATER)
    """fraction of training samples for validation, not trained on; of videos the last"""
    seed: int = 0
    """seed of the stream's draws (orders, permutations, held-out samples); not the seed of a run"""
    root: Path | None = None
    """data root; TMLN_DATA, else the platform's cache folder, unless given"""
    skip_bad: bool = False
    """leave bad files and labels out with a counted warning instead of an error"""
    augment: AugmentName = Field(default="auto", json_schema_extra=LATER)
    """how training images are varied; auto is the benchmark's own"""
    heads: Literal["single", "per-task"] = Field(default="single", json_schema_extra=LATER)
    """one head over all classes, or a head for each task, chosen by identity, also in tests"""
    normalise: bool = Field(default=True, json_schema_extra=LATER)
    """subtract the data set's mean and divide by its deviation; else pixels are from 0 to 1"""


def omit_later_defaults(kind: type[Options], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without options that were added later, where they have their defaults."""

    def is_later_default(name: str) -> bool:
        field = kind.model_fields[name]
        extra = field.json_schema_extra
        return isinstance(extra, dict) and bool(extra.get("later")) and values[name] == field.default

    return {name: value for name, value in values.items() if not is_later_default(name)}


def _read_class(word: object) -> object:
    text = word.strip() if isinstance(word, str) else word
    return int(text) if isinstance(text, str) and text.isdecimal() else text


class SplitOptions(Options):
    """Options of class-incremental benchmarks."""

    class_order: ClassOrder = "ascending"
    """order in which classes arrive"""
    first: Count | None = Field(default=None, json_schema_extra=LATER)
    """number of classes in the first task; the others share the rest equally"""
    task_classes: TaskClasses | None = Field(default=None, json_schema_extra=LATER)
    """classes of each task, by number or name; classes that are not named are left out"""

    @field_validator("task_classes", mode="before")
    @classmethod
    def _split_text(cls, value: object) -> object:
        """Read ``0,1/2,3`` as [[0, 1], [2, 3]]."""
        tasks = value.split("/") if isinstance(value, str) else value
        if not isinstance(tasks, (list, tuple)):
            return value
        words = [task.split(",") if isinstance(task, str) else task for task in tasks]
        if not all(isinstance(task, (list, tuple)) for task in words):
            return value
        return [[_read_class(word) for word in task] for task in words]

    @model_validator(mode="after")
    def _is_one_protocol(self) -> SplitOptions:
        if self.task_classes is None:
            return self
        if self.first is not None or self.class_order != "ascending":
            raise ValueError("task_classes says which classes arrive when: leave out first and class_order")
        if self.tasks not in (None, len(self.task_classes)):
            raise ValueError(f"task_classes has {len(self.task_classes)} tasks, tasks={self.tasks}: leave out tasks")
        return self


class ImageOptions(SplitOptions):
    """Further options for data sets of small images."""

    shrink: Count = Field(default=1, json_schema_extra=LATER)
    """pixels a side that are averaged into one, for small machines: 2 makes 16x16 of 32x32"""


class PictureOptions(SplitOptions):
    """Further options for data sets of image files."""

    size: Count = 128
    """pixels a side that images are read at: the centre is cut and resized"""
    memory_limit: Bytes = 0
    """bytes of images kept in memory; more go to a memory-mapped file, read once for all runs"""


class DomainOptions(Options):
    """Further options for data sets of image files in several domains."""

    test_fraction: Fraction = 0.2
    """fraction of each class in each domain that is held out at random"""
    size: Count = Field(default=64, json_schema_extra=LATER)
    """pixels a side that images are read at: the centre is cut and resized"""
    shrink: Count = Field(default=1, json_schema_extra=LATER)
    """pixels a side that are averaged into one, for small machines: 2 makes 32x32 of 64x64"""
    memory_limit: Bytes = 0
    """bytes of images kept in memory; more go to a memory-mapped file, read once for all runs"""


class Core50Options(Options):
    """Further options for CORe50."""

    session_order: Order = "ascending"
    """order of the training sessions"""
    holdout: Literal["tail", "random"] = "tail"
    """test frames: the last of every video, or random ones, whose neighbours are trained on"""
    holdout_fraction: Fraction = 0.2
    """fraction of frames that is held out"""
    size: Count = 224
    """pixels a side after augmentation"""
    test_resize: Count | None = None
    """shorter side before the centre crop of test frames; by default the crop's own"""
    memory_limit: Bytes = 1 << 30
    """bytes of images kept in memory; more go to a memory-mapped file under the data root"""

    @model_validator(mode="after")
    def _crop_fits(self) -> Core50Options:
        if self.test_resize is not None and self.test_resize < self.size:
            raise ValueError(f"test_resize is at least size={self.size}, not {self.test_resize}")
        return self


class TextOptions(SplitOptions):
    """Further options for data sets of texts."""

    length: Count = 64
    """tokens read of each text; what is beyond them is left out"""
    tokenizer: Path | None = None
    """folder with a tokenizer.json; the one of model=transformers:FOLDER, else of minilm"""


class TextDomainOptions(Options):
    """Further options for texts in several domains."""

    domains: str = "agnews,amazon,dbpedia,yelp"
    """domains, with commas, in any order"""
    order: Annotated[str, Field(title="1 to 6, as in O-LoRA's paper, or names with commas")] = "4"
    """order in which the domains arrive; those of an order that are not asked for are left out"""
    length: Count = 128
    """tokens read of each text; what is beyond them is left out"""
    tokenizer: Path | None = None
    """folder with a tokenizer.json; the one of model=transformers:FOLDER, else of minilm"""


class FolderOptions(SplitOptions):
    """Further options for folders of images."""

    path: Path
    """PATH/task/class/image or PATH/class/image; or PATH/train and PATH/test of these"""
    layout: Literal["auto", "tasks", "domains", "classes"] = "auto"
    """what the sub-folders are; auto follows from whether there are one or two levels of them"""
    test_fraction: Fraction = 0.2
    """fraction of each class in each task that is held out at random, if there is no PATH/test"""
    mode: Literal["L", "RGB"] | None = None
    """colours to convert images to; unless given, all have one mode already"""
    size: Count | None = None
    """pixels a side to fit images to; unless given, all have one size already"""
    augment: AugmentName = "none"
    """how training images are varied"""
    memory_limit: Bytes = 1 << 30
    """bytes of images kept in memory; more go to a memory-mapped file under the data root"""


IN_MEMORY = "memory"  # the path of data that a program gives


class OwnOptions(SplitOptions):
    """Further options for data of your own, from code, files or Hugging Face."""

    path: str
    """module:function, an .npz, a .csv or .parquet of paths, or hf:NAME"""
    input: str | None = None
    """the column of inputs, of data with columns; unless given, the one with a usual name"""
    label: str | None = None
    """the column of labels; unless given, the one with a usual name"""
    layout: Literal["auto", "chw", "hwc"] = "auto"
    """where images have their channels; unless given, it must follow from the sizes"""
    test_fraction: Fraction = 0.2
    """fraction of each class that is held out at random, if there is no test set"""
    size: Count | None = None
    """pixels a side to fit pictures to that a table names; unless given, it follows from them"""
    fingerprint: str = ""
    """of the data, part of a run's identity; taken of the data themselves unless given"""

    @field_validator("path")
    @classmethod
    def _make_absolute(cls, value: str) -> str:
        return str(Path(value).expanduser().resolve()) if is_own_file(value) else value


def is_own_file(path: str) -> bool:
    """Return whether data of one's own are in a file: an ``.npz`` or a table of paths."""
    return path.lower().endswith((".npz", ".csv", ".parquet"))


def is_own_code(path: str) -> bool:
    """Return whether data of one's own come from a function, ``module:function``."""
    named = re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*", path)
    return named is not None and not path.startswith("hf:") and not is_own_file(path)


class Described(NamedTuple):
    """Description of an option: ``blurry``, ``a number >= 0 and <= 1``, ``0.0``, a sentence."""

    name: str
    form: str
    default: str
    about: str


def describe_options(kind: type[Options]) -> Iterator[Described]:
    """Yield a description of each option."""
    for name, field in kind.model_fields.items():
        default = "" if field.is_required() or field.default is None else str(field.default).lower()
        yield Described(name, _form(field.annotation, field), default, field.description or "")


def _form(kind: Any, field: FieldInfo) -> str:
    """Return how a value of this type is written."""
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        return " or ".join(inner)
    if inner and not field.title:  # what is annotated, or the first of a union
        return _form(inner[0], inner[-1] if isinstance(inner[-1], FieldInfo) else field)
    noun = {bool: "true or false", int: "a whole number", float: "a number", Path: "a folder"}.get(kind, "text")
    ends = [
        (sign, getattr(limit, name)) for limit in field.metadata for name, sign in SIGNS.items() if hasattr(limit, name)
    ]
    return field.title or f"{noun} {' and '.join(f'{sign} {end:g}' for sign, end in ends)}".rstrip()


Kind = TypeVar("Kind", bound=Options)


def read_options(name: str, kind: type[Kind], given: Mapping[str, object]) -> Kind:
    """Return options of this class; names, types and ranges are checked, and text is parsed."""
    known = kind.model_fields
    for option in given:
        if option not in known:
            hint = did_you_mean(option, known)
            raise ValueError(f"unknown option {option!r} of {name}{hint} (it takes {', '.join(known)})")
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise ValueError(f"{name}: {first['msg'].removeprefix('Value error, ')}") from None
        wrong = next(option for option in describe_options(kind) if option.name == first["loc"][0])
        raise ValueError(
            f"option {wrong.name!r} of {name} is {wrong.form}, not {first['input']!r}: {wrong.about}"
        ) from None
