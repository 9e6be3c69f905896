"""What is done to stored samples before the model sees them: kept with a state, so that it cannot change unnoticed.

A state cannot hold the functions themselves. It holds what they make of one artificial sample of the data's shape and
type (no sample of the data leaves with a state), and a learner that makes something else of it is told so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tmln.streams.samples import Samples

Prepare = Callable[[Tensor], Tensor]
Augment = Callable[[Tensor, torch.Generator], Tensor]
KEPT = 256  # values, evenly spaced, of what the functions make
MOST_VALUES = 1 << 26  # of a sample, 512 MiB as the integers that the artificial one is made of


def to_float(x: Tensor) -> Tensor:
    """Stored bytes as fractions; floats as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


def not_augmented(prepare: Prepare, x: Tensor, generator: torch.Generator) -> Tensor:
    """As in testing."""
    return prepare(x)


def observe_intake(samples: Samples, prepare: Prepare, augment: Augment) -> dict[str, Any]:
    """The shape and type of a stored sample, and what ``prepare`` and ``augment`` make of an artificial one."""
    stored = samples.gather(torch.arange(1))[0]
    if stored[0].numel() > MOST_VALUES:
        raise ValueError(f"a sample of {stored[0].numel():,} values; at most {MOST_VALUES:,} can be learned")
    intake = {"shape": list(stored.shape[1:]), "dtype": str(stored.dtype).removeprefix("torch.")}
    return {**intake, **_made(intake, prepare, augment)}


def check_intake(intake: dict[str, Any], prepare: Prepare, augment: Augment) -> None:
    """Raise if these functions make other inputs than those the state was trained on."""
    made = _made(intake, prepare, augment)
    for name in ("prepare", "augment"):
        before, now = intake[name], made[name]
        if before is not None and (now is None or not _alike(before, now)):
            raise ValueError(
                f"the state was trained with another {name}: of one and the same sample it made "
                f"{_told(before)}, this learner makes {_told(now)}; pass the {name}= that it was trained with"
            )


def _made(intake: dict[str, Any], prepare: Prepare, augment: Augment) -> dict[str, Any]:
    shape, dtype = intake["shape"], getattr(torch, intake["dtype"])
    ramp = torch.arange(max(1, torch.Size(shape).numel())) * 37 % 256
    sample = ramp.to(dtype) if dtype == torch.uint8 else (ramp / 128 - 1).to(dtype)
    sample = sample[: torch.Size(shape).numel()].reshape(1, *shape)
    augmented = [_values(lambda: augment(sample, torch.Generator().manual_seed(0))) for _ in range(2)]
    steady = augmented[0] is not None and augmented[1] is not None and _alike(augmented[0], augmented[1])
    # what draws from other random numbers than the generator's or torch's cannot be compared
    return {"prepare": _values(lambda: prepare(sample)), "augment": augmented[0] if steady else None}


def _values(make: Callable[[], Tensor]) -> Tensor | None:
    """Some of the values; None where the function refuses the artificial sample."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(0)  # torch.manual_seed() takes as long as a step, for devices without a say
        try:
            made = make().detach().flatten().double().cpu()
        except Exception:
            return None
    places = torch.linspace(0, len(made) - 1, min(KEPT, len(made))).long()
    return torch.cat([torch.tensor([len(made)]).double(), made[places]])  # the first is how many there were


def _alike(a: Tensor, b: Tensor) -> bool:
    """But for rounding, which differs between machines."""
    if a.shape != b.shape or a[0] != b[0]:
        return False
    largest = float(a[1:].abs().max()) if len(a) > 1 else 0.0
    return torch.allclose(a, b, rtol=1e-3, atol=1e-3 * largest)


def _told(values: Tensor | None) -> str:
    if values is None or len(values) < 2:
        return "nothing"
    return f"{int(values[0])} numbers from {float(values[1:].min()):g} to {float(values[1:].max()):g}"
