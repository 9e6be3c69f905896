"""Data of one's own by its place: folders of any mixture of pictures, and arrays; what cannot be used says why."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tmln.data import DataError
from tmln.data.own_data import choose_reader, find_pictures, read_own_data, read_pictures
from tmln.data.reading import BadDataWarning


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
    found = read_own_data(tmp_path)
    assert found.names == ("ant", "owl")
    assert found.inputs.shape == (6, 12, 12, 3)
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert [int(pixels.mean()) for pixels in found.inputs] == [10] * 3 + [200] * 3
    assert not found.is_test.any()
    assert found.paths[0] == tmp_path / "ant" / "0.png"


def test_domains_share_their_classes(tmp_path: Path) -> None:
    for domain in ("camera 1", "camera 2"):
        for name in ("ant", "owl"):
            picture(tmp_path / domain / name / "a.png")
    found = read_own_data(tmp_path)
    assert found.names == ("ant", "owl")
    assert found.labels.tolist() == [0, 1, 0, 1]


def test_train_and_test_beside_each_other(tmp_path: Path) -> None:
    for role in ("train", "test"):
        picture(tmp_path / role / "ant" / "a.png")
    assert read_own_data(tmp_path).is_test.tolist() == [False, True]


def test_any_mixture_of_sizes_and_modes(tmp_path: Path) -> None:
    """The longer sides are 20, 25, 40, 90, the shorter ones 10, 20, 20, 30. One has colours, so all do."""
    for number, (size, mode) in enumerate([((10, 40), "L"), ((20, 25), "RGB"), ((90, 30), "P"), ((20, 20), "RGBA")]):
        picture(tmp_path / "ant" / f"{number}.png", size, mode)
    assert read_own_data(tmp_path).inputs.shape == (4, 32, 32, 3)
    assert read_own_data(tmp_path, fit="crop").inputs.shape == (4, 20, 20, 3)
    assert read_own_data(tmp_path, shape=(1, 9, 9)).inputs.shape == (4, 9, 9, 1)
    assert read_own_data(tmp_path, side=16).inputs.shape == (4, 16, 16, 3)


def test_large_pictures_become_small_and_grey_ones_stay_grey(tmp_path: Path) -> None:
    picture(tmp_path / "ant" / "a.png", (300, 200), "L")
    assert read_own_data(tmp_path).inputs.shape == (1, 64, 64, 1)


def test_arrays(tmp_path: Path) -> None:
    x, y = np.zeros((4, 3), np.float32), np.array([0, 1, 1, 0])
    np.savez(tmp_path / "plain.npz", x=x, y=y)
    np.savez(tmp_path / "named.npz", x=x, y=y, classes=np.array(["ant", "owl"]))
    np.savez(tmp_path / "words.npz", x=x, y=np.array(["owl", "ant", "owl", "ant"]))
    assert read_own_data(tmp_path / "plain.npz").names is None
    assert read_own_data(tmp_path / "named.npz").names == ("ant", "owl")
    words = read_own_data(tmp_path / "words.npz")
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
            read_own_data(path)
    path.write_bytes(b"PK\x03\x04 but no more")
    with pytest.raises(DataError, match="cannot be read"):
        read_own_data(path)
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("x.npy", b"")
    with pytest.raises(DataError):
        read_own_data(path)


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder or file"):
        read_own_data(tmp_path / "nowhere")
    picture(tmp_path / "ant" / "a.png")
    (tmp_path / "owl").mkdir()
    with pytest.raises(DataError, match="owl: an empty class"):
        read_own_data(tmp_path)
    (tmp_path / "owl" / "b.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"owl.b\.png: not an image"):
        read_own_data(tmp_path)
    with pytest.raises(DataError, match="neither a folder of classes nor"):
        read_own_data(tmp_path / "ant" / "a.png")
    with pytest.raises(DataError, match="no readable picture among 1 file"):
        choose_reader([tmp_path / "owl" / "b.png"], None, None)
    with pytest.raises(DataError, match=r"the model takes inputs of shape \(5,\)"):
        choose_reader([], (5,), None)


def test_pictures_wherever_they_are(tmp_path: Path) -> None:
    late, early = picture(tmp_path / "in" / "10.png"), picture(tmp_path / "in" / "2.png")
    deep = picture(tmp_path / "in" / "deeper" / "a.jpg")
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    alone = picture(tmp_path / "b.png")
    found = find_pictures([tmp_path / "in", alone])
    assert found == [early, late, deep, alone]
    assert read_pictures(found, (3, 8, 8))[0].shape == (4, 8, 8, 3)
    with pytest.raises(DataError, match=r"c\.png: no such file"):
        find_pictures([tmp_path / "c.png"])


# -- hostile files -----------------------------------------------------------------------------------------------------


def header(shape: str, kind: str = "<f4") -> bytes:
    """The beginning of an .npy file that claims this shape and type."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "x",
    [
        header("(1000000000, 1000)"),
        header("(99999999999999,)", "<U0"),
        header("(3,)") + b"1234",
        header("(1,)") + b"12345678",
        b"junk",
        b"",
    ],
    ids=["4 TB", "nothing, often", "too short", "too long", "junk", "empty"],
)
def test_arrays_whose_headers_lie_are_refused_before_memory_is_taken(x: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("x.npy", x)
        packed.writestr("y.npy", header("(1,)", "<i8") + b"\0" * 8)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"a\.npz: cannot be read"):
            read_own_data(path)
        assert tracemalloc.get_traced_memory()[1] < 1e7
    finally:
        tracemalloc.stop()


def test_a_bomb_of_zeros_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    size = (1 << 28) + (1 << 26)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("x.npy", "w") as file:
        file.write(header(f"({size},)", "|u1"))
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    with pytest.raises(DataError, match=r"bomb\.npz: .* bytes unpacked, more than the limit"):
        read_own_data(path)


@pytest.mark.parametrize("label", [10**12, 2**63])
def test_labels_that_would_make_a_head_of_a_trillion_outputs(label: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 2)), y=np.array([label], np.uint64))
    with pytest.raises(DataError, match=f"label {label}"):
        read_own_data(tmp_path / "a.npz")


def test_many_labels_that_are_words_take_no_quadratic_time(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((200_000, 1), np.uint8), y=np.arange(200_000).astype("U6"))
    assert read_own_data(tmp_path / "a.npz").labels[-1] == 199_999


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_pipes_and_loops_of_links_are_left_out_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    picture(tmp_path / "ant" / "a.png")
    picture(tmp_path / "owl" / "b.png")
    os.mkfifo(tmp_path / "ant" / "pipe.png")
    (tmp_path / "ant" / "self.png").symlink_to("self.png")
    (tmp_path / "owl" / "above").symlink_to(tmp_path)
    (tmp_path / "round").symlink_to("round")
    assert read_own_data(tmp_path).labels.tolist() == [0, 1]
    said = " ".join(record.getMessage() for record in caplog.records)
    for name, why in (
        ("pipe.png", "not a regular file"),
        ("self.png", "a loop of links"),
        ("round", "a loop of links"),
        ("above", "a link to a folder that contains it"),
    ):
        assert said.count(f"{name}: left out ({why})") == 1
    assert [path.name for path in find_pictures([tmp_path])] == ["a.png", "b.png"]


def make_shop(root: Path) -> list[str]:
    """Write two good classes and every kind of bad item; return where the bad ones are."""
    for name in ("ant", "owl"):
        for number in range(3):
            picture(root / name / f"{number}.png")
    (root / "ant" / "notes.txt").write_text("no picture")
    (root / "ant" / "cut.png").write_bytes((root / "ant" / "0.png").read_bytes()[:40])
    picture(root / "ant" / "backup" / "old.png")
    (root / "bee").mkdir()  # sorts between the good ones
    (root / "cat").mkdir()
    (root / "cat" / "a.png").write_bytes(b"no picture")
    picture(root / "stray.png")
    return ["notes.txt", "cut.png", "backup", "bee", "cat/a.png", "stray.png"]


def test_all_that_is_bad_is_one_error(tmp_path: Path) -> None:
    bad = make_shop(tmp_path)
    with pytest.raises(DataError, match=r"6 bad items: .*--skip-bad") as caught:
        read_own_data(tmp_path)
    assert all(str(Path(place)) in str(caught.value) for place in bad)


def test_what_is_bad_is_left_out_and_listed_once(tmp_path: Path) -> None:
    bad = make_shop(tmp_path)
    found = read_own_data(tmp_path, skip_bad=True)
    assert found.names == ("ant", "owl")  # no class without a picture
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert len(found.left_out) == len(bad)
    for place in bad:
        assert sum(str(Path(place)) in line.partition(": ")[0] for line in found.left_out) == 1


def test_a_stray_folder_makes_no_domains(tmp_path: Path) -> None:
    picture(tmp_path / "day" / "ant" / "a.png")
    picture(tmp_path / "night" / "ant" / "b.png")
    (tmp_path / "night" / "notes.txt").write_text("no picture")
    (tmp_path / "void").mkdir()
    found = read_own_data(tmp_path, skip_bad=True)
    assert (found.names, len(found.labels), len(found.left_out)) == (("ant",), 2, 2)


def test_unreadable_pictures_are_left_out_of_predictions(tmp_path: Path) -> None:
    paths = [picture(tmp_path / "a.png"), tmp_path / "b.png", picture(tmp_path / "c.png")]
    paths[1].write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"b\.png: not an image .*--skip-bad"):
        read_pictures(paths, (3, 8, 8))
    with pytest.warns(BadDataWarning, match=r"left out 1 bad: .*b\.png"):
        pixels, kept = read_pictures(paths, (3, 8, 8), skip_bad=True)
    assert (len(pixels), kept) == (2, [paths[0], paths[2]])
