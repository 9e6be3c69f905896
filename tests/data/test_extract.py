"""Archives: what is sound is unpacked whole, what is not leaves nothing behind."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from tmln.data import extract
from tmln.data.extract import unpack
from tmln.streams import DataError


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tape:
        for info, data in members:
            info.size = len(data)
            tape.addfile(info, io.BytesIO(data))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_tar_and_zip(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    folder = member("set", tarfile.DIRTYPE)
    unpack(tar(tmp_path / "a.tar.gz", (folder, b""), (member("set/deep/x"), b"one")), tmp_path / "out")
    assert (tmp_path / "out" / "set" / "deep" / "x").read_bytes() == b"one"
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as pack:
        pack.writestr("other/", "")
        pack.writestr("other/y", "two")
    unpack(tmp_path / "b.zip", tmp_path / "out")
    assert (tmp_path / "out" / "other" / "y").read_bytes() == b"two"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["other", "set"]


ESCAPES = ["../x", "/x", "set/../../x", "..\\x", "C:\\x", "C:x", "\\\\host\\share\\x"]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_no_escape(kind: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    good = (member("set/x"), b"one")
    if kind == "tar":
        archive = tar(tmp_path / "a.tar.gz", good, (member(name), b"two"))
    else:
        archive = tmp_path / "a.zip"
        with zipfile.ZipFile(archive, "w") as pack:
            pack.writestr("set/x", "one")
            pack.writestr(name, "two")
    with pytest.raises(DataError, match=r"a\..*would be written outside its folder"):
        unpack(archive, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == [archive.name, "out"]


@pytest.mark.parametrize(
    "strange",
    [
        member("set/l", tarfile.SYMTYPE, "/etc/passwd"),
        member("set/l", tarfile.LNKTYPE, "set/x"),
        member("set/l", tarfile.CHRTYPE),
        member("set/l", tarfile.FIFOTYPE),
    ],
    ids=["symlink", "hard link", "device", "pipe"],
)
def test_no_links_or_devices(strange: tarfile.TarInfo, tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", (member("set/x"), b"one"), (strange, b""))
    with pytest.raises(DataError, match="member 'set/l' is a link or a device"):
        unpack(archive, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_no_links_in_zips(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("set/l")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as pack:
        pack.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="is a link or a device"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
@pytest.mark.parametrize("keep", [0, 30, 150])
def test_truncated(name: str, keep: int, tmp_path: Path) -> None:
    noise = bytes(range(256)) * 40
    if name.endswith(".zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as pack:
            pack.writestr("set/x", noise)
    else:
        tar(tmp_path / name, (member("set/x"), noise))
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:keep])
    with pytest.raises(DataError, match=f"{name}: not a sound archive"):
        unpack(tmp_path / name, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    archive = tar(tmp_path / "a.tar.gz", (member("set/x"), b"one"))
    with pytest.raises(DataError, match=r"set is in the way of a.tar.gz; move it away"):
        unpack(archive, tmp_path)
    assert not list((tmp_path / "set").iterdir())


def test_after_a_killed_run(tmp_path: Path) -> None:
    stale = tmp_path / ".unpacking-a.tar.gz" / "set"
    stale.mkdir(parents=True)
    (stale / "half").write_text("x")
    unpack(tar(tmp_path / "a.tar.gz", (member("set/x"), b"one")), tmp_path)
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["x"]


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_what_is_packed_a_thousandfold_is_not_unpacked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract, "MIN_UNPACKED", 1 << 16)
    zeros, noise = bytes(1 << 21), os.urandom(1 << 18)
    for content, whole in ((zeros, False), (noise, True)):
        if name.endswith(".zip"):
            with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as pack:
                pack.writestr("set/x", content)
        else:
            tar(tmp_path / name, (member("set/x"), content))
        if whole:
            unpack(tmp_path / name, tmp_path / "out")
            assert (tmp_path / "out" / "set" / "x").read_bytes() == noise
        else:
            with pytest.raises(DataError, match=rf"{name}: would unpack to more than .* bytes, 50 times its size"):
                unpack(tmp_path / name, tmp_path / "out")
            assert not list((tmp_path / "out").iterdir())


def test_many_members_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract, "MIN_UNPACKED", 1 << 16)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as pack:
        for number in range(20):
            pack.writestr(f"set/{number}", bytes(1 << 17))
    with pytest.raises(DataError, match="would unpack to more than"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    monkeypatch.setattr(extract, "MIN_UNPACKED", 1 << 28)
    monkeypatch.setattr(extract, "MAX_MEMBERS", 19)
    with pytest.raises(DataError, match="more than 19 members"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_a_name_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    """A long name is read whole by tarfile, and its size is what the archive says."""
    info = tarfile.TarInfo("long")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 31
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="would unpack to more than"):
            unpack(tmp_path / "a.tar.gz", tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 1e7
    finally:
        tracemalloc.stop()


def test_folders_within_folders_end(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as pack:
        pack.writestr("a/" * 1500 + "x", "deep")
    with pytest.raises(DataError, match="a member is 1501 folders deep, more than 32"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_a_damaged_member_is_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("set/x", bytes(range(256)) * 4)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    refused = 0
    for place in range(30, len(data), 3):
        damaged = bytes(data[:place]) + bytes((data[place] ^ 0x55,)) + bytes(data[place + 1 :])
        (tmp_path / "a.zip").write_bytes(damaged)
        try:
            unpack(tmp_path / "a.zip", tmp_path / f"out{place}")
        except DataError:
            refused += 1
    assert refused > 50
