"""Batches of any form: taken apart by name, put together as they were, refused by name."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tmln.methods.replay import Reservoir
from tmln.methods.replay.fields import (
    Kind,
    check_kinds,
    find_lengths,
    flatten_batch,
    infer_kinds,
    make_mask,
    pad_rows,
    read_fields,
    rebuild_batch,
    trim_padding,
)

A, B, C = torch.arange(3), torch.ones(3, 2), torch.zeros(3, 1, 4, dtype=torch.uint8)


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@pytest.mark.parametrize(
    ("batch", "form", "names", "back"),
    [
        (A, "x", ["x"], A),
        ((A, B), ("0", "1"), ["0", "1"], (A, B)),
        ([A, B], ["0", "1"], ["0", "1"], [A, B]),
        ({"a": A, "b": B}, {"a": "a", "b": "b"}, ["a", "b"], {"a": A, "b": B}),
        ({"t": {"ids": A}, "b": [B]}, {"t": {"ids": "t.ids"}, "b": ["b.0"]}, ["t.ids", "b.0"], None),
        (({"a": A}, (B, C)), ({"a": "0.a"}, ("1.0", "1.1")), ["0.a", "1.0", "1.1"], None),
        ({3: A}, {3: "3"}, ["3"], {3: A}),
        (OrderedDict(a=A), {"a": "a"}, ["a"], {"a": A}),
        (Pair(A, B), ("0", "1"), ["0", "1"], (A, B)),
    ],
)
def test_by_hand(batch: Any, form: Any, names: list[str], back: Any) -> None:
    found, fields = flatten_batch(batch, {})
    assert (found, list(fields)) == (form, names)
    again = rebuild_batch(found, fields)
    expected = batch if back is None else back
    assert type(again) is type(expected)
    assert str(again) == str(expected)


def test_x_and_y_and_others() -> None:
    assert rebuild_batch(None, {"x": A, "y": B}) == (A, B)
    assert rebuild_batch(None, {"x": A, "y": B, "z": C}) == {"x": A, "y": B, "z": C}


def test_a_list_is_a_field_where_pad_names_it() -> None:
    rows = [torch.ones(2), torch.ones(5)]
    assert flatten_batch({"ids": rows, "y": A}, {"ids": 0}) == ({"ids": "ids", "y": "y"}, {"ids": rows, "y": A})
    assert flatten_batch(rows, {"x": 0}) == ("x", {"x": rows})
    assert flatten_batch({"x": rows}, {"x": 0}) == ({"x": "x"}, {"x": rows})
    assert flatten_batch((rows, A), {"0": 0}) == (("0", "1"), {"0": rows, "1": A})


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.one_of(st.integers(0, 9), st.text("abc", min_size=1, max_size=2))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3),
            st.lists(inner, min_size=1, max_size=3).map(tuple),
            st.dictionaries(keys, inner, min_size=1, max_size=3),
        ),
        max_leaves=8,
    )


@settings(max_examples=100, deadline=None)
@given(tree=trees(st.integers(0, 99).map(torch.tensor)))
def test_every_form_comes_back(tree: Any) -> None:
    form, fields = flatten_batch(tree, {})
    assert str(rebuild_batch(form, fields)) == str(tree)
    assert len(fields) == str(tree).count("tensor(")


def test_a_memory_keeps_fields_by_name() -> None:
    memory = Reservoir(4, keep=["x", "y"])
    memory.add({"x": A, "path": ["a", "b", "c"], "y": B})
    assert {name: value.shape for name, value in memory.sample(2).items()} == {
        "x": (2, *A.shape[1:]),
        "y": (2, *B.shape[1:]),
    }
    memory.add(A, B)  # of other forms all is kept
    assert memory.seen == 6
    with pytest.raises(ValueError, match=r"'y' is to be kept, and the batch has none.*fields: x, path"):
        memory.add({"x": A, "path": ["a", "b", "c"]})


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        ({"a": {"b": A}, "a.b": A}, ValueError, "two fields of the batch are called 'a.b'"),
        ({(1, 2): A}, TypeError, r"cannot have the key \(1, 2\)"),
        ({"id": ["a", "b"]}, TypeError, "field 'id.0' is a str; a memory holds tensors"),
        ({"x": A, "none": None}, TypeError, "field 'none' is a NoneType"),
        ({"x": A, "n": torch.tensor(3)}, ValueError, r"field 'n' has shape \(\): no room for samples"),
        ({"x": A, "b": B[:2]}, ValueError, r"field 'b' has shape \(2, 2\), but there are 3 samples"),
        (
            {"ids": [torch.ones(2), torch.ones(5)]},
            ValueError,
            "'ids.1' has shape .*a list of sequences is named in pad",
        ),
        ({}, ValueError, "no tensor"),
    ],
)
def test_what_is_no_batch(batch: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_fields(flatten_batch(batch, {})[1], {})


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ([torch.ones(2), 3], TypeError, "'ids' is a list of sequences, but number 1 is a int"),
        ([torch.tensor(1)], TypeError, r"number 0 is a tensor of shape \(\)"),
        (torch.ones(3), ValueError, r"'ids' has shape \(3,\): no room for samples and sequences"),
        (7, TypeError, "'ids' is a int"),
        (
            [torch.ones(2), torch.ones(2, dtype=torch.long)],
            ValueError,
            r"'ids' has .* and one, number 1, of torch.int64",
        ),
        ([torch.ones(2), torch.ones(1, 4)], ValueError, r"number 1, of torch.float32 of shape \(any, 4\)"),
        ([torch.ones(2, dtype=torch.uint8)], ValueError, "pad -100 of field 'ids' is no torch.uint8"),
        ([torch.ones(2, dtype=torch.bool)], ValueError, "pad -100 of field 'ids' is no torch.bool"),
    ],
)
def test_what_is_no_field_of_sequences(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        infer_kinds(read_fields({"ids": value}, {"ids": -100})[0], {"ids": -100})


def test_pad_names_fields() -> None:
    with pytest.raises(ValueError, match=r"pad names 'input_id', no field of the batch; did you mean 'input_ids'\?"):
        read_fields({"input_ids": A, "y": A}, {"input_id": 0})


def test_kinds() -> None:
    rows, count = read_fields(
        {"a": np.zeros((3, 2)), "b": C, "ids": [torch.ones(2), torch.ones(1), torch.ones(0)]}, {"ids": 0}
    )
    assert count == 3
    assert infer_kinds(rows, {"ids": 0}) == {
        "a": Kind(torch.float64, (2,)),
        "b": Kind(torch.uint8, (1, 4)),
        "ids": Kind(torch.float32, (), ragged=True),
    }
    assert infer_kinds({"ids": torch.ones(3, 5, 2)}, {"ids": 0.5}) == {"ids": Kind(torch.float32, (2,), ragged=True)}
    assert infer_kinds({"ids": []}, {"ids": 0}) == {}
    assert [str(Kind(torch.int8, shape, r)) for shape, r in (((), False), ((2,), False), ((2,), True), ((), True))] == [
        f"torch.int8 of shape {shape}" for shape in ("()", "(2,)", "(any, 2)", "(any,)")
    ]


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ({"a": Kind(torch.int64, (3,))}, "samples have the fields a, b; got a$"),
        ({"a": Kind(torch.int64, (3,)), "c": Kind(torch.int64, ())}, "fields a, b; got a, c"),
        ({"a": Kind(torch.int64, (4,)), "b": Kind(torch.int64, ())}, r"'a' holds torch.int64 of shape \(3,\); .*pad="),
        ({"a": Kind(torch.int32, (3,)), "b": Kind(torch.int64, ())}, r"got torch.int32 of shape \(3,\)\. Convert it"),
        ({"a": Kind(torch.int64, (3, 1)), "b": Kind(torch.int64, ())}, r"shape \(3, 1\)\. Convert it"),
    ],
)
def test_other_fields_than_stored(got: dict[str, Kind], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_kinds(got, got, {"a": Kind(torch.int64, (3,)), "b": Kind(torch.int64, ())})


# -- sequences of different lengths: cut to what they hold, padded anew, nothing lost


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
