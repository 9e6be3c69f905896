"""Tiny data sets in the exact layouts of the real ones."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tmln.data import DATA, DataSet
from tmln.data.cifar import BATCHES, KIND10, KIND100, read_cifar
from tmln.data.domains import DOMAINS, PACS_CLASSES
from tmln.data.mnist import IDX_NAMES

SMALL10 = replace(KIND10, train=dict.fromkeys(BATCHES, 20), test={"test_batch": 20})
SMALL100 = replace(KIND100, train={"train": 300}, test={"test": 100})


def small_rows() -> dict[str, DataSet]:
    """CIFAR's rows, with the numbers of images that are made here; what a whole copy has stays official."""
    return {
        "cifar10": replace(DATA["cifar10"], read=partial(read_cifar, kind=SMALL10)),
        "cifar100": replace(DATA["cifar100"], read=partial(read_cifar, kind=SMALL100)),
    }


def idx(array: NDArray[np.uint8]) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def make_idx(folder: Path, train: int = 60, test: int = 30) -> None:
    """Image i of class i % 10 is filled with the value i."""
    folder.mkdir(parents=True)
    for count, (images, labels) in ((train, IDX_NAMES[:2]), (test, IDX_NAMES[2:])):
        numbers = np.arange(count, dtype=np.uint8)
        pixels = np.broadcast_to(numbers[:, None, None], (count, 28, 28)).copy()
        (folder / f"{images}.gz").write_bytes(gzip.compress(idx(pixels)))
        (folder / labels).write_bytes(idx(numbers % 10))


def cifar_rows(count: int, start: int = 0) -> NDArray[np.uint8]:
    """Image i has red i, green 100 + i, blue 200 + i % 50 all over, as CIFAR stores it: plane after plane."""
    number = np.arange(start, start + count)[:, None]
    planes = [np.repeat(values, 1024, axis=1) for values in (number % 100, 100 + number % 100, 200 + number % 50)]
    return np.concatenate(planes, axis=1).astype(np.uint8)


def make_cifar10(root: Path, per_batch: int = 20) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in (*BATCHES, "test_batch"):
        labels = [row % 10 for row in range(per_batch)]
        content = {b"data": cifar_rows(per_batch), b"labels": labels, b"batch_label": name.encode()}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    names = {b"label_names": [f"class{label}".encode() for label in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))
    return folder


def make_cifar100(root: Path, train: int = 300, test: int = 100) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, count in (("train", train), ("test", test)):
        labels = [row % 100 for row in range(count)]
        (folder / name).write_bytes(pickle.dumps({b"data": cifar_rows(count), b"fine_labels": labels}))
    return folder


def encoded(colour: tuple[int, int, int] | int, size: tuple[int, int], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    mode = "L" if isinstance(colour, int) else "RGB"
    Image.new(mode, size, colour).save(file, kind)
    return file.getvalue()


def make_tiny_imagenet(root: Path, classes: int = 200) -> Path:
    """One training image has a grey file, as some of the real ones have."""
    folder = root / "tiny-imagenet-200"
    identifiers = [f"n{number:08d}" for number in range(classes)]
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(reversed(identifiers)))
    (folder / "words.txt").write_text("".join(f"{name}\tthing {name}, other\n" for name in identifiers))
    notes = []
    for number, name in enumerate(identifiers):
        place = folder / "train" / name / "images"
        place.mkdir(parents=True)
        image = encoded((number, 0, 255 - number), (64, 64), "JPEG")
        for index in range(2):
            grey = number == 0 and index == 0
            data = encoded(77, (64, 64), "JPEG") if grey else image
            (place / f"{name}_{index}.JPEG").write_bytes(data)
        (folder / "val" / "images" / f"val_{number}.JPEG").write_bytes(image)
        notes.append(f"val_{number}.JPEG\t{name}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(notes) + "\n")
    return folder


def make_core50(root: Path, frames: int = 5) -> Path:
    """The frame's colour is (session, object, frame)."""
    folder = root / "core50_128x128"
    for session in range(1, 12):
        for item in range(1, 51):
            place = folder / f"s{session}" / f"o{item}"
            place.mkdir(parents=True)
            for frame in range(frames):
                name = f"C_{session:02d}_{item:02d}_{frame:03d}.png"
                (place / name).write_bytes(encoded((session, item, frame), (128, 128)))
    return folder


def make_pacs(root: Path, pictures: int = 5) -> Path:
    """Of each class in each domain; the colour is (domain, class, picture), ten times."""
    folder = root / "pacs"
    for domain, name in enumerate(DOMAINS):
        for label, title in enumerate(PACS_CLASSES):
            place = folder / name / title
            place.mkdir(parents=True)
            for picture in range(pictures):
                colour = (10 * domain, 10 * label, 10 * picture)
                (place / f"{picture:04d}.png").write_bytes(encoded(colour, (64, 64)))
    return folder


def make_cub200(root: Path, species: int = 200) -> Path:
    """Two training images and a test image of each species; the colour is (species, image, role)."""
    folder = root / "cub200"
    for role, (split, count) in enumerate((("train", 2), ("test", 1))):
        for label in range(species):
            place = folder / split / f"{label + 1:03d}.Bird_of_kind_{label}"
            place.mkdir(parents=True)
            for index in range(count):
                (place / f"{index:04d}.png").write_bytes(encoded((label, index, role), (8, 8)))
    return folder


def make_official_cub200(root: Path) -> Path:
    """Three species, two images of each, in the layout of the official archive; the last of each is for tests."""
    folder = root / "CUB_200_2011"
    paths = [f"{label:03d}.Bird_{label}/Bird_{label}_{index}.jpg" for label in (1, 2, 10) for index in range(2)]
    for number, path in enumerate(paths):
        (folder / "images" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / path).write_bytes(encoded((40 * number, 0, 0), (30, 20), "JPEG"))
    (folder / "images.txt").write_text("".join(f"{n} {path}\n" for n, path in enumerate(paths, 1)))
    (folder / "train_test_split.txt").write_text("".join(f"{n} {n % 2}\n" for n in range(1, 7)))
    return folder


def make_folder(
    root: Path, tree: dict[str, dict[str, int]], size: tuple[int, int] = (10, 10), test: bool = False
) -> Path:
    """PATH/task/class/image; a task "" puts the class folders at the top."""
    for task, classes in tree.items():
        for name, count in classes.items():
            place = (root / task / name) if task else root / name
            place.mkdir(parents=True)
            for index in range(count):
                colour = (index, 100 if test else 0, sum(name.encode()) % 256)
                (place / f"{index}.png").write_bytes(encoded(colour, size))
    return root


def make_clinc150(root: Path, texts: int = 3) -> Path:
    """Of each intent three texts to learn and two to test, and some of no intent; 10 domains of 15 intents."""
    folder = root / "clinc150"
    folder.mkdir(parents=True)
    domains = {f"domain {d}": [f"intent_{15 * d + i}" for i in range(15)] for d in range(10)}
    names = [name for intents in reversed(domains.values()) for name in intents]
    content = {
        part: [[f"please do the {name} now {part} {k}", name] for name in names for k in range(count)]
        for part, count in (("train", texts), ("val", 1), ("test", 2))
    }
    content |= {f"oos_{part}": [[f"nothing of that {k}", "oos"] for k in range(7)] for part in ("train", "val", "test")}
    (folder / "data_full.json").write_text(json.dumps(content))
    (folder / "domains.json").write_text(json.dumps(domains))
    return folder


def make_banking77(root: Path) -> Path:
    """Three texts of each category to learn, one of them with commas and quotes, and two to test."""
    folder = root / "banking77"
    folder.mkdir(parents=True)
    for part, count in (("train", 3), ("test", 2)):
        rows = [f'"my ""card"", number {k}, and {c}",category_{c:02d}' for k in range(count) for c in range(77)]
        (folder / f"{part}.csv").write_text("\r\n".join(["text,category", *rows]) + "\r\n")
    return folder


def make_olora(root: Path, texts: int = 5) -> Path:
    """Amazon and Yelp with the same two classes, Yelp without a test file, DBpedia with nothing else."""
    folder = root / "CL_Benchmark"
    feelings, topics, things = ("positive", "negative"), ("World", "Sports"), ("Plant", "Film", "Album")
    files = [
        ("SC/amazon/train", feelings), ("SC/amazon/test", feelings), ("SC/yelp/train", feelings),
        ("TC/agnews/train", topics), ("TC/agnews/test", topics), ("TC/dbpedia/test", things),
    ]  # fmt: skip
    for path, labels in files:
        place = folder / f"{path}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"sentence": f"{path} {k} says {label}", "label": label} for k in range(texts) for label in labels]
        place.write_text(json.dumps(rows))
    return folder
