"""Tiny-ImageNet in its own layout and in the one with a sorted validation set."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.data import made
from tmln.data import BadData, BadDataWarning, DataError
from tmln.data.tiny_imagenet import list_files, read_names
from tmln.streams import make_stream


def test_labels_follow_sorted_identifiers(tiny_root: Path) -> None:
    stream = make_stream("split-tiny-imagenet", root=tiny_root)
    assert [len(task.classes) for task in stream] == [20] * 10
    assert stream.class_names[7] == "thing n00000007"
    assert stream.shape == (3, 64, 64)
    x, y = stream[3].test.gather(torch.tensor([5]))
    assert y.tolist() == [65]
    assert (x[0, :, 30, 30].int() - torch.tensor([65, 0, 190])).abs().max() <= 2  # JPEG
    grey, _ = stream[0].train.gather(torch.tensor([0]))
    assert grey[0, :, 0, 0].tolist() == [77, 77, 77]


def test_a_validation_set_sorted_into_classes(tmp_path: Path) -> None:
    folder = made.make_tiny_imagenet(tmp_path, classes=3)
    names = list(read_names(folder))
    before = list_files(folder, names, BadData("tiny", False))
    for number, name in enumerate(names):
        (folder / "val" / name).mkdir()
        (folder / "val" / "images" / f"val_{number}.JPEG").rename(folder / "val" / name / f"val_{number}.JPEG")
    after = list_files(folder, names, BadData("tiny", False))
    assert sorted((file.path.name, file.label, file.test) for file in before) == sorted(
        (file.path.name, file.label, file.test) for file in after
    )
    assert sum(file.test for file in after) == 3


def test_bad_annotations(tmp_path: Path) -> None:
    notes = made.make_tiny_imagenet(tmp_path, classes=10) / "val" / "val_annotations.txt"
    with open(notes, "a", encoding="utf-8") as file:
        file.write("val_0.JPEG\tn99999999\t0\n")
    with pytest.raises(DataError, match=r"val_annotations.txt: line 11 names no image of a known class"):
        make_stream("split-tiny-imagenet", root=tmp_path)
    with pytest.warns(BadDataWarning, match="left out 1 bad"):
        assert len(make_stream("split-tiny-imagenet", root=tmp_path, skip_bad=True)) == 10


def test_classes_named_twice(tmp_path: Path) -> None:
    (tmp_path / "wnids.txt").write_text("n1\nn2\nn1\n")
    with pytest.raises(DataError, match="names no class, or one twice"):
        read_names(tmp_path)
