"""One tiny copy of every data set, made once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.data import made
from tmln.data import DATA


@pytest.fixture(scope="session")
def made_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    made.make_idx(root / "MNIST" / "raw")
    made.make_idx(root / "FashionMNIST" / "raw")
    made.make_cifar10(root)
    made.make_cifar100(root)
    made.make_tiny_imagenet(root)
    made.make_core50(root)
    made.make_pacs(root)
    made.make_cub200(root)
    made.make_clinc150(root)
    made.make_banking77(root)
    made.make_olora(root)
    made.make_folder(root / "own", {"monday": {"cat": 5, "dog": 5}, "tuesday": {"cat": 5, "dog": 5}})
    return root


@pytest.fixture
def tiny_root(made_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made data; CIFAR's official numbers of images are set to what was made."""
    for name, row in made.small_rows().items():
        monkeypatch.setitem(DATA, name, row)
    return made_root


@pytest.fixture
def real_root() -> Path:
    if not os.environ.get("TMLN_DATA"):
        pytest.skip("TMLN_DATA is not set: no real data on this machine")
    return Path(os.environ["TMLN_DATA"])
