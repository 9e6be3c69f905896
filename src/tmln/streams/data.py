"""What ``tmln data list|get|check`` does: name data sets, fetch one, look whether it is sound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tmln.data.bad import DataError
from tmln.data.download import Progress, by_hand, fetch, verify
from tmln.data.extract import unpack
from tmln.data.root import data_root
from tmln.data.sources import DATA, DataSet, RemoteFile
from tmln.suggest import did_you_mean


@dataclass(frozen=True)
class DataStatus:
    """One line of ``tmln data list``: where the data set was found, or None."""

    name: str
    summary: str
    bytes: int
    path: Path | None


@dataclass(frozen=True)
class Check:
    """One line of ``tmln data check``: what was looked at, what is wrong with it, or merely worth a note."""

    what: str
    problem: str | None = None
    note: str | None = None


def list_data(root: Path | str | None = None) -> list[DataStatus]:
    """Every data set of the table, found or not."""
    place = data_root(root)
    return [
        DataStatus(name, data.summary, sum(file.size for file in data.files), find(data, place))
        for name, data in DATA.items()
    ]


def get_data(name: str, root: Path | str | None = None, progress: Progress | None = None) -> Path:
    """The folder of a data set: found, unpacked from an archive that is there, or fetched and unpacked."""
    data, place = _named(name), data_root(root)
    found = find(data, place) or _unpack_archive_there(data, place)
    if found is None:
        for remote in data.files:
            archive = fetch(remote, place, progress)
            if data.archive:
                unpack(archive, place)
        found = find(data, place)
    if found is None:
        raise DataError(f"{name}: fetched, but not what was expected is under {place}")
    return found


def locate(name: str, root: Path | str | None = None) -> Path:
    """The folder of a data set that is there, unpacked if need be; the error says how to get it."""
    data, place = _named(name), data_root(root)
    found = find(data, place) or _unpack_archive_there(data, place)
    if found is None:
        raise DataError(
            f"{name} is not under {place}: run `tmln data get {name}`, set TMLN_DATA to what holds "
            f"{data.layouts[0].folder}/, or {by_hand(data.files, place)}"
        )
    return found


def check_data(name: str, root: Path | str | None = None) -> Iterator[Check]:
    """Verify what is there: downloaded files by checksum, the unpacked copy by reading it all."""
    from tmln.streams.readers import READERS

    data, place = _named(name), data_root(root)
    for remote in (*data.files, *data.alternatives):
        path = place / remote.folder / remote.name
        if path.exists():
            yield _checked(path, remote, data.archive)
    found = find(data, place)
    if found is None:
        yield Check(name, f"not under {place}; tmln data get {name}")
        return
    try:
        yield Check(f"{found}: {READERS[name](found)}")  # reads every sample
    except DataError as error:
        yield Check(str(found), str(error))


def find(data: DataSet, root: Path) -> Path | None:
    """The first layout that is complete: our own, torchvision's, or one made by hand."""
    for layout in data.layouts:
        folder = root / layout.folder
        if all((folder / name).exists() or (folder / f"{name}.gz").exists() for name in layout.names):
            return folder
    return None


def _named(name: str) -> DataSet:
    if name not in DATA:
        raise ValueError(f"unknown data set {name!r}{did_you_mean(name, DATA)} (tmln data list)")
    return DATA[name]


def _unpack_archive_there(data: DataSet, root: Path) -> Path | None:
    for remote in (*data.files, *data.alternatives) if data.archive else ():
        archive = root / remote.folder / remote.name
        if archive.exists():
            verify(archive, remote)
            unpack(archive, root)
            return find(data, root)
    return None


def _checked(path: Path, remote: RemoteFile, archive: bool) -> Check:
    try:
        verify(path, remote)
    except DataError as error:
        # A single file that was compressed anew is judged by what it holds, an archive by its checksum.
        return Check(str(path), problem=str(error)) if archive else Check(str(path), note="not the official bytes")
    return Check(str(path))
