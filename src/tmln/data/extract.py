"""Unpacking of archives: regular files and folders only, inside the target, all or nothing."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, cast

from tmln.data.reading import DataError
from tmln.writing import CannotWrite, write_all, writing

MIN_UNPACKED = 1 << 28  # bytes that any archive may unpack to
MAX_RATIO = 50  # times its own size beyond that; images hardly shrink, MNIST shrinks to a fifth
MAX_DEPTH = 32  # nested folders
MAX_MEMBERS = 1 << 21  # members; CORe50, the largest set, has 0.16e6


def unpack(archive: Path, into: Path) -> None:
    """Unpack a .zip or .tar(.gz) into a hidden folder, then move its top entries into place."""
    staging = into / f".unpacking-{archive.name}"
    if staging.exists():  # from a process that was killed
        shutil.rmtree(staging)
    with writing(into):
        staging.mkdir(parents=True)
    try:
        left = _size_limit(archive)
        for number, (name, content) in enumerate(_members(archive)):
            if number >= MAX_MEMBERS:
                raise DataError(f"{archive}: more than {MAX_MEMBERS:,} members; nothing was unpacked")
            target = staging / check_member(archive, name)
            with writing(into / target.relative_to(staging)):
                target.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                target.mkdir(exist_ok=True)
            else:
                with content, open(target, "wb", buffering=0) as file:
                    left -= _copy(archive, content, file, left, into / target.relative_to(staging))
        for entry in sorted(staging.iterdir()):
            if (into / entry.name).exists():
                raise DataError(f"{into / entry.name} is in the way of {archive.name}; move it away and try again")
        for entry in sorted(staging.iterdir()):
            os.replace(entry, into / entry.name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, (DataError, CannotWrite)):  # a full disk is not the archive's fault
            raise
        raise DataError(f"{archive}: not a sound archive ({error}); delete it and fetch it again") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_member(archive: Path, name: str) -> PurePosixPath:
    """Return the member's path if it stays below the target folder, else raise."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive:
        raise DataError(f"{archive}: member {name!r} would be written outside its folder; nothing was unpacked")
    if len(path.parts) > MAX_DEPTH:
        raise DataError(
            f"{archive}: a member is {len(path.parts)} folders deep, more than {MAX_DEPTH}; nothing was unpacked"
        )
    return path


def _size_limit(archive: Path) -> int:
    """Return how many bytes an archive may unpack to."""
    return MIN_UNPACKED + MAX_RATIO * archive.stat().st_size


def _too_much(archive: Path) -> DataError:
    return DataError(
        f"{archive}: would unpack to more than {_size_limit(archive):,} bytes, {MAX_RATIO} times its size; nothing was "
        "unpacked. If you trust it, unpack it yourself"
    )


def _copy(archive: Path, content: IO[bytes], file: IO[bytes], most: int, target: Path) -> int:
    written = 0
    while chunk := content.read(1 << 20):
        written += len(chunk)
        if written > most:
            raise _too_much(archive)
        with writing(target):
            write_all(file, chunk)
    return written


class _LimitedTape:
    """A file that tarfile cannot read past a limit: it would read names of any length."""

    def __init__(self, archive: Path, tape: IO[bytes]) -> None:
        self.archive, self.tape, self.most = archive, tape, _size_limit(archive)

    def read(self, count: int = -1) -> bytes:
        if count < 0 or self.tape.tell() + count > self.most:
            raise _too_much(self.archive)
        return self.tape.read(count)

    def seek(self, place: int) -> int:
        if place > self.most:
            raise _too_much(self.archive)
        return self.tape.seek(place)

    def tell(self) -> int:
        return self.tape.tell()


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Names with their content, None for a folder."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as pack:
            for info in pack.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise DataError(f"{archive}: member {info.filename!r} is a link or a device")
                yield info.filename, None if info.is_dir() else pack.open(info)
        return
    with open(archive, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        metered = _LimitedTape(archive, gzip.GzipFile(fileobj=file) if packed else file)  # type: ignore[arg-type]
        with tarfile.open(fileobj=cast("IO[bytes]", metered), mode="r:") as tape:
            for member in tape:
                if not (member.isreg() or member.isdir()):
                    raise DataError(f"{archive}: member {member.name!r} is a link or a device")
                yield member.name, None if member.isdir() else tape.extractfile(member)
