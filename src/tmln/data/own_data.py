"""Data of the user's own, by its place: a folder of classes (or of domains with classes), or a file of arrays."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tmln.data.bad_data import BadData, DataError
from tmln.data.files import data_root, read_bounded
from tmln.data.folder import entries, read_folder
from tmln.data.image_files import load_images
from tmln.data.images import FORMATS, ImageReader, Pixels, QuickReader

USUAL_SIDE = 64  # pixels, to which larger pictures are resized unless another side is asked for
LEAST_SIDE = 8
MOST_ARRAYS = 1 << 33  # bytes of an .npz, packed or unpacked
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


@dataclass(frozen=True, eq=False)
class OwnData:
    """Pixels [N, H, W, C] or plain arrays [N, ...], a label each, what the labels are called, and where from.

    ``tested`` are those that a folder ``test`` beside ``train`` holds: they are for testing alone.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    names: tuple[str, ...] | None
    tested: NDArray[np.bool_]
    pictures: bool
    paths: tuple[Path, ...] = ()


def read_own(place: str | Path, shape: Sequence[int] | None = None, side: int | None = None) -> OwnData:
    """What is at ``place``: pictures below ``place/class`` or ``place/domain/class``, or the arrays of an ``.npz``.

    ``shape`` is what a model takes, [C, H, W]: pictures are made so. Without it, ``side`` or the pictures decide.
    """
    path = Path(place).expanduser()
    if path.suffix == ".npz":
        return _read_arrays(path)
    if not path.exists():
        raise DataError(f"{path}: no such folder or file")
    if not path.is_dir():
        raise DataError(f"{path}: neither a folder of classes nor a file .npz of arrays")
    with BadData(str(path), False) as bad:
        files = read_folder(path, bad, ImageReader())
        paths = [file.path for file in files.files]
        pixels, kept = load_images(paths, reader_for(paths, shape, side), bad, data_root() / "prepared" / "own")
    sound = [files.files[row] for row in kept]
    split = (path / "train").is_dir() and (path / "test").is_dir()
    return OwnData(
        pixels[kept] if len(kept) < len(pixels) else pixels,
        np.array([file.label for file in sound], np.int64),
        files.class_names,
        np.array([split and file.test for file in sound], np.bool_),
        True,
        tuple(file.path for file in sound),
    )


def reader_for(paths: Sequence[Path], shape: Sequence[int] | None, side: int | None) -> ImageReader:
    """How these pictures become of one size and one number of channels, whatever mixture they are.

    Those that are of one size already stay so, up to 64 pixels; else the side is the median of the shorter sides,
    or 64. They are grey if all are.
    """
    if shape is not None:
        if len(shape) != 3 or shape[0] not in (1, 3) or shape[1] != shape[2]:
            raise DataError(f"the model takes inputs of shape {tuple(shape)}; pictures become [1 or 3, side, side]")
        return QuickReader("L" if shape[0] == 1 else "RGB", int(shape[1]))
    looked = [found for path in paths if (found := _look(path)) is not None]
    if not looked:
        raise DataError(f"no readable picture among {len(paths)} file(s){f', first {paths[0]}' if paths else ''}")
    grey = all(mode in ("1", "L") for mode, _ in looked)
    sizes = [size for _, size in looked]
    if side is None:
        shorter = sorted(min(size) for size in sizes)
        side = max(LEAST_SIDE, min(USUAL_SIDE, int(median(shorter))))
    if side < LEAST_SIDE:
        raise DataError(f"pictures of {side} pixels are too small; at least {LEAST_SIDE}")
    return QuickReader("L" if grey else "RGB", side)


def _look(path: Path) -> tuple[str, tuple[int, int]] | None:
    """Mode and size, from the beginning of the file alone; None of what is no picture, which reading will tell."""
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
    """The pictures among these files, and in and below these folders, in natural order."""
    found: list[Path] = []
    for place in places:
        path = Path(place).expanduser()
        if path.is_dir():
            inside = entries(path)
            found += [p for p in inside if not p.is_dir() and p.suffix.lower() in SUFFIXES]
            found += find_pictures(p for p in inside if p.is_dir())
        elif path.exists():
            found.append(path)
        else:
            raise DataError(f"{path}: no such file or folder")
    return found


def read_pictures(paths: Sequence[Path], shape: Sequence[int]) -> Pixels:
    """These pictures, as a model of this input shape takes them; one that cannot be read is an error that names it."""
    with BadData("pictures", False) as bad:
        return load_images(paths, reader_for(paths, shape, None), bad, data_root() / "prepared" / "own")[0]


def read_inputs(path: Path, shape: Sequence[int]) -> NDArray[Any]:
    """The array ``x`` of an ``.npz``, whose rows are of this shape; labels in it are not looked at."""
    x = _arrays(path, ("x",))["x"]
    if x.dtype.kind not in "uif" or x.ndim < 1 or list(x.shape[1:]) != list(shape) or not len(x):
        raise DataError(f"{path}: x is {x.dtype} {list(x.shape)}; the model takes [N, {', '.join(map(str, shape))}]")
    return x


def _arrays(path: Path, needed: Sequence[str]) -> dict[str, NDArray[Any]]:
    """What an ``.npz`` holds; nothing that would have to be unpickled."""
    data = read_bounded(path, MOST_ARRAYS)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            if (size := sum(part.file_size for part in packed.infolist())) > MOST_ARRAYS:
                raise DataError(f"{path}: cannot be read ({size:,} bytes unpacked, more than {MOST_ARRAYS:,})")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except DataError:
        raise
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())}); plain arrays x and y") from error
    if missing := [name for name in needed if name not in arrays]:
        wanted = " and ".join(needed)
        raise DataError(f"{path}: has no array {missing[0]!r} (arrays: {', '.join(arrays) or 'none'}); save {wanted}")
    return arrays


def _read_arrays(path: Path) -> OwnData:
    """``x`` and ``y``, and ``classes`` if the labels have names."""
    arrays = _arrays(path, ("x", "y"))
    x, y = arrays["x"], arrays["y"]
    if x.dtype.kind not in "uif" or len(x) != len(y) or y.ndim != 1 or not len(y):
        raise DataError(
            f"{path}: x is {x.dtype} {list(x.shape)}, y {y.dtype} {list(y.shape)}; one label for each input"
        )
    if y.dtype.kind == "U":  # labels that are words
        met = list(Counter(y.tolist()))
        names: tuple[str, ...] | None = tuple(met)
        y = np.array([met.index(word) for word in y.tolist()], np.int64)
    else:
        names = tuple(map(str, arrays["classes"].tolist())) if "classes" in arrays else None
        if y.dtype.kind not in "ui" or (len(y) and int(y.min()) < 0):
            raise DataError(f"{path}: labels are whole numbers from 0 on, or words, not {y.dtype}")
    return OwnData(x, y.astype(np.int64), names, np.zeros(len(y), np.bool_), False)
