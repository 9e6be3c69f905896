"""One file and one row: a data set registered at run time is found by everything that names data sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tmln.cli import app
from tmln.data import DATA, Arrays, BadData, DataError, DataSet, RemoteFile
from tmln.experiments.config import RunConfig
from tmln.streams import BENCHMARKS, Benchmark, make_stream
from tmln.streams.options import Count, SplitOptions


def read_toy(folder: Path, bad: BadData) -> Arrays:
    """Forty 4x4 images: image i of class i % 4 is filled with its class."""
    try:
        labels = np.load(folder / "labels.npy")
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / 'labels.npy'}: cannot be read ({error})") from error
    pixels = np.repeat(labels * 60, 16).reshape(-1, 4, 4).astype(np.uint8)
    return Arrays(pixels, labels, np.arange(len(labels)) % 5 == 4, ("a", "b", "c", "d"), (0.35,), (0.26,))


class ToyOptions(SplitOptions):
    """An option of its own."""

    colours: Count = 3
    """how many colours a toy has"""


TOY = DataSet(
    "Toy",
    "forty images of four toys",
    read_toy,
    {"training": 32, "test": 8},
    (RemoteFile("labels.npy", ("http://127.0.0.1:1/labels.npy",), 448, "0" * 32, "toy"),),
    {"toy": ("labels.npy",)},
)
SPLIT_TOY = Benchmark("Split Toy", "four toys, 2 tasks", "split", "toy", ToyOptions, tasks=2, model="mlp", epochs=2)


@pytest.fixture(autouse=True)
def _registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATA, "toy", TOY)
    monkeypatch.setitem(BENCHMARKS, "split-toy", SPLIT_TOY)
    monkeypatch.setenv("TMLN_DATA", str(tmp_path))


@pytest.fixture
def there(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    np.save(tmp_path / "toy" / "labels.npy", np.arange(40) % 4)


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "250"})
    assert result.exit_code == code, result.output
    return result.output


def test_it_is_listed_and_its_options_are_told() -> None:
    assert "forty images of four toys" in run("data", "list")
    assert "four toys, 2 tasks" in run("list", "benchmarks")
    said = " ".join(run("list", "benchmarks", "split-toy").split())
    assert "colours" in said
    assert "how many colours a toy has" in said
    assert "a whole number >= 1" in said


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("colours", 3, "unknown setting 'colours'; did you mean 'benchmark.colours'"),
        ("benchmark.colour", 3, "'colour' of split-toy; did you mean 'colours'"),
        (
            "benchmark.colours",
            0,
            "'colours' of split-toy is a whole number >= 1, not 0: how many colours a toy has",
        ),
    ],
)
def test_errors_know_its_options(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunConfig(benchmark="split-toy").with_setting(key, value)
    assert RunConfig(benchmark="split-toy").resolved()["benchmark_options"]["colours"] == 3


def test_it_is_missed_where_it_is_not(tmp_path: Path) -> None:
    assert "WRONG" in run("data", "check", "toy", code=1)
    with pytest.raises(DataError, match="run `tmln data get toy`"):
        make_stream("split-toy")


@pytest.mark.usefixtures("there")
def test_it_is_checked_by_reading_it(tmp_path: Path) -> None:
    assert "40 images in 4 classes (training 32, test 8)" in run("data", "check", "toy")
    np.save(tmp_path / "toy" / "labels.npy", np.arange(20) % 4)
    assert "training has 16 images, not 32" in run("data", "check", "toy", code=1)


@pytest.mark.usefixtures("there")
def test_it_is_learned(tmp_path: Path) -> None:
    stream = make_stream("split-toy")
    assert [task.classes for task in stream] == [(0, 1), (2, 3)]
    assert stream[1].train.x.unique().tolist() == [120, 180]
    words = ("run", "--benchmark", "split-toy", "--method", "naive", "--int-reference", "none", "--logger", "none")
    assert "naive" in run(*words, "--set", "benchmark.colours=2", "--runs", str(tmp_path / "runs"))
    assert "split-toy" in run("show", str(tmp_path / "runs"))
