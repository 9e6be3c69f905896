"""A network with its own normalisation and input size, from outside this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Colour = tuple[float, float, float]
LARGEST_INPUT = 4096  # pixels a side


class PictureInput(nn.Module):
    """Pictures of any size, gray or RGB, with values between 0 and 1, to inputs of a backbone.

    Args:
        size: pixels a side that pictures are resized to, bilinearly, smoothed where they shrink.
        mean: subtracted from each channel.
        std: each channel is divided by it.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, size: int, mean: Colour, std: Colour) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        if (height, width) != (self.size, self.size):
            shrinks = max(height, width) > self.size
            x = F.interpolate(x, (self.size, self.size), mode="bilinear", antialias=shrinks)
        return (x - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1)  # one gray channel becomes three here


@dataclass(frozen=True)
class InputSpec:
    """Size and normalisation of a network's inputs, as its weights were trained with."""

    size: int
    mean: Colour
    std: Colour

    @classmethod
    def read(cls, values: Mapping[str, Any], what: str) -> InputSpec:
        """Return the specification of plain values, checked; ``what`` names them in an error."""
        try:
            size, mean, std = int(values["size"]), to_colour(values["mean"]), to_colour(values["std"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{what}: not size, mean and std of three channels ({error!r})") from None
        if not 1 <= size <= LARGEST_INPUT or not all(value > 0 for value in std):
            raise ValueError(f"{what}: size {size} and std {std} are not those of pictures")
        return cls(size, mean, std)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as a state file holds them."""
        return {"size": self.size, "mean": list(self.mean), "std": list(self.std)}


def to_colour(values: Any) -> Colour:
    """Return three numbers; one number stands for three equal ones."""
    found = [float(value) for value in (values if isinstance(values, (list, tuple)) else [values])]
    first, second, third = found * 3 if len(found) == 1 else found
    return first, second, third


class PictureModel(nn.Module):
    """Pictures with values between 0 and 1 to logits, by a network with inputs of its own.

    Args:
        network: takes normalised pictures of three channels and one size; returns logits, or an
            object that has them.
        spec: size and normalisation.
        spelled: options by which the same model is built again without the files that it came from.
    """

    def __init__(self, network: nn.Module, spec: InputSpec, spelled: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.inputs = PictureInput(spec.size, spec.mean, spec.std)
        self.network = network
        self.spelled = {**(spelled or {}), "inputs": spec.to_dict()}

    def forward(self, x: Tensor) -> Tensor:
        output = self.network(self.inputs(x))
        logits: Tensor = output if isinstance(output, Tensor) else output.logits
        return logits
