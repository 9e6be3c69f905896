"""The mark of test sets: the same for the same samples in any order, another for others."""

from __future__ import annotations

import torch

from tmln.streams import make_stream
from tmln.streams.samples import Samples
from tmln.streams.stream import describe_tests, fingerprint_tests


def samples(labels: list[int], shift: int = 0) -> Samples:
    images = torch.tensor([[shift + 10 * label + k] for k, label in enumerate(labels)], dtype=torch.uint8)
    return Samples.of(images, torch.tensor(labels))


def test_one_sample_more_less_or_other_is_another_mark() -> None:
    mark = fingerprint_tests((samples([0, 0, 1, 1]), samples([2, 3])))
    assert len(mark) == 16
    assert mark == fingerprint_tests((samples([0, 0, 1, 1]), samples([2, 3])))
    assert mark == fingerprint_tests((samples([2, 3]), samples([0, 0, 1, 1])))
    others = [(samples([0, 0, 1]), samples([2, 3])), (samples([0, 0, 1, 1], 1), samples([2, 3]))]
    assert mark not in {fingerprint_tests(other) for other in others}


def test_orders_are_one_mark_and_subsets_another() -> None:
    usual = describe_tests(make_stream("split-digits"))
    assert usual["test_classes"] == [2] * 5
    assert describe_tests(make_stream("split-digits", class_order="seed:3", tasks=2)) == {
        "tests": usual["tests"],
        "test_classes": [5, 5],
    }
    assert describe_tests(make_stream("split-digits", per_class_test=9))["tests"] != usual["tests"]


def test_what_is_made_of_images_does_not_count() -> None:
    turned = describe_tests(make_stream("rotated-digits", tasks=2))
    assert turned["test_classes"] == [10, 10]
    stored = make_stream("rotated-digits", tasks=1).tests[0]
    assert fingerprint_tests((stored.map(lambda x: x.float() / 255),)) == fingerprint_tests((stored,))
