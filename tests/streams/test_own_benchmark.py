"""Benchmarks of one's own data: what functions and files give, columns, layout, and the fingerprint."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset
from typer.testing import CliRunner

import tmln
from tmln.analysis.read import read_results
from tmln.cli import app
from tmln.cli.options import parse_configs
from tmln.data import DataError
from tmln.experiments.command import changed_of, command_of
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.identity import run_name
from tmln.experiments.result import checksum_of
from tmln.streams import make_stream
from tmln.streams.benchmarks import split_name
from tmln.streams.options import OwnOptions
from tmln.streams.own_benchmark import OwnArrays, _load_once, from_arrays, from_dataset, read_splits, to_channels_first


def images(count: int = 40, size: int = 8, channels: int = 3, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.RandomState(seed).randint(0, 255, (count, size, size, channels)).astype(np.uint8)


LABELS = np.arange(40) % 4
OPTIONS = OwnOptions(path="memory")


def read(found: Any, **options: Any) -> OwnArrays:
    return read_splits(found, OwnOptions(path="memory", **options))


def make_arrays() -> Any:
    """Data that ``--benchmark`` names as a function of this module."""
    return images(), LABELS


NOT_A_FUNCTION = 3


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ((5, 8, 9, 3), "auto", (5, 3, 8, 9)),
        ((5, 3, 8, 9), "auto", (5, 3, 8, 9)),
        ((5, 8, 9, 1), "auto", (5, 1, 8, 9)),
        ((5, 3, 8, 3), "hwc", (5, 3, 3, 8)),
        ((5, 3, 8, 3), "chw", (5, 3, 8, 3)),
        ((5, 16, 4, 5), "chw", (5, 16, 4, 5)),
        ((5, 7), "auto", (5, 7)),
    ],
)
def test_the_layout_of_images(shape: tuple[int, ...], layout: Any, expected: tuple[int, ...]) -> None:
    assert tuple(to_channels_first(torch.zeros(shape), layout).shape) == expected


@pytest.mark.parametrize("shape", [(5, 3, 8, 3), (5, 3, 3, 3), (5, 16, 7, 16)])
def test_a_layout_that_sizes_do_not_show_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"is it \[N, C, H, W\] or \[N, H, W, C\]\? set benchmark\.layout=chw or hwc"):
        to_channels_first(torch.zeros(shape))


def test_grey_images_get_a_channel_and_values_stay() -> None:
    x = torch.arange(2 * 8 * 9, dtype=torch.uint8).reshape(2, 8, 9)
    assert torch.equal(to_channels_first(x)[:, 0], x)
    colour = images(3)
    assert torch.equal(to_channels_first(torch.from_numpy(colour))[1, 2], torch.from_numpy(colour[1, :, :, 2]))


class Pairs(Dataset[Any]):
    """As torchvision's: (input, label), with names of classes."""

    def __init__(self, x: Any, y: Any, classes: list[str] | None = None) -> None:
        self.x, self.y = x, y
        if classes:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self.x[row], int(self.y[row])


def test_whatever_gives_the_same_samples_has_the_same_fingerprint() -> None:
    x, y = images(), LABELS
    chw = torch.from_numpy(x).permute(0, 3, 1, 2)
    found = [
        read((x, y)),
        read((torch.from_numpy(x), torch.from_numpy(y))),
        read((chw, y)),
        read({"x": x, "y": y}),
        read({"train": (x, y)}),
        read(Pairs(x, y)),
        read(TensorDataset(chw, torch.from_numpy(y))),
    ]
    assert len({one.fingerprint for one in found}) == 1
    assert len(found[0].fingerprint) == 16
    changed = x.copy()
    changed[7, 0, 0, 0] ^= 1
    assert read((changed, y)).fingerprint != found[0].fingerprint
    assert read((x, (y + 1) % 4)).fingerprint != found[0].fingerprint


def test_a_share_of_each_class_is_held_out_unless_a_test_set_is_given() -> None:
    found = read((images(), LABELS))
    assert [len(found.train[1]), len(found.test[1])] == [32, 8]
    assert torch.bincount(found.test[1]).tolist() == [2, 2, 2, 2]
    both = torch.cat([found.train[0], found.test[0]]).flatten(1)
    assert len(torch.unique(both, dim=0)) == 40
    given = read((images(), LABELS, images(8, seed=1), np.arange(8) % 4))
    assert torch.equal(given.train[1], torch.from_numpy(LABELS))
    assert len(given.test[1]) == 8
    pair = read((Pairs(images(), LABELS, ["a", "b", "c", "d"]), Pairs(images(8, seed=1), np.arange(8) % 4)))
    assert torch.equal(pair.test[0], given.test[0])
    assert pair.names == ("a", "b", "c", "d")


def test_words_are_labels() -> None:
    words = np.array(["owl", "ant", "cat", "bee"])[LABELS]
    found = read((images(), words))
    assert found.names == ("ant", "bee", "cat", "owl")
    again = read((images(), LABELS), seed=0)
    assert sorted(torch.bincount(found.train[1]).tolist()) == sorted(torch.bincount(again.train[1]).tolist())
    with pytest.raises(DataError, match="'eel' is none of the classes"):
        read_splits((images(4), ["ant", "eel", "ant", "ant"]), OPTIONS, ["ant", "bee"])


class Rows:
    """A Hugging Face dataset as far as it is read."""

    class _Label:
        names = ("ant", "bee", "cat", "owl")

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns, self.column_names = columns, list(columns)
        self.features = {name: self._Label() if "fine" in name else None for name in columns}

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


def test_columns_are_chosen_by_name() -> None:
    columns = {"img": list(images()), "fine_label": LABELS.tolist(), "coarse_label": (LABELS // 2).tolist()}
    with pytest.raises(DataError, match=r"which column is the label\? .*\(columns: img, fine_label, coarse_label\)"):
        read(Rows(columns))
    found = read(Rows(columns), label="fine_label", input="img")
    assert found.names == ("ant", "bee", "cat", "owl")
    assert found.fingerprint == read_splits((images(), LABELS), OPTIONS, found.names).fingerprint
    with pytest.raises(DataError, match=r"no column 'lable' for the label \(columns: img, fine_label, coarse_label\)"):
        read(Rows(columns), label="lable")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (images(), "a ndarray is no data|not \\(input, label\\)"),
        ((images(), LABELS[:3]), "3 labels"),
        ((1, 2, 3), "3 values: give"),
        ({"dev": 1}, "no split 'train' among dev"),
        (object(), "a object is no data"),
        (Pairs([np.zeros((2, 2)), np.zeros((3, 3))], [0, 1]), "resize them to one size"),
        (Pairs(["a", "b"], [0, 1]), "no picture and no array"),
        ((images(), LABELS, images(8, size=9), np.arange(8) % 4), "those to test on"),
        ((images(0), LABELS[:0]), "inputs"),
    ],
)
def test_mistakes_are_named(found: Any, words: str) -> None:
    with pytest.raises((DataError, TypeError), match=words):
        read(found)


# -- by name --


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("my.data:make", "own"),
        ("hf:cifar100", "own"),
        ("data.npz", "own"),
        ("table.csv", "own"),
        ("a/b.parquet", "own"),
        ("own:my.data:make", "own"),
        ("folder:photos", "folder"),
        ("foldr:photos", "foldr"),
        ("split-digits", "split-digits"),
    ],
)
def test_names(name: str, row: str) -> None:
    assert split_name(name)[0] == row


def test_a_function_is_called_where_code_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{__name__}:make_arrays"
    monkeypatch.delenv("TMLN_ALLOW_CODE", raising=False)
    _load_once.cache_clear()
    with pytest.raises(ValueError, match=r"is code outside tmln.*tmln --allow-code"):
        RunConfig.of({"benchmark": name})
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")
    config = RunConfig.of({"benchmark": name, "method": "naive"})
    full = config.resolved()
    assert full["benchmark"] == "own"
    assert full["benchmark_options"]["fingerprint"] == read(make_arrays()).fingerprint
    assert command_of(config).endswith(f"--benchmark own:{name} --method naive --seeds 1 --allow-code")
    stream = make_stream(name, tasks=2)
    assert (len(stream), stream.shape) == (2, (3, 8, 8))
    with pytest.raises(DataError, match="is a int, not a function"):
        make_stream(f"{__name__}:NOT_A_FUNCTION")
    monkeypatch.delenv("TMLN_ALLOW_CODE")
    assert RunConfig.from_yaml(config.to_yaml()).resolved() == full  # a stored run is read without its data


def test_changed_data_are_another_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    np.savez(file, x=images(), y=LABELS)
    first = RunConfig.of({"benchmark": str(file), "method": "naive"})
    stored = RunConfig.from_yaml(first.to_yaml())
    assert run_id(stored) == run_id(first)
    assert changed_of(first) == []
    np.savez(file, x=images(seed=1), y=LABELS)
    second = RunConfig.of({"benchmark": str(file), "method": "naive"})
    assert run_id(second) != run_id(first)
    with pytest.raises(DataError, match=r"the data have changed since the run began"):
        make_stream("own", **stored.benchmark_options)
    np.savez(file, x_train=images(), y_train=LABELS, x_test=images(8, seed=2), y_test=LABELS[:8])
    assert len(make_stream(str(file))) == 2


def test_a_table_of_paths(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    x = images(12, size=16)
    rows = []
    for row, pixels in enumerate(x):
        image.fromarray(pixels).save(tmp_path / f"{row}.png")
        rows.append({"path": f"{row}.png", "label": ["ant", "bee"][row % 2], "split": "test" if row > 7 else "train"})
    table = tmp_path / "table.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    stream = make_stream(str(table), tasks=2, size=16)
    assert stream.class_names == ("ant", "bee")
    assert [len(task.train) for task in stream] == [4, 4]
    assert torch.equal(stream[0].train.gather(torch.tensor([0]))[0][0], torch.from_numpy(x[0]).permute(2, 0, 1))
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "table.parquet")
    again = make_stream(str(tmp_path / "table.parquet"), tasks=2, size=16)
    assert torch.equal(again[1].test.y, stream[1].test.y)
    table.write_text("path,kind\n0.png,ant\n")
    with pytest.raises(DataError, match=r"which column is the label\? .*\(columns: path, kind\)"):
        make_stream(str(table))


def test_a_command_names_the_columns_beside_other_settings(tmp_path: Path) -> None:
    """Data are read when a configuration is checked: not before all of their options are there."""
    image = pytest.importorskip("PIL.Image")
    for row, pixels in enumerate(images(12, size=16)):
        image.fromarray(pixels).save(tmp_path / f"{row}.png")
    table = tmp_path / "table.csv"
    table.write_text("path,kind\n" + "".join(f"{row}.png,{'ab'[row % 2]}\n" for row in range(12)))
    options = ["benchmark.label=kind", "benchmark.size=16", "benchmark.tasks=2", "batch_size=4"]
    found = parse_configs(str(table), ["naive", "er"], 1, 2, [*options, "replay.capacity=5"])
    assert [config.benchmark_options["label"] for config in found] == ["kind", "kind"]
    assert [config.epochs for config in found] == [2, 2]
    with pytest.raises(DataError, match="no column 'kinds'"):
        parse_configs(str(table), ["er"], 1, 2, ["benchmark.label=kinds"])


@pytest.mark.filterwarnings("ignore")  # of datasets
def test_hugging_face_folders(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pictures = [pytest.importorskip("PIL.Image").fromarray(pixels) for pixels in images(24)]
    columns = {"img": pictures, "fine_label": LABELS[:24].tolist()}
    kinds = {"img": datasets.Image(), "fine_label": datasets.ClassLabel(names=["a", "b", "c", "d"])}
    features = datasets.Features(kinds)
    one = datasets.Dataset.from_dict(columns, features=features)
    both = datasets.DatasetDict({"train": one, "test": one.select(range(8))})
    both.save_to_disk(str(tmp_path / "saved"))
    stream = make_stream(f"hf:{tmp_path / 'saved'}", tasks=2, label="fine_label")
    assert stream.class_names == ("a", "b", "c", "d")
    assert sum(len(task.test) for task in stream) == 8
    assert torch.equal(from_dataset(both, label="fine_label", tasks=2)[0].train.y, stream[0].train.y)
    with pytest.raises(DataError, match=r"which column is the label\? .*\(columns: img, fine_label\)"):
        make_stream(f"hf:{tmp_path / 'saved'}")
    with pytest.raises(DataError, match="cannot be loaded"):
        make_stream(f"hf:{tmp_path / 'saved' / 'train' / 'nothing'}")


def test_a_command_runs_on_a_function(tmp_path: Path) -> None:
    words = ["--benchmark", f"{__name__}:make_arrays", "--methods", "naive,er", "--epochs", "1", "--seeds", "1"]
    words += ["--oracle", "none", "--logger", "none", "--executor", "serial", "--runs", str(tmp_path)]
    refused = CliRunner().invoke(app, ["compare", *words], env={"TMLN_ALLOW_CODE": ""})
    assert refused.exit_code != 0
    assert "is code outside tmln" in str(refused.exception)
    done = CliRunner().invoke(app, ["compare", "--allow-code", *words], env={"TMLN_ALLOW_CODE": "", "COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(app, ["show", str(tmp_path)], env={"TMLN_ALLOW_CODE": ""})
    assert shown.exit_code == 0, shown.output  # without leave: what is stored needs no code
    assert "naive" in shown.output


@pytest.mark.parametrize("benchmark", ["own", "hf:somebody/data"])
def test_a_result_of_somebody_loads_no_data(benchmark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration without a fingerprint would have its data read, or downloaded, to take one."""
    called: list[str] = []
    monkeypatch.setattr("tmln.streams.own_benchmark.load_hugging_face", called.append)
    config = {"benchmark": benchmark, "method": "er", "seed": 0, "benchmark_options": {"path": "hf:somebody/data"}}
    content = {"format": 2, "benchmark": "own", "method": "er", "seed": 0, "config": config}
    content |= {"accuracy": [[1.0]], "metrics": {}}
    folder = tmp_path / run_name(config)
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps({**content, "checksum": checksum_of(content)}))
    results, problems = read_results(tmp_path)
    assert not results
    assert "its data have no fingerprint" in problems[0].reason
    assert not called


# -- in Python --


def test_one_call_compares_methods_on_arrays(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(160) % 4
    x: Tensor = torch.eye(4)[y] * 3 + torch.randn(160, 4, generator=generator)
    stream = from_arrays(x, y, tasks=2)
    options: dict[str, Any] = {"epochs": 1, "batch_size": 16, "oracle": "none", "runs": tmp_path}
    found = tmln.compare(stream, {"naive": "naive", "mine": "er"}, seeds=2, settings={"replay.capacity": 20}, **options)
    assert sorted(row.label for row in found.rows) == ["mine replay.capacity=20", "naive"]
    assert "| naive | 2 |" in str(found)
    assert len(found) == 4
    again = tmln.compare(from_arrays(x, y, tasks=2), ["naive"], seeds=1, **options)
    assert again[0].name in {result.name for result in found}  # the same data are the same run
    other = tmln.compare(from_arrays(x + 1, y, tasks=2), ["naive"], seeds=1, **options)
    assert other[0].name not in {result.name for result in found}
    pandas = pytest.importorskip("pandas")
    table = tmln.read_results(tmp_path).to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert len(table) == 5
    assert set(table["method"]) == {"naive", "er"}
    assert table["acc"].between(0, 1).all()


def test_options_of_a_stream_are_given_where_it_is_made() -> None:
    with pytest.raises(DataError, match=r"benchmark.tasks is an option of the stream itself: pass tasks= to from_arr"):
        make_stream("own:memory", tasks=3)
    with pytest.raises(DataError, match="were given by a program"):
        make_stream("own:memory", fingerprint="0123")
