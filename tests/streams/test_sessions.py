"""CORe50 in its exact layout: who is trained on, who is is_test on, and when."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.data import made
from tmln.data import BadData, BadDataWarning, DataError, ImageFile
from tmln.data.domains import FRAMES, read_core50
from tmln.streams import Samples, Stream, make_stream
from tmln.streams.options import Core50Options
from tmln.streams.scenarios import hold_out_frames


def colours(samples: Samples) -> torch.Tensor:
    """(session, object, frame) of each sample, from its pixels."""
    return samples.x[:, :, 60, 60].long()


@pytest.fixture(scope="module")
def stream(made_root: Path) -> Stream:
    return make_stream("core50", root=made_root)


def test_sessions_are_tasks(stream: Stream) -> None:
    assert [task.domain for task in stream] == [f"session {number}" for number in (1, 2, 4, 5, 6, 8, 9, 11)]
    assert stream.shape == (3, 224, 224)
    assert stream.class_names[2] == "scissors"
    for task, session in zip(stream, (1, 2, 4, 5, 6, 8, 9, 11), strict=True):
        assert task.classes == tuple(range(10))
        assert set(colours(task.train)[:, 0].tolist()) == set(colours(task.test)[:, 0].tolist()) == {session}


def test_categories_are_five_objects_each(stream: Stream) -> None:
    items = colours(stream[0].train)[:, 1]
    assert torch.equal(stream[0].train.y, (items - 1) // 5)
    assert sorted(set(items.tolist())) == list(range(1, 51))


def test_the_last_frames_of_every_video_are_held_out(stream: Stream) -> None:
    train, test = colours(stream[3].train), colours(stream[3].test)
    assert (len(train), len(test)) == (200, 50)  # 5 frames a video: 4 and 1
    assert set(train[:, 2].tolist()) == {0, 1, 2, 3}
    assert set(test[:, 2].tolist()) == {4}


def test_official_sessions_stand_beside(stream: Stream) -> None:
    official = stream.extra_tests["official"]
    assert len(official) == 3 * 50 * 5
    assert set(colours(official)[:, 0].tolist()) == {3, 7, 10}


def roles(frames: int, options: Core50Options) -> list[bool]:
    """Which frames of a video test."""
    video = [ImageFile(Path(f"s1/o1/{index}.png"), 0) for index in range(frames)]
    return [file.test for file in hold_out_frames(video, options)]


def test_holdout_by_hand() -> None:
    assert roles(10, Core50Options()) == [False] * 8 + [True] * 2
    assert roles(300, Core50Options()) == [False] * 240 + [True] * 60
    assert roles(2, Core50Options()) == [False, True]
    assert roles(1, Core50Options()) == [False]
    scattered = roles(100, Core50Options(holdout="random", holdout_fraction=0.3))
    assert sum(scattered) == 30
    assert scattered != sorted(scattered)


def test_every_video_is_held_out_by_itself_and_official_frames_are_left_alone() -> None:
    videos = [
        ImageFile(Path(f"s{session}/o1/{index}.png"), 0, test=session == 3)
        for session in (1, 2, 3)
        for index in range(5)
    ]
    marked = [file.test for file in hold_out_frames(videos, Core50Options())]
    assert marked == [*([False] * 4 + [True]) * 2, *[True] * 5]


def test_memory_mapped_is_the_same(stream: Stream, made_root: Path) -> None:
    mapped = make_stream("core50", root=made_root, memory_limit=0, per_class=4, per_class_test=1)
    assert list((made_root / "prepared" / "core50").glob("*.npy"))
    plain = make_stream("core50", root=made_root, per_class=4, per_class_test=1)
    for one, other in zip(mapped, plain, strict=True):
        assert torch.equal(one.train.x, other.train.x)
        assert torch.equal(one.test.y, other.test.y)
    x, _ = mapped[0].train.gather(torch.tensor([3, 1]))
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_transforms(stream: Stream) -> None:
    x, _ = stream[0].test.gather(torch.tensor([0, 7]))
    out = stream.prepare(x)
    assert out.shape == (2, 3, 224, 224)
    red = (float(x[1, 0, 0, 0]) / 255 - 0.485) / 0.229
    assert torch.allclose(out[1, 0], torch.tensor(red), atol=1e-5)  # one colour stays one colour
    assert stream.augment(x, torch.Generator().manual_seed(0)).shape == (2, 3, 224, 224)


def test_options(made_root: Path) -> None:
    small = {"root": made_root, "per_class": 1, "per_class_test": 1}
    seeded = make_stream("core50", session_order="seeded", seed=1, tasks=3, **small)
    assert len(seeded) == 3
    assert seeded.metadata["domains"] == [task.domain for task in seeded]
    assert [task.domain for task in seeded] != ["session 1", "session 2", "session 4"]
    again = make_stream("core50", session_order="seed:1", seed=2, tasks=3, **small)
    assert again.metadata["domains"] == seeded.metadata["domains"]
    classic = make_stream("core50", size=20, test_resize=24, **small)
    assert classic.prepare(classic[0].test.x[:2]).shape == (2, 3, 20, 20)
    for options, message in (
        ({"test_resize": 100}, "test_resize is at least size=224, not 100"),
        ({"holdout_fraction": 1.0}, "option 'holdout_fraction' of core50 is a number > 0 and < 1, not 1.0"),
        ({"holdout": "head"}, "option 'holdout'"),
        (
            {"session_order": "random"},
            "'session_order' of core50 is ascending, seeded, .*, not 'random'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make_stream("core50", **small, **options)


def test_official_counts() -> None:
    assert sum(FRAMES) == 164_866
    assert sum(FRAMES[session - 1] for session in (3, 7, 10)) == 44_972


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    return made.make_core50(tmp_path, frames=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("s4/o9/C_04_09_001.png", "cannot be read"),
        ("s4/o9/C_04_08_000.png", "not a frame of session 4, object 9"),
        ("s4/o9/notes.txt", "not a frame of session 4, object 9"),
    ],
)
def test_bad_files(damaged: Path, place: str, message: str) -> None:
    (damaged / place).write_bytes(made.encoded((1, 2, 3), (128, 128))[:-30])
    options = {"root": damaged.parent, "per_class": 10, "tasks": 3}
    with pytest.raises(DataError, match=rf"{place}: {message}"):
        make_stream("core50", **options)
    with pytest.warns(BadDataWarning, match="core50: left out 1 bad"):
        assert len(make_stream("core50", skip_bad=True, **options)) == 3


def test_wrong_size_and_missing_video(damaged: Path) -> None:
    frame = damaged / "s1" / "o1" / "C_01_01_000.png"
    frame.write_bytes(made.encoded((1, 1, 0), (350, 350)))
    with pytest.raises(DataError, match=r"C_01_01_000.png: \(350, 350, 3\) .* of this data set has \(128, 128, 3\)"):
        make_stream("core50", root=damaged.parent, tasks=1)
    shutil.rmtree(damaged / "s2" / "o50")
    with pytest.raises(DataError, match="s2/o50: missing"):
        read_core50(damaged, BadData("core50", False))
    for path in (damaged / "s2" / "o49").iterdir():
        path.unlink()
    with pytest.warns(BadDataWarning, match="left out 2 bad"), BadData("core50", True) as bad:
        assert len({file.path.parent for file in read_core50(damaged, bad).files}) == 548
