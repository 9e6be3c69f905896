"""Every row of the table of benchmarks, on made data; the same on real data where it is at hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tmln.data import DATA
from tmln.data.registry import find
from tmln.streams import BENCHMARKS, Samples, Stream, concat, make_stream

TEXTS = [name for name, row in BENCHMARKS.items() if row.model == "minilm"]
SIZES = {"core50": {"size": 24, "per_class": 3, "per_class_test": 2}, "split-cub200": {"size": 16}}


def made(name: str, root: Path, **options: object) -> Stream:
    called = {"folder": f"folder:{root / 'own'}", "own": str(root / "own.npz")}.get(name, name)
    if name == "own":
        pixels = np.random.RandomState(0).randint(0, 255, (80, 8, 8, 3)).astype(np.uint8)
        np.savez(root / "own.npz", x=pixels, y=np.arange(80) % 4)
    return make_stream(called, root=root, **{**SIZES.get(name, {}), **options})


def parts(stream: Stream) -> Iterator[tuple[str, Samples]]:
    for task in stream:
        yield f"{task.name} train", task.train
        yield f"{task.name} test", task.test
    yield from stream.extra_tests.items()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_stream_is_whole(name: str, tiny_root: Path) -> None:
    stream = made(name, tiny_root)
    assert stream.name.startswith(name)
    assert len(stream) == len(list(stream)) == len(stream.tests) > 1
    assert {label for task in stream for label in task.classes} == set(range(stream.classes))
    assert stream.seen(len(stream) - 1) == tuple(range(stream.classes))
    assert json.loads(json.dumps(stream.metadata)) == stream.metadata  # it goes into a run's result
    assert stream.metadata["scenario"] in ("class-incremental", "domain-incremental")
    for where, samples in parts(stream):
        assert len(samples) > 0, where
        assert samples.x.dtype == (torch.int32 if name in TEXTS else torch.uint8), where
        assert samples.x.shape == (len(samples), *samples.shape), where
    for task in stream:
        assert task.train.classes == task.test.classes == task.classes
        assert (task.domain is None) == (stream.metadata["scenario"] == "class-incremental")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_batch_becomes_what_the_model_sees(name: str, tiny_root: Path) -> None:
    stream = made(name, tiny_root)
    x, y = stream[0].train.gather(torch.tensor([1, 0, 1]))
    assert y.tolist() == stream[0].train.y[[1, 0, 1]].tolist()
    assert torch.equal(x[0], x[2])
    first = stream.augment(x, torch.Generator().manual_seed(7))
    again = stream.augment(x, torch.Generator().manual_seed(7))
    plain = stream.prepare(x)
    assert torch.equal(first, again)
    for batch in (first, plain):
        assert batch.dtype == (torch.int32 if name in TEXTS else torch.float32)
        assert batch.shape == (3, *stream.shape)
        assert name in TEXTS or batch.is_contiguous(memory_format=torch.channels_last)
        assert bool(torch.isfinite(batch).all())
    assert torch.equal(plain[:1], stream.prepare(x[:1]))  # a test never depends on its batch


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_same_options_make_the_same_stream(name: str, tiny_root: Path) -> None:
    for one, other in zip(made(name, tiny_root, seed=3), made(name, tiny_root, seed=3), strict=True):
        assert torch.equal(one.train.y, other.train.y)
        assert torch.equal(one.train.x, other.train.x)
        assert torch.equal(one.test.x, other.test.x)


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_blurry_and_repeated_boundaries_keep_every_sample(name: str, tiny_root: Path) -> None:
    plain = made(name, tiny_root)
    blurry = made(name, tiny_root, blurry=0.5, repeats=2)
    assert len(blurry) == 2 * len(plain)
    before, after = concat([task.train for task in plain]), concat([task.train for task in blurry])
    assert before.y.bincount().tolist() == after.y.bincount().tolist()
    assert before.x.sum(dtype=torch.int64) == after.x.sum(dtype=torch.int64)
    visits = zip(blurry.tests[: len(plain)], blurry.tests[len(plain) :], strict=True)
    assert all(first is second for first, second in visits)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_subsets_for_small_machines(name: str, tiny_root: Path) -> None:
    for task in made(name, tiny_root, per_class=2, per_class_test=1):
        assert task.train.y.bincount()[list(task.classes)].tolist() == [2] * len(task.classes)
        assert task.test.y.bincount()[list(task.classes)].tolist() == [1] * len(task.classes)


@pytest.mark.parametrize("kind", ["none", "crop-flip", "paper", "resized-crop"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_augmentation_of_every_benchmark(name: str, kind: str, tiny_root: Path) -> None:
    if name == "permuted-mnist" and kind != "none":
        with pytest.raises(ValueError, match=f"augment={kind} makes no sense"):
            made(name, tiny_root, augment=kind)
        return
    if name in TEXTS and kind != "none":
        with pytest.raises(ValueError, match=f"augment={kind} varies images"):
            made(name, tiny_root, augment=kind)
        return
    stream = made(name, tiny_root, augment=kind)
    x, _ = stream[0].train.gather(torch.arange(8) % len(stream[0].train))
    varied, plain = stream.augment(x, torch.Generator().manual_seed(1)), stream.prepare(x)
    assert varied.shape == plain.shape == (8, *stream.shape)
    assert kind != "none" or torch.equal(varied, plain)
    if kind == "paper":
        pixels = made(name, tiny_root, augment=kind, normalise=False)
        crop = made(name, tiny_root, augment="crop-flip", normalise=False)
        one, other = (s.augment(x, torch.Generator().manual_seed(1)) for s in (pixels, crop))
        assert not torch.equal(one, other)  # the brightness


def test_digits_are_shifted_by_an_eighth_of_their_side() -> None:
    """By one pixel of eight: the row of ones stays within a pixel of where it was, the rest is black."""
    stream = make_stream("split-digits", augment="crop-flip", normalise=False)
    x = torch.zeros(64, 1, 8, 8, dtype=torch.uint8)
    x[:, :, 3] = 255
    rows = stream.augment(x, torch.Generator().manual_seed(0)).sum(3).argmax(2)
    assert set(rows.flatten().tolist()) == {2, 3, 4}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_without_normalisation_inputs_are_pixels_from_0_to_1(name: str, tiny_root: Path) -> None:
    plain, normalised = made(name, tiny_root, normalise=False), made(name, tiny_root)
    assert set(plain.mean) == {0.0}
    assert set(plain.std) == {1.0}
    x, _ = plain[0].train.gather(torch.arange(6) % len(plain[0].train))
    pixels = plain.prepare(x)
    if name in TEXTS:
        assert torch.equal(pixels, x)
        return
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    if pixels.shape == x.shape:
        torch.testing.assert_close(pixels, x / 255)
    mean, std = (torch.tensor(value).view(-1, 1, 1) for value in (normalised.mean, normalised.std))
    torch.testing.assert_close((pixels - mean) / std, normalised.prepare(x))


def test_pictures_are_read_at_the_size_asked_for(tiny_root: Path) -> None:
    assert make_stream("pacs", root=tiny_root).shape == (3, 64, 64)
    assert make_stream("pacs", root=tiny_root, size=32).shape == (3, 32, 32)
    assert make_stream("split-cub200", root=tiny_root, size=24).shape == (3, 24, 24)


def test_frames_are_not_shifted(tiny_root: Path) -> None:
    with pytest.raises(ValueError, match="use augment=crop-flip or none"):
        made("core50", tiny_root, augment="shift-flip")


@pytest.mark.parametrize("name", [name for name, row in BENCHMARKS.items() if row.data not in (None, "digits")])
def test_without_data_the_error_says_what_to_put_where(name: str, tmp_path: Path) -> None:
    data = BENCHMARKS[name].data
    assert data is not None
    with pytest.raises(ValueError) as caught:
        make_stream(name, root=tmp_path)
    for file in DATA[data].files:
        assert str(tmp_path / file.folder / file.name) in str(caught.value)
        assert file.urls[0] in str(caught.value)
        assert f"{file.size:,} bytes, MD5 {file.md5}" in str(caught.value)
    remedy = f"tmln data get {data}" if DATA[data].files else DATA[data].home
    assert remedy in str(caught.value)


EXPECTED = {
    "pacs": (4, 7_993, 1_998),
    "split-cub200": (10, 5_994, 5_794),
    "split-mnist": (5, 60_000, 10_000),
    "permuted-mnist": (10, 600_000, 100_000),
    "rotated-mnist": (10, 600_000, 100_000),
    "split-cifar10": (5, 50_000, 10_000),
    "split-cifar100": (10, 50_000, 10_000),
    "split-clinc150": (10, 15_000, 4_500),
    "split-banking77": (7, 10_003, 3_080),
    "text-domains": (4, 4_000 + 5_000 + 6_081 + 4_000, 7_600 + 7_600 + 1_519 + 1_000),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_real_data(name: str, real_root: Path) -> None:
    data = BENCHMARKS[name].data
    assert data is not None
    if find(DATA[data], real_root) is None:
        pytest.skip(f"{data} is not under TMLN_DATA")
    stream = make_stream(name, root=real_root)
    tasks, train, test = EXPECTED[name]
    counted = (len(stream), sum(len(task.train) for task in stream), sum(map(len, stream.tests)))
    assert counted == (tasks, train, test)
    x, _ = stream[0].train.gather(torch.arange(1000) * 4 % len(stream[0].train))
    plain = stream.prepare(x)
    if name in TEXTS:
        return
    assert plain.mean().abs() < 0.4
    assert 0.8 < plain.std() < 1.4


def test_names_and_options_are_looked_up() -> None:
    with pytest.raises(ValueError, match="unknown benchmark 'split-cifar'; did you mean 'split-cifar10'"):
        make_stream("split-cifar")
    with pytest.raises(ValueError, match="unknown benchmark 'core50:x'"):
        make_stream("core50:x")
    with pytest.raises(ValueError, match=r"'task' of split-digits; did you mean 'tasks'\? \(it takes tasks, per_"):
        make_stream("split-digits", task=2)
    with pytest.raises(ValueError, match=r"unknown option 'zzzz' of split-digits \(it takes tasks, per_class"):
        make_stream("split-digits", zzzz=2)
    with pytest.raises(ValueError, match="unknown option 'class_order' of rotated-digits"):
        make_stream("rotated-digits", class_order="seeded")
    with pytest.raises(ValueError, match="folder:PATH"):
        make_stream("folder")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": "five"}, "option 'tasks' of split-digits is a whole number >= 1, not 'five': number of tasks"),
        ({"tasks": 0}, "option 'tasks' of split-digits is a whole number >= 1, not 0"),
        ({"tasks": 11}, "10 classes make 1 to 10 tasks, not 11"),
        ({"repeats": -1}, "option 'repeats' .* is a whole number >= 1, not -1"),
        ({"blurry": 1.5}, "option 'blurry' .* is a number >= 0 and <= 1, not 1.5"),
        ({"blurry": "much"}, "option 'blurry'"),
        (
            {"augment": "crop"},
            "option 'augment' of split-digits is auto or none or crop-flip or paper or .*, not 'crop'",
        ),
        ({"normalise": 2}, "option 'normalise' of split-digits is true or false, not 2"),
        ({"first": 4}, r"first=4 of 10 classes leaves 6, .* tasks=5; numbers of tasks that do: 2, 3, 4, 7$"),
        ({"first": 10}, "leaves 0, .*; numbers of tasks that do: 1$"),
        ({"first": 4, "tasks": 1}, "leaves 6, .* if tasks=1"),
        ({"first": 11}, "there are 10 classes, so that first=11 is too many"),
        ({"task_classes": "0,1/12"}, r"there is no class 12.* \(numbers from 0 to 9, or names\)"),
        ({"task_classes": "0//1"}, "there is no class ''"),
        ({"task_classes": "0,1/0"}, r"names the class '0' \(0\) twice"),
        ({"task_classes": "0/1", "tasks": 3}, "has 2 tasks, tasks=3: leave out tasks"),
        ({"task_classes": "0/1", "class_order": "seeded"}, "leave out first and class_order"),
        ({"task_classes": "0/1", "first": 1}, "leave out first and class_order"),
        ({"task_classes": 3}, "option 'task_classes' of split-digits is 0,1/2,3,4/5 or a list of lists, not 3"),
        ({"task_classes": [[1.5]]}, "option 'task_classes' of split-digits"),
        ({"class_order": "random"}, "unknown class order 'random'"),
        ({"class_order": "0,1"}, "each of the classes 0..9 once"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_stream("split-digits", **options)


def test_options_are_read_from_text_as_a_command_line_gives_it() -> None:
    stream = make_stream("split-digits", tasks="2", blurry="0", per_class="3", class_order="9,8,7,6,5,4,3,2,1,0")
    assert [task.classes for task in stream] == [(5, 6, 7, 8, 9), (0, 1, 2, 3, 4)]
    assert len(stream[0].train) == 15


def test_texts_of_no_class_are_an_extra_test_set(tiny_root: Path) -> None:
    stream = make_stream("split-clinc150", root=tiny_root, length=16)
    assert stream.has_texts
    assert [task.classes for task in stream] == [tuple(range(15 * d, 15 * d + 15)) for d in range(10)]
    assert stream.extra_tests["unknown"].y.tolist() == [-1] * 7
    assert stream.shape == (16,)
    assert not make_stream("split-clinc150", root=tiny_root, heads="per-task").extra_tests


def test_domains_arrive_in_the_order_that_is_asked_for(tiny_root: Path) -> None:
    stream = make_stream("text-domains", root=tiny_root)
    assert [task.domain for task in stream] == ["yelp", "amazon", "dbpedia", "agnews"]
    names = [[stream.class_names[label] for label in task.classes] for task in stream]
    assert names == [["negative", "positive"]] * 2 + [["Album", "Film", "Plant"], ["Sports", "World"]]
    order = make_stream("text-domains", root=tiny_root, order="agnews,yelp,amazon", tasks=2)
    assert [task.domain for task in order] == ["agnews", "yelp"]
    for options, why in (({"order": "7"}, "no domain '7'"), ({"domains": "cb", "order": "1"}, "none of domains=cb")):
        with pytest.raises(ValueError, match=why):
            make_stream("text-domains", root=tiny_root, **options)
