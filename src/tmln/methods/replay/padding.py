"""Sequences of different lengths: a padded batch is cut to what its samples hold, and padded anew on the way out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tmln.methods.replay.fields import Kind, Pad, Rows


def lengths_of(padded: Mapping[str, Tensor], pad: Pad) -> Tensor:
    """How long each sample is, of fields ``[n, length, ...]``: to the last place where one of them is not its padding.

    Nothing is lost: what lies behind that place is what padding puts there again. Padding in front is kept.
    """
    first = next(iter(padded.values()))
    held = torch.zeros(first.shape[:2], dtype=torch.bool, device=first.device)
    for name, value in padded.items():
        held |= (value != pad[name]).flatten(2).any(2) if value.dim() > 2 else value != pad[name]
    places = torch.arange(1, held.shape[1] + 1, device=held.device)
    return (held * places).amax(1) if held.numel() else torch.zeros(len(held), dtype=torch.long)


def cut(rows: Mapping[str, Rows], pad: Pad) -> dict[str, Rows]:
    """The rows, with padded fields as lists of sequences; fields of one length are cut at the same places."""
    found = dict(rows)
    alike: dict[int, dict[str, Tensor]] = {}
    for name in pad:
        value = rows[name]
        if isinstance(value, Tensor):
            alike.setdefault(value.shape[1], {})[name] = value
    for together in alike.values():
        lengths = lengths_of(together, pad).tolist()
        for name, value in together.items():
            found[name] = [row[:length] for row, length in zip(value, lengths, strict=True)]
    return found


def padded(rows: list[Tensor], kind: Kind, value: float) -> Tensor:
    """``[n, longest, ...]``."""
    if not rows:
        return torch.empty((0, 0, *kind.shape), dtype=kind.dtype)
    return pad_sequence(rows, batch_first=True, padding_value=value)


def mask_of(rows: list[Tensor]) -> Tensor:
    """1 where a sample is, 0 where padding is: ``[n, longest]``."""
    device = rows[0].device if rows else None
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long, device=device)
    return (torch.arange(int(lengths.max()) if rows else 0, device=device) < lengths[:, None]).long()
