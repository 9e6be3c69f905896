"""Data of one's own by its place: folders of any mixture of pictures, and arrays; what cannot be used says why."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tmln.data import DataError
from tmln.data.own_data import find_pictures, read_own, read_pictures, reader_for


def picture(
    path: Path,
    size: tuple[int, int] = (12, 12),
    mode: str = "RGB",
    shade: int | tuple[int, int, int] = 100,
) -> Path:
    """Of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = shade if isinstance(shade, tuple) else (shade,) * 3
    Image.new("RGB", size, colour).convert(mode).save(path)
    return path


def test_a_folder_of_classes(tmp_path: Path) -> None:
    for name, shade in (("owl", 200), ("ant", 10)):
        for number in range(3):
            picture(tmp_path / name / f"{number}.png", shade=shade)
    found = read_own(tmp_path)
    assert found.names == ("ant", "owl")
    assert found.inputs.shape == (6, 12, 12, 3)
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert [int(pixels.mean()) for pixels in found.inputs] == [10] * 3 + [200] * 3
    assert not found.tested.any()
    assert found.paths[0] == tmp_path / "ant" / "0.png"


def test_domains_share_their_classes(tmp_path: Path) -> None:
    for domain in ("camera 1", "camera 2"):
        for name in ("ant", "owl"):
            picture(tmp_path / domain / name / "a.png")
    found = read_own(tmp_path)
    assert found.names == ("ant", "owl")
    assert found.labels.tolist() == [0, 1, 0, 1]


def test_train_and_test_beside_each_other(tmp_path: Path) -> None:
    for role in ("train", "test"):
        picture(tmp_path / role / "ant" / "a.png")
    assert read_own(tmp_path).tested.tolist() == [False, True]


def test_any_mixture_of_sizes_and_modes(tmp_path: Path) -> None:
    """The shorter sides are 10, 20, 30: the side is 20. One has colours, so all do."""
    for number, (size, mode) in enumerate([((10, 40), "L"), ((20, 25), "RGB"), ((90, 30), "P"), ((20, 20), "RGBA")]):
        picture(tmp_path / "ant" / f"{number}.png", size, mode)
    assert read_own(tmp_path).inputs.shape == (4, 20, 20, 3)
    assert read_own(tmp_path, shape=(1, 9, 9)).inputs.shape == (4, 9, 9, 1)
    assert read_own(tmp_path, side=16).inputs.shape == (4, 16, 16, 3)


def test_large_pictures_become_small_and_grey_ones_stay_grey(tmp_path: Path) -> None:
    picture(tmp_path / "ant" / "a.png", (300, 200), "L")
    assert read_own(tmp_path).inputs.shape == (1, 64, 64, 1)


def test_arrays(tmp_path: Path) -> None:
    x, y = np.zeros((4, 3), np.float32), np.array([0, 1, 1, 0])
    np.savez(tmp_path / "plain.npz", x=x, y=y)
    np.savez(tmp_path / "named.npz", x=x, y=y, classes=np.array(["ant", "owl"]))
    np.savez(tmp_path / "words.npz", x=x, y=np.array(["owl", "ant", "owl", "ant"]))
    assert read_own(tmp_path / "plain.npz").names is None
    assert read_own(tmp_path / "named.npz").names == ("ant", "owl")
    words = read_own(tmp_path / "words.npz")
    assert words.names == ("owl", "ant")
    assert words.labels.tolist() == [0, 1, 0, 1]


def test_arrays_that_cannot_be_used(tmp_path: Path) -> None:
    path, x = tmp_path / "a.npz", np.zeros((2, 3))
    for arrays, words in [
        ({"x": x}, "has no array 'y'"),
        ({"x": x, "y": np.zeros(3, int)}, "one label for each input"),
        ({"x": x, "y": np.array([0.5, 1.0])}, "whole numbers from 0 on, or words"),
        ({"x": x, "y": np.array([-1, 1])}, "whole numbers from 0 on"),
        ({"x": np.array([{}, {}], dtype=object), "y": np.array([0, 1])}, "cannot be read .*plain arrays"),
    ]:
        np.savez(path, **arrays)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=words):
            read_own(path)
    path.write_bytes(b"PK\x03\x04 but no more")
    with pytest.raises(DataError, match="cannot be read"):
        read_own(path)
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("x.npy", b"")
    with pytest.raises(DataError):
        read_own(path)


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder or file"):
        read_own(tmp_path / "nowhere")
    picture(tmp_path / "ant" / "a.png")
    (tmp_path / "owl").mkdir()
    with pytest.raises(DataError, match="owl: an empty class"):
        read_own(tmp_path)
    (tmp_path / "owl" / "b.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"owl.b\.png: not an image"):
        read_own(tmp_path)
    with pytest.raises(DataError, match="neither a folder of classes nor"):
        read_own(tmp_path / "ant" / "a.png")
    with pytest.raises(DataError, match="no readable picture among 1 file"):
        reader_for([tmp_path / "owl" / "b.png"], None, None)
    with pytest.raises(DataError, match=r"the model takes inputs of shape \(5,\)"):
        reader_for([], (5,), None)


def test_pictures_wherever_they_are(tmp_path: Path) -> None:
    late, early = picture(tmp_path / "in" / "10.png"), picture(tmp_path / "in" / "2.png")
    deep = picture(tmp_path / "in" / "deeper" / "a.jpg")
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    alone = picture(tmp_path / "b.png")
    found = find_pictures([tmp_path / "in", alone])
    assert found == [early, late, deep, alone]
    assert read_pictures(found, (3, 8, 8)).shape == (4, 8, 8, 3)
    with pytest.raises(DataError, match=r"c\.png: no such file"):
        find_pictures([tmp_path / "c.png"])
