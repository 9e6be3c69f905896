"""The validation split: which samples are set aside, by hand and as properties; who trains on them (nobody)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.data import made
from tests.streams.test_sessions import colours
from tmln.data.image_files import count_held_out
from tmln.streams import Samples, Stream, make_stream
from tmln.streams.assemble import choose_validation
from tmln.streams.benchmarks import BENCHMARKS

CLASSES = {"": {"ant": 10, "bee": 10, "cat": 5, "dog": 10}}


def aside(labels: list[int], fraction: float, seed: int = 0, videos: list[int] | None = None) -> list[bool]:
    found = choose_validation(torch.tensor(labels), fraction, seed, None if videos is None else torch.tensor(videos))
    return [bool(value) for value in found]


@pytest.mark.parametrize(
    ("count", "fraction", "expected"),
    [(1, 0.1, 0), (2, 0.1, 1), (2, 0.9, 1), (10, 0.1, 1), (15, 0.1, 2), (25, 0.1, 2), (26, 0.1, 3), (4, 0.99, 3)],
)
def test_how_many_by_hand(count: int, fraction: float, expected: int) -> None:
    """1.5 and 2.5 are both 2: halves go to the even number."""
    assert count_held_out(count, fraction) == expected
    assert sum(aside([7] * count, fraction)) == expected


def test_the_last_frames_of_each_video_by_hand() -> None:
    labels = [0] * 10 + [1] * 5
    videos = [3] * 5 + [4] * 5 + [5] * 5
    tail = [False, False, False, True, True]
    assert aside(labels, 0.4, videos=videos) == tail * 3
    assert aside(labels, 0.4, seed=1, videos=videos) == tail * 3  # nothing is drawn


def test_videos_too_short_for_a_frame_give_the_last_of_the_class() -> None:
    assert aside([0] * 6, 0.1, videos=[1, 1, 2, 2, 3, 3]) == [False] * 5 + [True]
    assert aside([0] * 3, 0.9, videos=[1, 2, 3]) == [False, True, True]  # one is left to train on
    assert aside([0], 0.5, videos=[1]) == [False]
    assert aside([0, 1, 0], 0.5, videos=[1, 1, 1]) == [False, False, True]


LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=80)


@given(labels=LABELS, fraction=st.floats(0.01, 0.99), seed=st.integers(0, 2**31), videos=st.none() | st.integers(1, 4))
def test_every_class_is_on_both_sides(labels: list[int], fraction: float, seed: int, videos: int | None) -> None:
    frames = None if videos is None else [place * videos // len(labels) for place in range(len(labels))]
    chosen = aside(labels, fraction, seed, frames)
    assert chosen == aside(labels, fraction, seed, frames)
    for label in set(labels):
        mine = [there for there, other in zip(chosen, labels, strict=True) if other == label]
        assert (0 < sum(mine) < len(mine)) if len(mine) > 1 else not any(mine)
        if videos is None:
            assert sum(mine) == count_held_out(len(mine), fraction)


@given(labels=LABELS, fraction=st.floats(0.01, 0.99), seed=st.integers(0, 2**31))
def test_a_class_is_drawn_whatever_the_others_are(labels: list[int], fraction: float, seed: int) -> None:
    """So that an image is set aside in every domain, and whatever the order of classes."""
    alone = [label for label in labels if label == labels[0]]
    chosen = [there for there, label in zip(aside(labels, fraction, seed), labels, strict=True) if label == labels[0]]
    assert chosen == aside(alone, fraction, seed)


def test_other_seeds_draw_others() -> None:
    assert len({tuple(aside([0] * 50 + [1] * 50, 0.2, seed)) for seed in range(20)}) == 20


def held(task_validation: Samples | None) -> Samples:
    assert task_validation is not None
    return task_validation


def check_split(split: Stream, whole: Stream) -> None:
    """Both sides together are the training data, and the tests are what they were."""
    for task, before in zip(split, whole, strict=True):
        validation = held(task.validation)
        assert sorted([*task.train.rows.tolist(), *validation.rows.tolist()]) == sorted(before.train.rows.tolist())
        assert before.validation is None
        assert torch.equal(task.test.rows, before.test.rows)
        assert task.classes == before.classes == validation.classes == task.train.classes


def test_a_split_of_digits() -> None:
    whole = make_stream("split-digits", per_class=20)
    split = make_stream("split-digits", per_class=20, validation=0.1)
    check_split(split, whole)
    assert [(len(task.train), len(held(task.validation))) for task in split] == [(36, 4)] * 5
    other = make_stream("split-digits", per_class=20, validation=0.1, seed=1)
    assert not all(
        torch.equal(held(a.validation).rows, held(b.validation).rows) for a, b in zip(split, other, strict=True)
    )
    turned = make_stream("split-digits", per_class=20, validation=0.1, class_order="9,8,7,6,5,4,3,2,1,0")
    assert sorted(held(split[0].validation).rows.tolist()) == sorted(held(turned[4].validation).rows.tolist())


def test_domains_set_the_same_images_aside() -> None:
    split = make_stream("rotated-digits", tasks=3, per_class=20, validation=0.2)
    check_split(split, make_stream("rotated-digits", tasks=3, per_class=20))
    assert len({tuple(held(task.validation).rows.tolist()) for task in split}) == 1
    assert not torch.equal(held(split[0].validation).x, held(split[1].validation).x)


def test_stray_and_repeated_samples_are_training_samples() -> None:
    plain = make_stream("split-digits", per_class=20, validation=0.1)
    aside = {row for task in plain for row in held(task.validation).rows.tolist()}
    mixed = make_stream("split-digits", per_class=20, validation=0.1, blurry=0.5, repeats=2)
    trained = [row for task in mixed for row in task.train.rows.tolist()]
    assert len(trained) == len(set(trained)) == 180
    assert not aside & set(trained)
    assert [held(task.validation).rows.tolist() for task in mixed][5:] == [
        held(task.validation).rows.tolist() for task in plain
    ]


def test_core50_validates_on_the_frames_before_the_test_frames(made_root: Path) -> None:
    split = make_stream("core50", root=made_root, tasks=2, validation=0.25)
    check_split(split, make_stream("core50", root=made_root, tasks=2))
    for task in split:  # 5 frames a video: 3, 1 and 1
        sides = (task.train, held(task.validation), task.test)
        assert [set(colours(side)[:, 2].tolist()) for side in sides] == [{0, 1, 2}, {3}, {4}]
        assert len(held(task.validation)) == 50


def test_a_folder_validates_on_its_last_files(tmp_path: Path) -> None:
    made.make_folder(tmp_path, CLASSES)
    split = make_stream(f"folder:{tmp_path}", validation=0.25)
    check_split(split, make_stream(f"folder:{tmp_path}"))
    for task in split:
        for label in task.classes:
            sides = [side.x[side.y == label][:, 0, 0, 0].tolist() for side in (task.train, held(task.validation))]
            assert max(sides[0]) < min(sides[1])  # red is the number of the file


def test_a_task_without_a_class_to_split_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"task 'task 1' has no class with two training samples.*raise benchmark\.per"):
        make_stream("split-digits", per_class=1, validation=0.5)


def test_every_benchmark_takes_it() -> None:
    assert {row.options.model_fields["validation"].default for row in BENCHMARKS.values()} == {0.0}
