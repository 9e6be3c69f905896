"""A head for each task: which labels and classes tasks have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tmln.streams import make_stream


def test_tasks_of_different_classes_keep_their_labels() -> None:
    plain, stream = make_stream("split-digits"), make_stream("split-digits", heads="per-task")
    assert stream.heads == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert plain.heads == ()
    assert stream.class_names == plain.class_names
    for one, other in zip(plain, stream, strict=True):
        assert torch.equal(one.train.y, other.train.y)


def test_domains_have_classes_of_their_own() -> None:
    plain = make_stream("rotated-digits", tasks=3, per_class=4)
    stream = make_stream("rotated-digits", tasks=3, per_class=4, validation=0.25, heads="per-task")
    assert stream.heads == (tuple(range(10)), tuple(range(10, 20)), tuple(range(20, 30)))
    assert stream.classes == 30
    assert stream.class_names[:2] == ("0 degrees/0", "0 degrees/1")
    assert stream.class_names[-1] == "120 degrees/9"
    for index, (one, other) in enumerate(zip(plain, stream, strict=True)):
        assert other.classes == tuple(range(10 * index, 10 * index + 10))
        assert torch.equal(other.test.y, one.test.y + 10 * index)
        assert torch.equal(other.test.x, one.test.x)
        assert other.validation is not None
        assert other.validation.classes == other.train.classes == other.classes


def test_visits_to_a_task_share_its_head() -> None:
    stream = make_stream("split-digits", tasks=2, repeats=2, heads="per-task")
    assert len(stream) == 4
    assert stream.heads == ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    rotated = make_stream("rotated-digits", tasks=2, repeats=2, heads="per-task")
    assert [task.classes[0] for task in rotated] == [0, 10, 0, 10]


def test_samples_without_a_head_are_refused(tiny_root: Path) -> None:
    with pytest.raises(ValueError, match=r"task 1 has training samples of class . of .* leave out blurry"):
        make_stream("split-digits", blurry=0.5, heads="per-task")
    with pytest.raises(ValueError, match="core50 is tested on samples of no task"):
        make_stream("core50", root=tiny_root, size=24, per_class=2, per_class_test=1, heads="per-task")
    with pytest.raises(ValueError, match="'heads' of split-digits is single or per-task, not 'two'"):
        make_stream("split-digits", heads="two")
