"""The data sets that can be fetched: official addresses, sizes, checksums, and known layouts.

Sizes and MD5 sums were compared with several public copies of each; the size of CORe50's archive with one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set: it belongs into ``folder`` of the data root."""

    name: str
    urls: tuple[str, ...]
    size: int
    md5: str
    folder: str = ""


@dataclass(frozen=True)
class Layout:
    """A folder of the data root that holds these names, each plain or with .gz at its end."""

    folder: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class DataSet:
    """What to fetch, and every layout (ours, torchvision's, hand-made) that is recognised."""

    summary: str
    files: tuple[RemoteFile, ...]
    layouts: tuple[Layout, ...]
    archive: bool = True
    alternatives: tuple[RemoteFile, ...] = ()
    """archives that do as well when they are there, but are not fetched"""


def _layouts(folders: tuple[str, ...], names: tuple[str, ...]) -> tuple[Layout, ...]:
    return tuple(Layout(folder, names) for folder in folders)


def _idx(base_urls: tuple[str, ...], folder: str, sums: dict[str, tuple[int, str]]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(f"{name}.gz", tuple(f"{base}/{name}.gz" for base in base_urls), size, md5, folder)
        for name, (size, md5) in sums.items()
    )


TORONTO = "https://www.cs.toronto.edu/~kriz"
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _toronto(name: str, size: int, md5: str) -> RemoteFile:
    return RemoteFile(name, (f"{TORONTO}/{name}",), size, md5)


DATA: dict[str, DataSet] = {
    "cifar10": DataSet(
        "60,000 32x32 colour images, 10 classes",
        (_toronto("cifar-10-python.tar.gz", 170498071, "c58f30108f718f92721af3b95e74349a"),),
        (
            *_layouts(("cifar-10-batches-py", "cifar10/cifar-10-batches-py"), (*BATCHES, "test_batch")),
            *_layouts(
                ("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
                (*(f"{name}.bin" for name in BATCHES), "test_batch.bin"),
            ),
        ),
        alternatives=(_toronto("cifar-10-binary.tar.gz", 170052171, "c32a1d4ab5d03f1284b67883e8d87530"),),
    ),
    "cifar100": DataSet(
        "60,000 32x32 colour images, 100 classes",
        (_toronto("cifar-100-python.tar.gz", 169001437, "eb9058c3a382ffc7106e4002c42a8d85"),),
        (
            *_layouts(("cifar-100-python", "cifar100/cifar-100-python"), ("train", "test")),
            *_layouts(("cifar-100-binary", "cifar100/cifar-100-binary"), ("train.bin", "test.bin")),
        ),
        alternatives=(_toronto("cifar-100-binary.tar.gz", 168513733, "03b5dce01913d631647c71ecec9e9cb8"),),
    ),
    "mnist": DataSet(
        "70,000 28x28 handwritten digits",
        _idx(
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                "https://storage.googleapis.com/cvdf-datasets/mnist",
            ),
            "MNIST/raw",
            {
                "train-images-idx3-ubyte": (9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                "train-labels-idx1-ubyte": (28881, "d53e105ee54ea40749a09fcbcd1e9432"),
                "t10k-images-idx3-ubyte": (1648877, "9fb629c4189551a2d022fa330f9573f3"),
                "t10k-labels-idx1-ubyte": (4542, "ec29112dd5afa0611ce80d1b7f02629c"),
            },
        ),
        _layouts(("MNIST/raw", "mnist", "mnist/raw"), IDX_NAMES),
        archive=False,
    ),
    "fashion-mnist": DataSet(
        "70,000 28x28 pictures of clothes",
        _idx(
            (
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            ),
            "FashionMNIST/raw",
            {
                "train-images-idx3-ubyte": (26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                "train-labels-idx1-ubyte": (29515, "25c81989df183df01b3e8a0aad5dffbe"),
                "t10k-images-idx3-ubyte": (4422102, "bef4ecab320f06d8554ea6380940ec79"),
                "t10k-labels-idx1-ubyte": (5148, "bb300cfdad3c16e7a12a480ee83cd310"),
            },
        ),
        _layouts(("FashionMNIST/raw", "fashion-mnist", "fashion_mnist"), IDX_NAMES),
        archive=False,
    ),
    "tiny-imagenet": DataSet(
        "110,000 64x64 colour images, 200 classes",
        (
            RemoteFile(
                "tiny-imagenet-200.zip",
                ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
                248100043,
                "90528d7ca1a48142e341f4ef8d21d0de",
            ),
        ),
        _layouts(("tiny-imagenet-200", "tiny-imagenet/tiny-imagenet-200"), ("wnids.txt", "train", "val")),
    ),
    "core50": DataSet(
        "164,866 128x128 frames of 50 objects in 11 sessions",
        (
            RemoteFile(
                "core50_128x128.zip",
                ("http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip",),
                5892103007,
                "745f3373fed08d69343f1058ee559e13",
            ),
        ),
        _layouts(
            ("core50_128x128", "core50/core50_128x128", "core50"),
            tuple(f"s{number}" for number in range(1, 12)),
        ),
    ),
}
