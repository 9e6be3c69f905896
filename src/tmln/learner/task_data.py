"""Data of a task: samples with the learner's labels, class names, and input transforms.

A state cannot hold ``prepare`` and ``augment``. It holds what they make of one artificial sample of
the data's shape and type (no sample of the data leaves with a state), and a learner that makes
something else of it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tmln.data.images import Fit
from tmln.methods import get_reference_weight
from tmln.models.text_model import find_tokenizer
from tmln.streams.arrays import as_samples, number_labels
from tmln.streams.assemble import choose_validation
from tmln.streams.own_data import OwnSamples, read_own_samples
from tmln.streams.samples import Samples
from tmln.suggest import did_you_mean

if TYPE_CHECKING:
    from tmln.learner.learner import Learner

Prepare = Callable[[Tensor], Tensor]
Augment = Callable[[Tensor, torch.Generator], Tensor]
ClassNames = Sequence[int] | Sequence[str] | None

HOLD_OUT = 0.1  # of each class of a folder, unless said otherwise
KEPT_VALUES = 256  # values, evenly spaced, of what the functions make
MOST_VALUES = 1 << 26  # of a sample, 512 MiB as the integers that the artificial one is made of


@dataclass(frozen=True, eq=False)
class TaskData:
    """Samples of a task, held-out ones, all class names, the task's classes, its name, its fit."""

    samples: Samples
    held: Samples | None
    names: tuple[str, ...]
    classes: tuple[int, ...]
    name: str
    fit: Fit = "crop"


def read_task(
    learner: Learner,
    data: Any,
    classes: ClassNames,
    test: Any,
    hold_out: float | None,
    image_size: int | None,
    name: str | None,
    fit: Fit | None = None,
) -> TaskData:
    """Read data as a task of this learner, which stays as it is."""
    place = Path(data) if isinstance(data, (str, PathLike)) else None
    if hold_out is not None and not 0 <= hold_out < 1:
        raise ValueError(f"hold_out is a share from 0 up to 1, got {hold_out}")
    data = _read_path(learner, data, image_size, fit)
    words = [c for c in classes or () if isinstance(c, str)]
    samples, held, found = _read(learner, data, words)
    numbers = [int(c) for c in classes or () if not isinstance(c, str)]
    if words and numbers:
        raise TypeError(f"classes are names or numbers, not both: {list(classes or ())}")
    found = tuple(words) or found
    if found is None:
        check_numbers(samples, learner.names)
        names, own = learner.names, numbers
    else:
        names = merge_names(learner.names, found, learner.classes)
        samples = match_labels(samples, found, names)
        held = None if held is None else match_labels(held, found, names)
        own = [names.index(word) for word in ([found[c] for c in numbers] or words)]
    if test is not None:
        held = read_test(learner, test, names=names, image_size=image_size)
    share = hold_out if hold_out is not None else HOLD_OUT if place is not None and held is None else 0.0
    classes_of_task = tuple(own) or samples.classes
    if share and held is None:
        chosen = choose_validation(samples.y, share, learner.seed)
        samples, held = (samples.subset((chosen == role).nonzero().squeeze(1)) for role in (False, True))
    record, applied = learner.seen.record, (data.fit if isinstance(data, OwnSamples) else None) or "crop"
    default = place.expanduser().resolve().name if place is not None else f"task {len(record.tasks) + 1}"
    return TaskData(samples, held, names, classes_of_task, record.make_unique(name or default), applied)


def read_test(
    learner: Learner,
    data: Any,
    classes: Sequence[str] | None = None,
    names: Sequence[str] = (),
    image_size: int | None = None,
) -> Samples:
    """Read test data with the learner's labels; a class never learned is an error."""
    samples, apart, found = _read(learner, _read_path(learner, data, image_size), classes)
    samples, found, known = apart or samples, tuple(classes or ()) or found, names or learner.names
    if found is not None and known:
        return match_labels(samples, found, known)
    check_numbers(samples, known)
    return samples


def _read_path(learner: Learner, data: Any, image_size: int | None, fit: Fit | None = None) -> Any:
    """Return the samples at a path, in the learner's shape and fit; other data as they are."""
    if not isinstance(data, (str, PathLike)):
        return data
    known, tokenizer = learner.seen.transforms, find_tokenizer(learner.model)
    if known is None:
        return read_own_samples(Path(data), None, image_size, fit=fit or "pad", tokenizer=tokenizer)
    if fit not in (None, known["fit"]):
        raise ValueError(f"the learner's pictures have fit={known['fit']!r}, not {fit!r}: leave fit out")
    return read_own_samples(Path(data), known["shape"], image_size, fit=known["fit"], tokenizer=tokenizer)


def _read(
    learner: Learner, data: Any, classes: Sequence[str] | None
) -> tuple[Samples, Samples | None, tuple[str, ...] | None]:
    """Return samples, samples for tests only, and class names."""
    if not isinstance(data, OwnSamples):
        data, named = number_labels(data, classes)
        return as_samples(data, get_reference_weight(learner.model).dtype), None, named or find_names(data)
    return data.train, data.test, data.names


def find_names(data: Any) -> tuple[str, ...] | None:
    """Return the names of a data set's ``classes``; a Subset's or a loader's are its data set's."""
    while isinstance(data, DataLoader) or (hasattr(data, "dataset") and not hasattr(data, "classes")):
        data = data.dataset
    found = getattr(data, "classes", None)
    if isinstance(data, Samples) or not isinstance(found, (list, tuple)) or not found:
        return None
    return tuple(found) if all(isinstance(name, str) for name in found) else None


def check_names(names: Sequence[str], known: Sequence[str] = ()) -> None:
    """Raise for a name that is empty, repeated, or differs from another by case only."""
    folded = {name.casefold(): name for name in known}
    seen: set[str] = set()
    for name in names:
        if not name.strip():
            raise ValueError(f"a class has the name {name!r}; give it one that can be read")
        if name in seen:
            raise ValueError(f"the class {name!r} is there twice; name each once")
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            raise ValueError(
                f"the classes {other!r} and {name!r} differ in upper and lower case only; rename one of them"
            )
        seen.add(name)


def merge_names(known: Sequence[str], names: Sequence[str], met: Sequence[int] = ()) -> tuple[str, ...]:
    """Append new names to the known ones; classes without a name get their number.

    >>> merge_names(("owl",), ("ant", "owl"))
    ('owl', 'ant')
    >>> merge_names((), ("ant",), met=(0, 1))
    ('0', '1', 'ant')
    """
    known = tuple(known) or tuple(str(label) for label in range(max(met, default=-1) + 1))
    check_names(names, known)
    return (*known, *(name for name in names if name not in known))


def match_labels(samples: Samples, names: Sequence[str], known: Sequence[str]) -> Samples:
    """Change labels that index ``names`` to labels that index ``known``."""
    highest = int(samples.y.max()) if len(samples) else -1
    if highest >= len(names):
        raise ValueError(f"label {highest}, but only {len(names)} class names: {', '.join(names)}")
    places = {name: known.index(name) for name in dict.fromkeys(known)}  # of merged classes, the first
    for label in samples.classes:
        if names[label] not in places:
            raise ValueError(
                f"the class {names[label]!r} was never learned{did_you_mean(names[label], known)} "
                f"(classes: {', '.join(known) or 'none yet'})"
            )
    table = torch.tensor([places.get(name, -1) for name in names], dtype=torch.int64)
    return replace(samples, y=table[samples.y])


def check_numbers(samples: Samples, known: Sequence[str]) -> None:
    """Raise if labels without names are none of the learner's classes."""
    highest = max(samples.classes, default=-1)
    if known and highest >= len(known):
        raise ValueError(
            f"label {highest}, but the learner has {len(known)} classes by name ({', '.join(known)}); say which "
            "classes the labels are, classes=[...]"
        )


def to_float(x: Tensor) -> Tensor:
    """Return stored bytes as fractions, and floats as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


def skip_augmentation(prepare: Prepare, x: Tensor, generator: torch.Generator) -> Tensor:
    """Prepare training samples as in testing."""
    return prepare(x)


def record_transforms(samples: Samples, prepare: Prepare, augment: Augment, fit: Fit = "crop") -> dict[str, Any]:
    """Record shape, type and fit of a sample, and what transforms make of an artificial one."""
    stored = samples.gather(torch.arange(1))[0]
    if stored[0].numel() > MOST_VALUES:
        raise ValueError(f"a sample of {stored[0].numel():,} values; at most {MOST_VALUES:,} can be learned")
    found = {"shape": list(stored.shape[1:]), "dtype": str(stored.dtype).removeprefix("torch."), "fit": fit}
    return {**found, **_transform_artificial(found, prepare, augment)}


def check_transforms(recorded: dict[str, Any], prepare: Prepare, augment: Augment) -> None:
    """Raise if these functions make other inputs than those the state was trained on."""
    made = _transform_artificial(recorded, prepare, augment)
    for name in ("prepare", "augment"):
        before, now = recorded[name], made[name]
        if before is not None and (now is None or not _is_close(before, now)):
            raise ValueError(
                f"the state was trained with another {name}: of one and the same sample it made "
                f"{_describe(before)}, this learner makes {_describe(now)}; pass the {name}= that it was trained with"
            )


def _transform_artificial(recorded: dict[str, Any], prepare: Prepare, augment: Augment) -> dict[str, Any]:
    shape, dtype = recorded["shape"], getattr(torch, recorded["dtype"])
    ramp = torch.arange(max(1, torch.Size(shape).numel())) * 37 % 256
    sample = ramp.to(dtype) if dtype == torch.uint8 else (ramp / 128 - 1).to(dtype)
    sample = sample[: torch.Size(shape).numel()].reshape(1, *shape)
    augmented = [_sample_values(lambda: augment(sample, torch.Generator().manual_seed(0))) for _ in range(2)]
    steady = augmented[0] is not None and augmented[1] is not None and _is_close(augmented[0], augmented[1])
    # what draws from other random numbers than the generator's or torch's cannot be compared
    return {"prepare": _sample_values(lambda: prepare(sample)), "augment": augmented[0] if steady else None}


def _sample_values(make: Callable[[], Tensor]) -> Tensor | None:
    """Return the number of values and some of them; None where the function fails."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(0)  # torch.manual_seed() takes as long as a step, to seed idle devices
        try:
            made = make().detach().flatten().double().cpu()
        except Exception:
            return None
    places = torch.linspace(0, len(made) - 1, min(KEPT_VALUES, len(made))).long()
    return torch.cat([torch.tensor([len(made)]).double(), made[places]])


def _is_close(a: Tensor, b: Tensor) -> bool:
    """Compare up to rounding, which differs between machines."""
    if a.shape != b.shape or a[0] != b[0]:
        return False
    largest = float(a[1:].abs().max()) if len(a) > 1 else 0.0
    return torch.allclose(a, b, rtol=1e-3, atol=1e-3 * largest)


def _describe(values: Tensor | None) -> str:
    if values is None or len(values) < 2:
        return "nothing"
    return f"{int(values[0])} numbers from {float(values[1:].min()):g} to {float(values[1:].max()):g}"
