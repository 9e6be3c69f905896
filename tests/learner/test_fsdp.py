"""Two ranks with their part of every weight each learn what one process learns, and write what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from tests.distributed.two_ranks import run_on_two_ranks
from tests.learner.methods_on_ranks import CASES, learned, left
from tests.learner.shards_on_ranks import (
    ALL_KEPT,
    OTHER_KEPT,
    compared,
    gone_on,
    halfway,
    odd,
    parts_of,
    recipe_of,
    weights,
)
from tests.learner.test_together import HALF, FakeFabric
from tmln.distributed.sharding import sharding_units
from tmln.learner import Learner
from tmln.learner.trained import check_shardable
from tmln.methods.recipes import FAMILIES

KEPT = {"all": ALL_KEPT, "other": OTHER_KEPT}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_on_two_ranks("tests.learner.shards_on_ranks", tmp_path_factory)


def close(found: dict[str, Tensor], expected: dict[str, Tensor], near: float = 1e-6) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=near)


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", [*compared(), "odd"])
def test_in_shards_the_same_is_learned(name: str, ranks: list[dict[str, Any]]) -> None:
    alone, (first, second) = left(odd() if name == "odd" else learned(CASES[name])), [found[name] for found in ranks]
    near = 1e-2 if name in HALF else 1e-6
    assert same(first["weights"], second["weights"])
    close(first["weights"], alone["weights"], near)
    for mine, theirs in zip(alone["tests"], first["tests"], strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], abs=10 * near)
    for mine, theirs in zip(alone["memory"], first["memory"], strict=True):
        torch.testing.assert_close(theirs, mine, rtol=0, atol=10 * near)
    assert all(torch.equal(a, b) for a, b in zip(alone["draws"], first["draws"], strict=True))


def test_every_component_that_says_so_is_compared() -> None:
    said = {(family, name) for family in FAMILIES for name, kind in FAMILIES[family].items() if kind.supports_fsdp}
    assert said == set[tuple[str, str]]().union(*(parts_of(CASES[name]) for name in compared()))


@pytest.mark.parametrize("name", KEPT)
def test_a_file_does_not_tell_how_many_ranks_there_were(name: str, ranks: list[dict[str, Any]], tmp_path: Path) -> None:
    assert all(same(found[f"{name} again"], found[f"{name} whole"]) for found in ranks), "to the bit with as many"
    path = tmp_path / "by two"
    path.write_bytes(ranks[0][f"{name} file"])
    expected = weights(halfway(KEPT[name], None, tmp_path / "by one"))
    close(weights(gone_on(path)), expected)
    close(weights(gone_on(tmp_path / "by one")), expected, 0.0)
    if name == "other":
        close(ranks[0]["from one"], expected)
    exported = safetensors.torch.load(ranks[1][f"{name} exported"])
    assert exported.keys() == expected.keys()


@pytest.mark.parametrize("name", KEPT)
def test_a_rank_holds_its_part(name: str, ranks: list[dict[str, Any]]) -> None:
    """All of it lies on one of the two, half on each: both layers have an even number of rows."""
    (first, every), (second, _) = (found[f"{name} bytes"] for found in ranks)
    assert first + second == pytest.approx(every, rel=0.02)  # single numbers are on both
    assert max(first, second) < 0.52 * every


def test_a_part_that_needs_whole_weights_is_refused_before_any_work() -> None:
    fabric = FakeFabric("ModelParallelStrategy")
    with pytest.raises(ValueError, match=r"step 'ocar' needs them whole: use strategy 'ddp'.*or another step .*tmln"):
        Learner(nn.Linear(2, 2), "ocar", fabric=fabric)
    with pytest.raises(ValueError, match=r"step 'tmln' with geometry='kfac'.* needs them whole"):
        Learner(nn.Linear(2, 2), "tmln-kfac", fabric=fabric)
    with pytest.raises(ValueError, match="step 'sam' with inner='fopng' needs them whole"):
        check_shardable(recipe_of({"method": "sam", "settings": {"step.inner": "fopng"}}))
    with pytest.raises(ValueError, match=r"penalty 'tests\.toys:LeashPenalty' needs them whole"):
        check_shardable(recipe_of({"method": "er", "penalty": "tests.toys:LeashPenalty"}))


def test_layers_that_are_gathered_by_themselves() -> None:
    """Attention takes its inner layer's weights without a call of it; what is used twice stays with the whole."""
    block = nn.TransformerEncoderLayer(8, 2, 16)
    model = nn.Sequential(nn.Embedding(40, 8), nn.Sequential(block, nn.LayerNorm(8)), nn.Linear(8, 40, bias=False))
    assert set(sharding_units(model)) == {block, model[0], model[2]}
    model[2].weight = model[0].weight
    assert set(sharding_units(model)) == {block}
