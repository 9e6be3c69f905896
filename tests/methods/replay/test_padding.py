"""Sequences of different lengths: cut to what they hold, padded anew, nothing lost."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tmln.methods.replay.fields import Kind, find_lengths, make_mask, pad_rows, trim_padding

IDS = torch.tensor([[5, 6, 0, 0], [7, 0, 8, 0], [0, 0, 0, 0], [0, 9, 0, 0]])
MASK = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]])


def test_lengths_by_hand() -> None:
    """A zero within a sequence counts, and so does one that the mask keeps; zeros in front are kept."""
    assert find_lengths({"ids": IDS}, {"ids": 0}).tolist() == [2, 3, 0, 2]
    assert find_lengths({"ids": IDS, "mask": MASK}, {"ids": 0, "mask": 0}).tolist() == [2, 4, 0, 2]
    vectors = torch.zeros(2, 3, 2)
    vectors[0, 1, 1] = 4.0
    assert find_lengths({"v": vectors}, {"v": 0.0}).tolist() == [2, 0]
    assert find_lengths({"v": torch.zeros(2, 0)}, {"v": 0}).tolist() == [0, 0]


def test_fields_of_one_length_are_cut_at_the_same_places() -> None:
    labels = torch.tensor([[-100, 1, -100, -100], [2, -100, -100, -100], [-100] * 4, [-100] * 4])
    short = torch.tensor([[1, 2], [3, -1], [-1, -1], [4, 4]])
    pad = {"ids": 0, "labels": -100, "short": -1}
    found = trim_padding({"ids": IDS, "labels": labels, "short": short, "y": torch.arange(4)}, pad)
    assert [row.tolist() for row in found["ids"]] == [[5, 6], [7, 0, 8], [], [0, 9]]
    assert [row.tolist() for row in found["labels"]] == [[-100, 1], [2, -100, -100], [], [-100, -100]]
    assert [row.tolist() for row in found["short"]] == [[1, 2], [3], [], [4, 4]]
    assert torch.equal(torch.as_tensor(found["y"]), torch.arange(4))


def test_a_list_keeps_its_lengths() -> None:
    rows = [torch.tensor([1, 0, 0]), torch.tensor([0])]
    assert trim_padding({"ids": rows}, {"ids": 0})["ids"] is rows


def test_padded_by_hand() -> None:
    kind = Kind(torch.int64, (), ragged=True)
    rows = [torch.tensor([1, 2, 3]), torch.tensor([4]), torch.tensor([], dtype=torch.long)]
    assert pad_rows(rows, kind, -1).tolist() == [[1, 2, 3], [4, -1, -1], [-1, -1, -1]]
    assert make_mask(rows).tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert pad_rows([], Kind(torch.float16, (5,), True), 0).shape == (0, 0, 5)
    assert pad_rows([], Kind(torch.float16, (5,), True), 0).dtype == torch.float16
    assert make_mask([]).shape == (0, 0)
    assert pad_rows([torch.ones(1, 2), torch.ones(2, 2)], Kind(torch.float32, (2,), True), 9)[0].tolist() == [
        [1.0, 1.0],
        [9.0, 9.0],
    ]
    kept = pad_rows([torch.tensor([True]), torch.tensor([True, True])], Kind(torch.bool, (), True), 0)
    assert kept.tolist() == [[True, False], [True, True]]


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    width=st.integers(0, 5),
    count=st.integers(1, 4),
    pads=st.lists(st.integers(-2, 2), min_size=1, max_size=3),
)
def test_nothing_is_lost(data: Any, width: int, count: int, pads: list[int]) -> None:
    """What comes out is what went in, but for padding at the end that no sample needed."""
    values = st.lists(st.integers(-2, 2), min_size=width, max_size=width)
    batch = {
        str(i): torch.tensor(data.draw(st.lists(values, min_size=count, max_size=count)), dtype=torch.long).view(
            count, width
        )
        for i in range(len(pads))
    }
    pad = {str(i): value for i, value in enumerate(pads)}
    again = {
        name: pad_rows(list(rows), Kind(torch.int64, (), True), pad[name])
        for name, rows in trim_padding(batch, pad).items()
    }
    longest = {value.shape[1] for value in again.values()}
    assert len(longest) == 1
    for name, value in batch.items():
        cutting = again[name].shape[1]
        assert torch.equal(again[name], value[:, :cutting])
        assert bool((value[:, cutting:] == pad[name]).all())
    if cutting := longest.pop():
        assert any(bool((value[:, cutting - 1] != pad[name]).any()) for name, value in batch.items())
