"""Batches of any form, by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tmln.integrations.memory import find_text_pads, get_batch_size, join_batches, move_batch, take_first


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


def batch(first: int, count: int) -> dict[str, Any]:
    rows = torch.arange(first, first + count)
    return {"x": [rows, (rows + 10,)], "y": rows + 20}


def test_nested_containers_keep_their_form() -> None:
    both = join_batches(batch(0, 2), batch(5, 1))
    assert both["x"][0].tolist() == [0, 1, 5]
    assert both["x"][1][0].tolist() == [10, 11, 15]
    assert both["y"].tolist() == [20, 21, 25]
    assert isinstance(both["x"], list)
    assert isinstance(both["x"][1], tuple)
    pair = join_batches(Pair(torch.zeros(1), torch.ones(1)), (torch.ones(2), torch.zeros(2)))
    assert isinstance(pair, Pair)
    assert pair.y.tolist() == [1, 0, 0]
    assert join_batches(torch.zeros(2), torch.ones(1)).tolist() == [0, 0, 1]


def test_the_size_and_the_start_of_a_batch() -> None:
    assert get_batch_size(batch(0, 3)) == 3
    assert get_batch_size(()) == 0
    assert take_first(batch(0, 3), 2)["x"][1][0].tolist() == [10, 11]
    assert move_batch(batch(0, 3), "meta")["x"][0].device.type == "meta"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ([torch.zeros(1)], "a list of 2"),
        ([torch.zeros(1, 3), torch.zeros(1)], r"field '0' .* shape \(3,\) .* name it in pad="),
        ([torch.zeros(1, 2).double(), torch.zeros(1)], "torch.float64"),
        ({"x": torch.zeros(1)}, "another form"),
    ],
)
def test_other_forms_are_refused(old: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        join_batches([torch.zeros(1, 2), torch.zeros(1)], old)
    with pytest.raises(TypeError, match="field 'name' of a batch is a str"):
        join_batches({"name": "a"}, {"name": "b"})


def test_labels_of_tokens_are_filled_up_with_what_is_not_scored() -> None:
    ids = torch.ones(2, 3, dtype=torch.long)
    found = find_text_pads({"input_ids": ids, "labels": ids, "pixel_values": ids}, token=7)
    assert found == {"input_ids": 7, "labels": -100}
    assert find_text_pads({"pixel_values": ids}, token=7) == {}
