"""The user's own data: a folder of classes, of domains with classes, or an ``.npz`` file."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tmln.data.folder import list_entries, read_folder
from tmln.data.image_files import load_images
from tmln.data.images import FORMATS, DraftReader, Fit, ImageReader, Pixels
from tmln.data.reading import BadData, BadDataWarning, DataError, data_root, read_bounded

SKIP = "--skip-bad"  # the option that an error names
DEFAULT_SIDE = 64  # pixels; larger images are resized to it unless another side is given
MIN_SIDE = 8
MAX_ARRAYS = 1 << 33  # bytes of an .npz, packed or unpacked
MIN_UNPACKED, MAX_RATIO = 1 << 28, 50  # it may unpack to 256 MiB and 50 times its size
MAX_CLASSES = 1 << 20
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


@dataclass(frozen=True, eq=False)
class OwnData:
    """Images [N, H, W, C] or plain arrays [N, ...], with labels and the names of classes.

    ``is_test`` marks the images in a folder ``test`` beside ``train``; ``left_out`` says which
    files and folders are bad, and why.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    names: tuple[str, ...] | None
    is_test: NDArray[np.bool_]
    pictures: bool
    paths: tuple[Path, ...] = ()
    left_out: tuple[str, ...] = ()


def read_own_data(
    place: str | Path,
    shape: Sequence[int] | None = None,
    side: int | None = None,
    largest: int = DEFAULT_SIDE,
    fit: Fit = "pad",
    skip_bad: bool = False,
) -> OwnData:
    """Read images in ``place/class`` or ``place/domain/class``, or the arrays of an ``.npz``.

    ``shape`` is the input shape of a model, [C, H, W]: images are converted to it. Without it, the
    side is ``side`` or follows from the images, up to ``largest``. ``fit`` is how a picture becomes
    a square (:mod:`tmln.data.images`). All bad files and empty folders are one error, or with
    ``skip_bad`` left out.
    """
    path = Path(place).expanduser()
    if path.suffix == ".npz":
        return _read_npz(path)
    if not path.exists():
        raise DataError(f"{path}: no such folder or file")
    if not path.is_dir():
        raise DataError(f"{path}: neither a folder of classes nor a file .npz of arrays")
    bad = BadData(str(path), True)
    files = read_folder(path, bad, ImageReader())
    paths = [file.path for file in files.files]
    if bad.found and not paths:
        bad.raise_all(SKIP)
    pixels, kept = load_images(
        paths, choose_reader(paths, shape, side, largest, fit), bad, data_root() / "prepared" / "own"
    )
    if not skip_bad:
        bad.raise_all(SKIP)
    sound = [files.files[row] for row in kept]
    labels = sorted({file.label for file in sound})  # a class without a readable image is not met
    split = (path / "train").is_dir() and (path / "test").is_dir()
    return OwnData(
        pixels[kept] if len(kept) < len(pixels) else pixels,
        np.array([labels.index(file.label) for file in sound], np.int64),
        tuple(files.class_names[label] for label in labels),
        np.array([split and file.test for file in sound], np.bool_),
        True,
        tuple(file.path for file in sound),
        tuple(bad.found),
    )


def choose_reader(
    paths: Sequence[Path],
    shape: Sequence[int] | None,
    side: int | None,
    largest: int = DEFAULT_SIDE,
    fit: Fit = "pad",
) -> ImageReader:
    """Return a reader that gives all images one size and one number of channels.

    Without ``shape`` or ``side``, the side is the median of the longer sides (of the shorter ones
    where ``fit`` crops), at most ``largest``. Images are read as grey if all are.
    """
    if shape is not None:
        if len(shape) != 3 or shape[0] not in (1, 3) or shape[1] != shape[2]:
            raise DataError(f"the model takes inputs of shape {tuple(shape)}; pictures become [1 or 3, side, side]")
        return DraftReader("L" if shape[0] == 1 else "RGB", int(shape[1]), fit=fit)
    known = [found for path in paths if (found := _read_mode_and_size(path)) is not None]
    if not known:
        raise DataError(f"no readable picture among {len(paths)} file(s){f', first {paths[0]}' if paths else ''}")
    grey = all(mode in ("1", "L") for mode, _ in known)
    if side is None:
        side = max(MIN_SIDE, min(largest, int(median((min if fit == "crop" else max)(size) for _, size in known))))
    if side < MIN_SIDE:
        raise DataError(f"pictures of {side} pixels are too small; at least {MIN_SIDE}")
    return DraftReader("L" if grey else "RGB", side, fit=fit)


def _read_mode_and_size(path: Path) -> tuple[str, tuple[int, int]] | None:
    """Return mode and size from the beginning of a file; None if it is not an image."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("image files are read with Pillow: pip install 'tmln[images]'") from error
    try:
        with path.open("rb") as file, Image.open(file, formats=FORMATS) as image:
            return image.mode, image.size
    except Exception:  # decoders of a broken file can raise almost anything
        return None


def find_pictures(places: Iterable[str | Path]) -> list[Path]:
    """Return the images among these files and below these folders, in natural order."""
    found: list[Path] = []
    for place in places:
        path = Path(place).expanduser()
        if path.is_dir():
            inside = list_entries(path)
            found += [p for p in inside if not p.is_dir() and p.suffix.lower() in SUFFIXES]
            found += find_pictures(p for p in inside if p.is_dir())
        elif path.exists():
            found.append(path)
        else:
            raise DataError(f"{path}: no such file or folder")
    return found


def read_pictures(
    paths: Sequence[Path], shape: Sequence[int], fit: Fit = "pad", skip_bad: bool = False
) -> tuple[Pixels, list[Path]]:
    """Read images for a model of this input shape; return them and the paths that were read.

    Unreadable ones are an error that names them all, or with ``skip_bad`` a warning.
    """
    bad = BadData("pictures", True)
    reader = choose_reader(paths, shape, None, fit=fit)
    pixels, kept = load_images(paths, reader, bad, data_root() / "prepared" / "own")
    if bad.found and not skip_bad:
        bad.raise_all(SKIP)
    if bad.found:
        warnings.warn(f"left out {len(bad.found)} bad: {'; '.join(bad.found)}", BadDataWarning, stacklevel=2)
    return pixels[kept] if len(kept) < len(pixels) else pixels, [paths[row] for row in kept]


def read_inputs(path: Path, shape: Sequence[int]) -> NDArray[Any]:
    """Return the array ``x`` of an ``.npz``, whose rows have this shape; labels are ignored."""
    x = load_npz(path, ("x",))["x"]
    if x.dtype.kind not in "uif" or x.ndim < 1 or list(x.shape[1:]) != list(shape) or not len(x):
        raise DataError(f"{path}: x is {x.dtype} {list(x.shape)}; the model takes [N, {', '.join(map(str, shape))}]")
    return x


def load_npz(path: Path, needed: Sequence[str], kept: Sequence[str] = ("x", "y", "classes")) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz``, checked before memory is allotted; nothing is unpickled."""
    data = read_bounded(path, MAX_ARRAYS)
    limit = min(MAX_ARRAYS, MIN_UNPACKED + MAX_RATIO * len(data))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            if (size := sum(part.file_size for part in packed.infolist())) > limit:
                raise DataError(f"{path}: cannot be read ({size:,} bytes unpacked, more than the limit of {limit:,})")
            for part in packed.infolist():
                with packed.open(part) as file:
                    _check_header(part.filename, part.file_size, file)
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files if name in kept}
            names = ", ".join(arrays.files) or "none"
    except DataError:
        raise
    except (ValueError, OSError, LookupError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as e:
        raise DataError(f"{path}: cannot be read ({' '.join(str(e).split())}); save plain arrays x and y") from e
    if missing := [name for name in needed if name not in found]:
        raise DataError(f"{path}: has no array {missing[0]!r} (arrays: {names}); save {' and '.join(needed)}")
    return found


def _check_header(name: str, size: int, file: IO[bytes]) -> None:
    """Raise if a ``.npy`` file claims another size than it has: numpy would allocate it."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} has version {version} of the format .npy")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject or dtype.itemsize == 0 or file.tell() + math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{name} has {size:,} bytes, not an array of {dtype} {list(shape)}")


def _read_npz(path: Path) -> OwnData:
    """Read ``x`` and ``y``, and ``classes`` if the labels have names."""
    arrays = load_npz(path, ("x", "y"))
    x, y = arrays["x"], arrays["y"]
    if x.dtype.kind not in "uif" or len(x) != len(y) or y.ndim != 1 or not len(y):
        raise DataError(
            f"{path}: x is {x.dtype} {list(x.shape)}, y {y.dtype} {list(y.shape)}; one label for each input"
        )
    if y.dtype.kind == "U":  # labels that are words
        numbers = {word: number for number, word in enumerate(dict.fromkeys(y.tolist()))}
        names: tuple[str, ...] | None = tuple(numbers)
        y = np.array([numbers[word] for word in y.tolist()], np.int64)
    else:
        names = tuple(map(str, arrays["classes"].tolist())) if "classes" in arrays else None
        if y.dtype.kind not in "ui" or int(y.min()) < 0:
            raise DataError(f"{path}: labels are whole numbers from 0 on, or words, not {y.dtype}")
        if int(y.max()) >= MAX_CLASSES:
            raise DataError(f"{path}: label {int(y.max())}, and a model has at most {MAX_CLASSES:,} classes")
    return OwnData(x, y.astype(np.int64), names, np.zeros(len(y), np.bool_), False)
