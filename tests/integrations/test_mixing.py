"""Batches of any form, by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tmln.integrations.mixing import mixed, moved, size_of, start_of, text_pads


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


def batch(first: int, count: int) -> dict[str, Any]:
    rows = torch.arange(first, first + count)
    return {"x": [rows, (rows + 10,)], "y": rows + 20}


def test_nested_containers_keep_their_form() -> None:
    both = mixed(batch(0, 2), batch(5, 1))
    assert both["x"][0].tolist() == [0, 1, 5]
    assert both["x"][1][0].tolist() == [10, 11, 15]
    assert both["y"].tolist() == [20, 21, 25]
    assert isinstance(both["x"], list)
    assert isinstance(both["x"][1], tuple)
    pair = mixed(Pair(torch.zeros(1), torch.ones(1)), (torch.ones(2), torch.zeros(2)))
    assert isinstance(pair, Pair)
    assert pair.y.tolist() == [1, 0, 0]
    assert mixed(torch.zeros(2), torch.ones(1)).tolist() == [0, 0, 1]


def test_the_size_and_the_start_of_a_batch() -> None:
    assert size_of(batch(0, 3)) == 3
    assert size_of(()) == 0
    assert start_of(batch(0, 3), 2)["x"][1][0].tolist() == [10, 11]
    assert moved(batch(0, 3), "meta")["x"][0].device.type == "meta"


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
        mixed([torch.zeros(1, 2), torch.zeros(1)], old)
    with pytest.raises(TypeError, match="field 'name' of a batch is a str"):
        mixed({"name": "a"}, {"name": "b"})


def test_labels_of_tokens_are_filled_up_with_what_is_not_scored() -> None:
    ids = torch.ones(2, 3, dtype=torch.long)
    found = text_pads({"input_ids": ids, "labels": ids, "pixel_values": ids}, token=7)
    assert found == {"input_ids": 7, "labels": -100}
    assert text_pads({"pixel_values": ids}, token=7) == {}
