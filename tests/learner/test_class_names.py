"""Classes have names, and names last: a new class in front of the old ones renumbers nothing."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from tmln.learner import Learner
from tmln.learner.task_data import check_names, find_names, merge_names

CENTRES = 4 * torch.randn(6, 5, generator=torch.Generator().manual_seed(5))
WORLD = ("ant", "bee", "cat", "dog", "elk", "owl")  # what each is, whatever a data set calls its labels


def pictures(*names: str, count: int = 60) -> tuple[Tensor, Tensor]:
    """Labels index ``names``."""
    generator = torch.Generator().manual_seed(zlib.crc32(" ".join(names).encode()))
    y = torch.arange(count) % len(names)
    kinds = torch.tensor([WORLD.index(name) for name in names])[y]
    return CENTRES[kinds] + 0.3 * torch.randn(count, 5, generator=generator), y


class Named(Dataset[tuple[Tensor, int]]):
    def __init__(self, *names: str) -> None:
        self.classes, (self.x, self.targets) = list(names), pictures(*names)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.x[row], int(self.targets[row])

    def __len__(self) -> int:
        return len(self.x)


def learner(outputs: int = 2) -> Learner:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, outputs))
    return Learner(model, "tmln", lr=0.01, batch_size=20)


def test_a_new_class_in_front_renumbers_nothing() -> None:
    """The failure of before: sorted over today's folder, 'ant' took the place of 'cat', and week 1 fell to 0."""
    taught = learner()
    taught.learn(pictures("cat", "owl"), 10, classes=["cat", "owl"])
    taught.learn(pictures("ant", "cat"), 10, classes=["ant", "cat"])
    assert taught.names == ("cat", "owl", "ant")
    assert taught.classes == (0, 1, 2)
    for names in (("cat", "owl"), ("owl", "cat", "ant"), ("ant",)):
        assert taught.evaluate(pictures(*names), classes=names)["accuracy"] > 0.9


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, range(len(d))), lambda d: DataLoader(d)])
def test_a_data_sets_own_names(wrap: object) -> None:
    taught = learner()
    taught.learn(wrap(Named("cat", "owl")), 10)  # type: ignore[operator]
    taught.learn(wrap(Named("ant", "owl")), 10)  # type: ignore[operator]
    assert taught.names == ("cat", "owl", "ant")
    assert taught.evaluate(wrap(Named("owl", "ant", "cat")))["accuracy"] > 0.9  # type: ignore[operator]
    assert find_names(pictures("cat")) is None


def test_names_are_in_the_file(tmp_path: Path) -> None:
    taught = learner()
    taught.learn(pictures("cat", "owl"), classes=["cat", "owl"])
    taught.learn(pictures("ant"), classes=["ant"])
    taught.save(tmp_path / "shop.tmln")
    again = Learner.load(tmp_path / "shop.tmln", learner().model)
    assert again.names == taught.names == ("cat", "owl", "ant")
    again.learn(pictures("owl", "bee"), classes=["owl", "bee"])
    assert list(again.names) == ["cat", "owl", "ant", "bee"]


def test_a_failure_leaves_no_name_behind() -> None:
    taught = learner()
    x, y = pictures("cat", "owl")
    x[3] = float("inf")
    with pytest.raises(FloatingPointError):
        taught.learn(Subset(_Plain(x, y), range(60)), classes=["cat", "owl"])
    assert taught.names == ()


class _Plain(Dataset[tuple[Tensor, int]]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.x[row], int(self.y[row])

    def __len__(self) -> int:
        return len(self.x)


def test_numbers_stay_numbers() -> None:
    taught = learner(3)
    taught.learn(pictures("cat", "owl"))
    assert not taught.names
    taught.learn(pictures("ant", "bee"), classes=["ant", "bee"])  # from now on the others are called by their numbers
    assert taught.names == ("0", "1", "ant", "bee")
    taught.learn(pictures("cat", "owl"))  # labels without names are the learner's own
    assert taught.evaluate(pictures("owl"), classes=["1"])["accuracy"] >= 0.0
    with pytest.raises(ValueError, match=r"label 4, but the learner has 4 classes by name .* classes="):
        taught.learn((torch.zeros(2, 5), torch.tensor([0, 4])))


def test_the_tasks_own_classes_by_number_are_those_of_the_data() -> None:
    taught = learner()
    taught.learn(Named("cat", "owl"), classes=[1])
    assert taught.names == ("cat", "owl")
    assert taught.classes == (0, 1)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["Cat", "owl"], "'cat' and 'Cat' differ in upper and lower case only"),
        (["owl", "owl"], "'owl' is there twice"),
        (["owl", " "], "give it one that can be read"),
        (["owl"], "label 1, but only 1 class names: owl"),
        (["owl", 1], "names or numbers, not both"),
    ],
)
def test_names_that_cannot_be_told_apart(names: list[str], words: str) -> None:
    taught = learner()
    taught.learn(pictures("cat"), classes=["cat"])
    with pytest.raises((ValueError, TypeError), match=words):
        taught.learn(pictures("owl", "bee"), classes=names)
    assert taught.names == ("cat",)


def test_what_was_never_learned_cannot_be_tested() -> None:
    taught = learner()
    taught.learn(pictures("cat", "owl"), classes=["cat", "owl"])
    with pytest.raises(ValueError, match=r"'owls' was never learned; did you mean 'owl'\? \(classes: cat, owl\)"):
        taught.evaluate(pictures("owl"), classes=["owls"])


def test_merging_by_hand() -> None:
    assert merge_names(("b",), ("a", "b", "c")) == ("b", "a", "c")
    assert merge_names((), ("a",), met=(0, 2)) == ("0", "1", "2", "a")
    check_names(["a", "b"], ["c"])
