"""List the readers of files of unknown origin, each as a function of bytes, and the errors that it may raise."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.torture.reached import (
    BadData,
    RunConfig,
    build_document,
    checksum_of,
    cifar,
    images,
    load_file,
    mnist,
    read_newest,
    read_result,
)

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "torture" / "corpus"
Reader = Callable[[bytes, Path], None]
COUNTS = {"data": 1}
CIFAR = replace(cifar.KIND10, train=COUNTS, test=COUNTS)
TENSORS = CORPUS / "tensors.safetensors"  # of a sound checkpoint, whose state the seeds of "state" are


def read_cifar(data: bytes, folder: Path) -> None:
    (folder / "data").write_bytes(data)
    cifar.read_cifar(folder, BadData("fuzz", False), CIFAR)


def read_cifar_binary(data: bytes, folder: Path) -> None:
    (folder / "data.bin").write_bytes(data)
    cifar.read_cifar(folder, BadData("fuzz", False), CIFAR)


def read_mnist(data: bytes, folder: Path) -> None:
    (folder / "data").write_bytes(data)
    mnist.read_idx(folder / "data", 3)


def read_image(data: bytes, folder: Path) -> None:
    (folder / "data").write_bytes(data)
    images.ImageReader(mode="RGB", size=8)(folder / "data")


def read_configuration(data: bytes, folder: Path) -> None:
    RunConfig.from_yaml(data.decode("utf-8", "replace"))


def read_a_result(data: bytes, folder: Path) -> None:
    (folder / "result.json").write_bytes(data)
    read_result(folder / "result.json")


def read_learner(data: bytes, folder: Path) -> None:
    (folder / "data").write_bytes(data)
    load_file(folder / "data")


def read_state(data: bytes, folder: Path) -> None:
    """Read a checkpoint's JSON behind a right checksum, which the writer of a file can compute."""
    try:
        content = json.loads(data)
        sealed = json.dumps({"checksum": zlib.crc32(json.dumps(content).encode()), "content": content})
    except (ValueError, RecursionError):
        sealed = data.decode("utf-8", "replace")
    place = folder / "00000001-step-1"
    place.mkdir(exist_ok=True)
    shutil.copyfile(TENSORS, place / "tensors.safetensors")
    (place / "state.json").write_text(sealed, encoding="utf-8", errors="replace")
    read_newest(folder)


def read_published_page(data: bytes, folder: Path) -> None:
    """Read a published file whose checksum is right, up to the page that is made of it."""
    try:
        content = json.loads(data)
        content.pop("checksum", None)
        sealed = json.dumps({**content, "checksum": checksum_of(content)}).encode()
    except (ValueError, RecursionError, AttributeError, TypeError):
        sealed = data
    (folder / "published.json").write_bytes(sealed)
    build_document(folder / "published.json")


READERS: dict[str, Reader] = {
    "cifar": read_cifar,
    "cifar-binary": read_cifar_binary,
    "mnist": read_mnist,
    "image": read_image,
    "configuration": read_configuration,
    "result": read_a_result,
    "learner": read_learner,
    "state": read_state,
    "published": read_published_page,
}


def seeds(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def wrong(reader: Reader, data: bytes, folder: Path) -> str:
    """What is wrong with a reader's answer to these bytes: it may take them, or raise a ValueError of one line."""
    try:
        reader(data, folder)
    except (ValueError, OSError) as error:
        text = str(error)
        if isinstance(error, UnicodeError) or not text or "\n" in text:
            return f"{type(error).__name__}: {text[:200]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]!r}"
    return ""


@contextmanager
def quiet_folder() -> Iterator[Path]:
    """Return a folder in memory, if there is one, and silence warnings about damaged files."""
    logging.getLogger("tmln").setLevel(logging.CRITICAL)
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="tmln-fuzz-", dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)
