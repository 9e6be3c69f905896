"""A memory for anything: batches come back in their form, with all their fields, from the same draws as ever."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tmln
from tests.methods.replay.oracle import ListReservoir
from tmln.learner.checkpoint import load_file, save_file
from tmln.methods.replay import Reservoir

PAD = {"input_ids": 0, "attention_mask": 0, "labels": -100}


def numbers(start: int, count: int) -> Tensor:
    return torch.arange(start, start + count)


FORMS: dict[str, Any] = {
    "tensor": lambda n: n,
    "tuple": lambda n: (n, n[:, None] * 2),
    "list, as data loaders make": lambda n: [n.float(), n],
    "dict": lambda n: {"image": n[:, None, None].expand(-1, 2, 3).to(torch.uint8), "label": n},
    "nested": lambda n: {"views": (n, [n + 1, {"deep": n.double()}]), "y": n},
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("where", ["RAM", "disk"])
def test_the_form_stays_and_the_draws_are_those_of_x_and_y(name: str, where: str, tmp_path: Path) -> None:
    plain = Reservoir(7, seed=5)
    memory = Reservoir(7, seed=5, path=tmp_path / "memory" if where == "disk" else None)
    for start in range(0, 40, 8):
        n = numbers(start, 8)
        plain.add(n[:, None], n)
        memory.add(FORMS[name](n))
    kept = [y for _, y in plain.batches(4)]
    assert str(list(memory.batches(4))) == str([FORMS[name](n) for n in kept])
    assert str(memory.sample(3)) == str(FORMS[name](plain.sample(3)[1]))
    assert str(memory.sample(0)) == str(FORMS[name](plain.sample(0)[1]))
    again = Reservoir(7)
    again.load_state_dict(memory.state_dict())
    assert str(again.sample(5)) == str(memory.sample(5)) == str(FORMS[name](plain.sample(5)[1]))


def test_x_with_parts_of_its_own() -> None:
    memory = Reservoir(4)
    memory.add((numbers(0, 3), numbers(5, 3)), {"a": numbers(9, 3)})
    ((first, second), targets) = next(memory.batches(9))
    assert [first.tolist(), second.tolist(), targets["a"].tolist()] == [[0, 1, 2], [5, 6, 7], [9, 10, 11]]
    memory = Reservoir(4)
    memory.add([numbers(0, 3)], [1, 2, 3], more=numbers(4, 3))
    assert {key: str(value) for key, value in next(memory.batches(9)).items()} == {
        "x": "[tensor([0, 1, 2])]",
        "y": "tensor([1, 2, 3])",
        "more": "tensor([4, 5, 6])",
    }


def test_further_fields_come_with_batches_and_samples() -> None:
    memory = Reservoir(4)
    memory.add(numbers(0, 3), numbers(5, 3), mask=torch.ones(3, 2))
    for batch in (next(memory.batches(2)), memory.sample(2), memory.draw(2)):
        assert {key: tuple(value.shape) for key, value in batch.items()} == {"x": (2,), "y": (2,), "mask": (2, 2)}
    some = list(memory.batches(2, ("y", "x")))
    assert [[value.tolist() for value in batch] for batch in some] == [[[5, 6], [0, 1]], [[7], [2]]]


# -- sequences ---------------------------------------------------------------------------------------------------------


def texts(start: int, count: int, width: int | None = None) -> dict[str, Any]:
    """Text n has 1 + n % 5 words, all n + 1; padded to a width, or a list."""
    rows = [torch.full((1 + n % 5,), n + 1) for n in range(start, start + count)]
    batch: dict[str, Any] = {"input_ids": rows, "attention_mask": [torch.ones_like(row) for row in rows]}
    batch["labels"] = [torch.where(torch.arange(len(row)) > 0, row, -100) for row in rows]
    if width is not None:
        for name, value in PAD.items():
            full = torch.full((count, width), value)
            for number, row in enumerate(batch[name]):
                full[number, : len(row)] = row
            batch[name] = full
    return {**batch, "weight": torch.arange(start, start + count) / 2}


@pytest.mark.parametrize("where", ["RAM", "disk"])
@pytest.mark.parametrize("widths", [(None, None, None), (5, 9, 6), (None, 7, None)])
def test_sequences_are_padded_to_the_longest_of_the_batch(widths: Any, where: str, tmp_path: Path) -> None:
    oracle = ListReservoir(6, seed=2)
    memory = Reservoir(6, seed=2, pad=PAD, path=tmp_path / "memory" if where == "disk" else None)
    for start, width in zip((0, 10, 20), widths, strict=True):
        memory.add(texts(start, 10, width))
        oracle.add(range(start, start + 10))
    for size in (1, 2, 4, 6):
        found, expected = memory.sample(size), oracle.sample(size)
        longest = max(1 + n % 5 for n in expected)
        for row, n in enumerate(expected):
            alone = texts(n, 1, longest)
            for name in PAD:
                assert found[name].shape == (size, longest)
                assert found[name][row].tolist() == alone[name][0].tolist()
            assert found["weight"][row] == n / 2
    assert [len(batch["weight"]) for batch in memory.batches(4)] == [4, 2]
    assert memory.sample(0)["input_ids"].shape == (0, 0)


def test_a_mask_where_there_is_none() -> None:
    memory = Reservoir(9, pad={"ids": 0}, mask="attention_mask")
    memory.add({"ids": [torch.tensor([0, 5, 0]), torch.tensor([7])], "y": torch.tensor([1, 2])})
    batch = next(memory.batches(2))
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["ids"].tolist() == [[0, 5, 0], [7, 0, 0]]
    pairs = Reservoir(9, pad={"x": 0}, mask="mask")
    pairs.add([torch.tensor([3]), torch.tensor([4, 5])], [0, 1])
    assert {key: value.tolist() for key, value in next(pairs.batches(2)).items()} == {
        "x": [[3, 0], [4, 5]],
        "y": [0, 1],
        "mask": [[1, 0], [1, 1]],
    }


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=5),
    capacity=st.integers(0, 6),
    seed=st.integers(0, 5),
    where=st.sampled_from(["RAM", "disk"]),
)
def test_any_lengths(
    lengths: list[list[int]], capacity: int, seed: int, where: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Against the list: what is kept and drawn, after a save and a load at every batch."""
    oracle, path = ListReservoir(capacity, seed), None
    if where == "disk":
        path = tmp_path_factory.mktemp("memory") / "m"
    memory = Reservoir(capacity, seed, pad={"x": -1}, path=path)
    for batch in lengths:
        rows = [[10 * length + i for i in range(length)] for length in batch]
        memory.add([torch.tensor(row, dtype=torch.long) for row in rows], torch.tensor(batch, dtype=torch.long))
        oracle.add(rows)
        state = memory.state_dict()
        memory = Reservoir(capacity, 77, pad={"x": -1}, path=path)
        memory.load_state_dict(state)
        assert len(memory) == len(oracle.kept)
        if oracle.kept:
            x, y = memory.sample(3)
            expected = oracle.sample(3)
            assert y.tolist() == [len(row) for row in expected]
            width = max(map(len, expected))
            assert x.tolist() == [row + [-1] * (width - len(row)) for row in expected]


def test_a_memory_of_texts_goes_through_a_file(tmp_path: Path) -> None:
    memory = Reservoir(6, seed=2, pad=PAD)
    memory.add(texts(0, 20, 8))
    save_file(tmp_path / "state", memory.state_dict())
    again = Reservoir(6, pad=PAD)
    again.load_state_dict(load_file(tmp_path / "state"))
    for one in (memory, again):
        one.add(texts(20, 9))
    assert str(memory.sample(6)) == str(again.sample(6))
    assert str(memory.state_dict()) == str(again.state_dict())


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["RAM", "disk"])
@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"a": numbers(0, 3)}, "samples have the fields a, b; got a$"),
        ({"a": numbers(0, 3), "b": torch.ones(3, 2), "c": numbers(0, 3)}, "fields a, b; got a, b, c"),
        ({"a": numbers(0, 3), "b": torch.ones(2, 2)}, r"field 'b' has shape \(2, 2\), but there are 3 samples"),
        (
            {"a": numbers(0, 3), "b": torch.ones(3, 2).double()},
            "'b' holds torch.float32 of shape .2,.; got torch.float64",
        ),
        ({"a": numbers(0, 3), "b": torch.ones(3, 4)}, r"got torch.float32 of shape \(4,\)\. For sequences .* pad="),
        ((numbers(0, 3), torch.ones(3, 2)), "fields a, b; got 0, 1"),
        ({"a": numbers(0, 3), "b": "text"}, "'b' is a str"),
    ],
)
def test_a_bad_batch_leaves_the_memory_as_it_was(batch: Any, words: str, where: str, tmp_path: Path) -> None:
    memory = Reservoir(4, path=tmp_path / "memory" if where == "disk" else None)
    memory.add({"a": numbers(0, 9), "b": torch.ones(9, 2)})
    before = copy.deepcopy(memory.state_dict())
    with pytest.raises((ValueError, TypeError), match=words):
        memory.add(batch)
    assert str(memory.state_dict()) == str(before)
    memory.add({"b": torch.ones(3, 2), "a": numbers(0, 3)})
    assert memory.seen == 12


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="mask='m' is of no use without pad"):
        Reservoir(4, mask="m")
    with pytest.raises(ValueError, match="with mask, but without y"):
        Reservoir(4).add(numbers(0, 3), mask=numbers(0, 3))
    with pytest.raises(ValueError, match="a field 'm' of its own"):
        Reservoir(4, pad={"ids": 0}, mask="m").add({"ids": torch.ones(2, 3), "m": torch.ones(2, 3)})
    with pytest.raises(ValueError, match="mask='m' has no place in a tuple"):
        Reservoir(4, pad={"0": 0}, mask="m").add((torch.ones(2, 3),))
    with pytest.raises(ValueError, match="batches of 0 samples"):
        next(Reservoir(4).batches(0))
    memory, other = Reservoir(4, pad={"ids": 0}), Reservoir(4)
    memory.add({"ids": [torch.ones(2)]})
    with pytest.raises(ValueError, match="sequences in ids, this one pads none"):
        other.load_state_dict(memory.state_dict())
    assert len(other) == other.seen == 0


def test_an_empty_list_of_sequences_says_nothing_yet() -> None:
    memory = Reservoir(4, pad={"ids": 0})
    memory.add({"ids": []})
    assert memory.state_dict()["fields"] == {}
    memory.add({"ids": [torch.ones(2, dtype=torch.int16)]})
    memory.add({"ids": []})
    assert memory.seen == 1
    assert memory.sample(1)["ids"].dtype == torch.int16


def test_what_is_stored_is_cut_from_its_batch() -> None:
    """A stored sequence that were a view would keep a whole batch alive, and change with it."""
    memory, ids = Reservoir(2, pad={"x": 0}), torch.ones(2, 1000)
    memory.add(ids)
    ids.zero_()
    assert memory.sample(2).sum() == 2000
    short = Reservoir(1, pad={"x": 0})
    short.add(torch.eye(1, 1000))
    stored = short._storage.read(slice(0, 1))["x"][0]
    assert stored.untyped_storage().nbytes() == 4


# -- what it is for ----------------------------------------------------------------------------------------------------


class Reader(nn.Module):
    """The mean embedding of the words that the mask keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 4), nn.Linear(4, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        found: Tensor = self.head((self.words(input_ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        return found


def test_the_fisher_of_a_memory_of_texts_sees_the_masks() -> None:
    torch.manual_seed(0)
    model, generator = Reader(), torch.Generator().manual_seed(0)
    rows = [
        torch.randint(1, 50, (int(n),), generator=generator) for n in torch.randint(1, 12, (30,), generator=generator)
    ]
    labels = torch.randint(3, (30,), generator=generator)
    one_by_one = tmln.diagonal_fisher(model, [(row[None], y[None]) for row, y in zip(rows, labels, strict=True)])
    memory = Reservoir(30, pad={"input_ids": 0}, mask="attention_mask")
    memory.add({"input_ids": rows, "labels": labels})
    found = tmln.diagonal_fisher(model, memory.batches(8))
    for name in found:
        torch.testing.assert_close(found[name], one_by_one[name])

    pairs = Reservoir(30)  # padded by hand, the mask a further field
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    pairs.add(ids, labels, attention_mask=(ids > 0).long())
    with pytest.raises(TypeError, match="'x'"):  # never silently without the mask
        tmln.diagonal_fisher(model, pairs.batches(8))
    positional = tmln.diagonal_fisher(model, pairs.batches(8, ("x", "attention_mask", "y")))
    without = tmln.diagonal_fisher(model, pairs.batches(8, ("x", "y")))
    for name in found:
        torch.testing.assert_close(positional[name], one_by_one[name])
    assert not torch.allclose(without["head.weight"], found["head.weight"], rtol=0.2)
