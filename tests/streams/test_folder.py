"""folder:PATH in all its layouts, and everything that can be wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.data import made
from tmln.data import BadDataWarning, DataError
from tmln.data.folder import natural_key
from tmln.experiments.build import build
from tmln.experiments.config import RunConfig, run_id
from tmln.streams import make_stream

CLASSES = {"": {"ant": 10, "bee": 10, "cat": 5, "dog": 10}}


def test_one_folder_of_classes(tmp_path: Path) -> None:
    made.make_folder(tmp_path / "p", CLASSES)
    stream = make_stream(f"folder:{tmp_path / 'p'}")
    assert stream.class_names == ("ant", "bee", "cat", "dog")
    assert [task.classes for task in stream] == [(0, 1), (2, 3)]
    assert [len(task.train) for task in stream] == [16, 12]
    assert [len(task.test) for task in stream] == [4, 3]  # a fifth of each class
    assert stream.shape == (3, 10, 10)
    uneven = make_stream(f"folder:{tmp_path / 'p'}", tasks=3, class_order="3,0,1,2")
    assert [task.classes for task in uneven] == [(0, 3), (1,), (2,)]


def test_held_out_images_are_not_trained_on(tmp_path: Path) -> None:
    made.make_folder(tmp_path, CLASSES)
    stream = make_stream(f"folder:{tmp_path}", test_fraction=0.5, seed=1)
    for task in stream:
        train = {tuple(pixel) for pixel in task.train.x[:, :, 0, 0].tolist()}
        test = {tuple(pixel) for pixel in task.test.x[:, :, 0, 0].tolist()}
        assert not train & test
        assert len(train) + len(test) == len(task.train) + len(task.test)


def test_one_folder_a_task(tmp_path: Path) -> None:
    made.make_folder(tmp_path, {"task 10": {"a": 4, "b": 4}, "task 2": {"c": 4}, "task 1": {"a": 4, "d": 4}})
    stream = make_stream(f"folder:{tmp_path}")
    assert [(task.name, task.classes, task.domain) for task in stream] == [
        ("task 1", (0, 3), None),
        ("task 2", (2,), None),
        ("task 10", (0, 1), None),
    ]
    assert stream.metadata["scenario"] == "class-incremental"


def test_folders_with_the_same_classes_are_domains(tmp_path: Path) -> None:
    made.make_folder(tmp_path, {"night": {"a": 4, "b": 4}, "day": {"a": 4, "b": 4}})
    assert [task.domain for task in make_stream(f"folder:{tmp_path}")] == ["day", "night"]
    assert [task.domain for task in make_stream(f"folder:{tmp_path}", layout="tasks")] == [None, None]
    assert [task.domain for task in make_stream("folder", path=tmp_path, layout="domains")] == [
        "day",
        "night",
    ]


def test_train_and_test_folders(tmp_path: Path) -> None:
    made.make_folder(tmp_path / "train", {"": {"a": 3, "b": 3}})
    made.make_folder(tmp_path / "test", {"": {"a": 2, "b": 1}}, test=True)
    stream = make_stream(f"folder:{tmp_path}", tasks=2)
    assert [(len(task.train), len(task.test)) for task in stream] == [(3, 2), (3, 1)]
    assert stream[0].test.x[:, 1, 0, 0].tolist() == [100, 100]


def test_natural_order() -> None:
    names = ["b", "task 10", "task 2", "2", "10", "a1b2", "a1b10", "²"]
    assert sorted(names, key=natural_key)[:2] == ["2", "10"]
    assert sorted(names, key=natural_key).index("task 2") < sorted(names, key=natural_key).index("task 10")
    assert sorted(names, key=natural_key).index("a1b2") < sorted(names, key=natural_key).index("a1b10")


BAD = {
    "notes.txt": (b"hello", "not an image"),
    "half.png": (made.encoded((1, 2, 3), (10, 10))[:-20], "cannot be read"),
    "big.png": (made.encoded((1, 2, 3), (11, 10)), "10x11x3 pixels and channels, others 10x10x3"),
    "grey.png": (made.encoded(7, (10, 10)), "10x10x1 pixels and channels, others 10x10x3"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_images(name: str, tmp_path: Path) -> None:
    made.make_folder(tmp_path, CLASSES)
    data, message = BAD[name]
    (tmp_path / "bee" / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        make_stream(f"folder:{tmp_path}")
    assert str(tmp_path / "bee" / name) in str(caught.value)
    with pytest.warns(BadDataWarning, match=r"left out 1 bad item.*" + name):
        stream = make_stream(f"folder:{tmp_path}", skip_bad=True)
    assert len(stream[0].train) + len(stream[0].test) == 20


def test_size_and_mode_make_images_equal(tmp_path: Path) -> None:
    made.make_folder(tmp_path, CLASSES)
    for name in ("big.png", "grey.png"):
        (tmp_path / "bee" / name).write_bytes(BAD[name][0])
    stream = make_stream(f"folder:{tmp_path}", size=8, mode="RGB")
    assert stream.shape == (3, 8, 8)
    assert len(stream[0].train) + len(stream[0].test) == 22
    assert make_stream(f"folder:{tmp_path}", size=8, mode="L").shape == (1, 8, 8)


def test_empty_class(tmp_path: Path) -> None:
    made.make_folder(tmp_path, {"": {"ant": 4, "bee": 4, "cat": 0}})
    with pytest.raises(DataError, match="cat: an empty class"):
        make_stream(f"folder:{tmp_path}")
    with pytest.warns(BadDataWarning, match="left out 1 bad item"):
        assert make_stream(f"folder:{tmp_path}", skip_bad=True).class_names == ("ant", "bee")


def test_a_class_missing_from_the_test_set(tmp_path: Path) -> None:
    made.make_folder(tmp_path / "train", {"mon": {"a": 3, "b": 3}, "tue": {"a": 3, "b": 3}})
    made.make_folder(tmp_path / "test", {"mon": {"a": 2, "b": 1}, "tue": {"a": 1}})
    with pytest.raises(DataError, match="tue, class 'b': missing from the task's test set"):
        make_stream(f"folder:{tmp_path}")
    with pytest.warns(BadDataWarning):
        stream = make_stream(f"folder:{tmp_path}", skip_bad=True)
    assert [task.classes for task in stream] == [(0, 1), (0,)]


def test_one_image_cannot_both_train_and_test(tmp_path: Path) -> None:
    made.make_folder(tmp_path, {"": {"ant": 4, "bee": 1}})
    with pytest.raises(DataError, match="class 'bee': missing from the task's test set"):
        make_stream(f"folder:{tmp_path}")


def test_strangers_among_folders(tmp_path: Path) -> None:
    made.make_folder(tmp_path, CLASSES)
    (tmp_path / ".DS_Store").write_bytes(b"x")
    (tmp_path / "bee" / "Thumbs.db").write_bytes(b"x")
    assert len(make_stream(f"folder:{tmp_path}")) == 2  # what systems leave behind is no complaint
    (tmp_path / "README.md").write_text("x")
    with pytest.raises(DataError, match=r"README.md: a file where folders of images are expected"):
        make_stream(f"folder:{tmp_path}")
    with pytest.warns(BadDataWarning, match="left out 1 bad"):
        make_stream(f"folder:{tmp_path}", skip_bad=True)
    (tmp_path / "README.md").unlink()
    (tmp_path / "bee" / "more").mkdir()
    with pytest.raises(DataError, match="bee/more: a folder where images are expected"):
        make_stream(f"folder:{tmp_path}", layout="classes")


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder"):
        make_stream(f"folder:{tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="holds no folders of images"):
        make_stream(f"folder:{tmp_path}")


def test_options_of_the_other_layout(tmp_path: Path) -> None:
    made.make_folder(tmp_path, {"mon": {"a": 4}, "tue": {"b": 4}})
    with pytest.raises(ValueError, match="its 2 folders are the tasks"):
        make_stream(f"folder:{tmp_path}", tasks=3)
    with pytest.raises(ValueError, match=r"option 'test_fraction' of folder:.* is a number > 0 and < 1, not 0"):
        make_stream(f"folder:{tmp_path}", test_fraction=0)


@pytest.mark.parametrize("augment", ["none", "shift-flip", "resized-crop"])
def test_augmentations(augment: str, tmp_path: Path) -> None:
    made.make_folder(tmp_path, CLASSES)
    stream = make_stream(f"folder:{tmp_path}", augment=augment)
    x, _ = stream[0].train.gather(torch.arange(8))
    same = torch.equal(stream.augment(x, torch.Generator().manual_seed(0)), stream.prepare(x))
    assert same == (augment == "none") or augment == "resized-crop"  # one colour crops to itself
    assert stream.augment(x, torch.Generator()).shape == (8, 3, 10, 10)


def test_memory_mapped(tmp_path: Path) -> None:
    made.make_folder(tmp_path / "p", CLASSES)
    plain = make_stream(f"folder:{tmp_path / 'p'}")
    mapped = make_stream(f"folder:{tmp_path / 'p'}", memory_limit=0, root=tmp_path / "root")
    assert list((tmp_path / "root" / "prepared" / "folder").glob("*.npy"))
    assert torch.equal(plain[1].train.x, mapped[1].train.x)


def test_a_run_takes_the_folder_from_its_name_or_from_its_options(tmp_path: Path) -> None:
    made.make_folder(tmp_path, {"mon": {"a": 4}, "tue": {"b": 4}}, size=(32, 32))
    by_name = RunConfig(benchmark=f"folder:{tmp_path}", method="naive")
    by_option = RunConfig(benchmark="folder", benchmark_options={"path": str(tmp_path)}, method="naive")
    assert run_id(by_name) == run_id(by_option)
    for config in (by_name, by_option):
        assert [task.name for task in build(config)[0]] == ["mon", "tue"]
