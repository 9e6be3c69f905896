"""The table of data sets, and how ``tmln data`` finds, downloads, verifies and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tmln.data.cifar import CIFAR10, CIFAR100
from tmln.data.cub200 import CUB200
from tmln.data.dataset import Arrays, DataSet, RemoteFile
from tmln.data.digits import DIGITS
from tmln.data.domains import CORE50, PACS
from tmln.data.extract import unpack
from tmln.data.fetch import Progress, by_hand, fetch, verify
from tmln.data.image_files import ImageFiles, read_all
from tmln.data.mnist import FASHION_MNIST, MNIST
from tmln.data.reading import BadData, DataError, data_root
from tmln.data.texts import BANKING77, CLINC150, OLORA, Texts
from tmln.data.tiny_imagenet import TINY_IMAGENET
from tmln.progress import track
from tmln.suggest import did_you_mean

DATA: dict[str, DataSet] = {
    "digits": DIGITS,
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "tiny-imagenet": TINY_IMAGENET,
    "cub200": CUB200,
    "core50": CORE50,
    "pacs": PACS,
    "clinc150": CLINC150,
    "banking77": BANKING77,
    "olora": OLORA,
}


@dataclass(frozen=True)
class DataStatus:
    """One line of ``tmln data list``: ``path`` is where the data set was found, or None."""

    name: str
    summary: str
    bytes: int
    path: Path | None


@dataclass(frozen=True)
class Check:
    """One line of ``tmln data check``: what was checked, and a problem or a note."""

    what: str
    problem: str | None = None
    note: str | None = None


def list_data(root: Path | str | None = None) -> list[DataStatus]:
    """Return the status of every data set of the table."""
    place = data_root(root)
    return [
        DataStatus(name, data.summary, sum(file.size for file in data.files), find(data, place))
        for name, data in DATA.items()
    ]


def get_data(name: str, root: Path | str | None = None, progress: Progress | None = None) -> Path:
    """Return the folder of a data set, downloading and unpacking it if necessary."""
    data, place = _find_row(name), data_root(root)
    if data.files and _find_or_unpack(data, place) is None:
        for remote in data.files:
            fetched = fetch(remote, place, progress)
            if remote.archive:
                unpack(fetched, place)
        if find(data, place) is None:
            raise DataError(f"{name}: fetched, but not what was expected is under {place}")
    return locate(name, root)


def locate(name: str, root: Path | str | None = None) -> Path:
    """Return the folder of a data set that is there, unpacking its archive if necessary.

    If it is not there, the error says how to get it.
    """
    data, place = _find_row(name), data_root(root)
    found = _find_or_unpack(data, place)
    if found is not None:
        return found
    if data.package:
        raise ImportError(f"{name} come with the package {data.package}: pip install 'tmln[{name}]'")
    fetched = f"run `tmln data get {name}`, " if data.files else ""
    otherwise = by_hand(data.files, place) if data.files else f"ask for it at {data.home}"
    raise DataError(
        f"{name} is not under {place}: {fetched}set TMLN_DATA to what holds {next(iter(data.layouts))}/, or {otherwise}"
    )


def read_data(name: str, bad: BadData, root: Path | str | None = None) -> Arrays | ImageFiles | Texts:
    """Read a data set that is there: arrays, image files to select from, or texts."""
    return _find_row(name).read(locate(name, root), bad)


def check_data(name: str, root: Path | str | None = None) -> Iterator[Check]:
    """Verify downloaded files by checksum, and the unpacked copy by reading all of it."""
    data, place = _find_row(name), data_root(root)
    for remote in (*data.files, *data.alternatives):
        path = place / remote.folder / remote.name
        if path.exists():
            yield _check_file(path, remote)
    found = find(data, place)
    if found is None:
        yield Check(name, f"not under {place}; tmln data get {name}")
        return
    try:
        yield Check(f"{found}: {verify_copy(data, found)}")
    except DataError as error:
        yield Check(str(found), str(error))


def verify_copy(data: DataSet, folder: Path) -> str:
    """Read every sample of a copy and return a summary; raise unless the copy is whole."""
    content = data.read(folder, BadData(data.title, skip=False))
    counts = content.counts()
    for what, expected in data.counts.items():
        if counts.get(what, 0) != expected:
            raise DataError(f"{folder}: {what} has {counts.get(what, 0):,} {data.unit}, not {expected:,}")
    if isinstance(content, ImageFiles):
        paths = [file.path for file in content.files]
        for _, image in zip(track(range(len(paths)), "reading images"), read_all(paths, content.read), strict=True):
            if isinstance(image, DataError):
                raise image
    parts = ", ".join(f"{what} {count:,}" for what, count in counts.items())
    return f"{sum(counts.values()):,} {data.unit} in {len(content.class_names)} classes ({parts})"


def find(data: DataSet, root: Path) -> Path | None:
    """Return the first folder that holds a complete copy, or that of the data set's package."""
    for folder, names in data.layouts.items():
        place = root / folder
        if all((place / name).exists() or (place / f"{name}.gz").exists() for name in names):
            return place
    package = find_spec(data.package) if data.package else None
    return Path(package.origin).parent if package and package.origin else None


def _find_row(name: str) -> DataSet:
    if name not in DATA:
        raise ValueError(f"unknown data set {name!r}{did_you_mean(name, DATA)} (tmln data list)")
    return DATA[name]


def _find_or_unpack(data: DataSet, root: Path) -> Path | None:
    """Return the folder of a copy, unpacking an archive that is there."""
    found = find(data, root)
    for remote in () if found else (*data.files, *data.alternatives):
        archive = root / remote.folder / remote.name
        if remote.archive and archive.exists():
            verify(archive, remote)
            unpack(archive, root)
            return find(data, root)
    return found


def _check_file(path: Path, remote: RemoteFile) -> Check:
    try:
        verify(path, remote)
    except DataError as error:
        # A single file may have been compressed again, so only its content counts.
        note = "not the official bytes"
        return Check(str(path), str(error)) if remote.archive else Check(str(path), note=note)
    return Check(str(path))
