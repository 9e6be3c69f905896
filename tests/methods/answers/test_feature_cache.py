"""The cache of features: what is computed again, in memory, on disk, with a damaged or a full disk."""

from __future__ import annotations

import sqlite3
import threading
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from tests.methods.answers.test_closed_form import D, data, head, learner, network, scores
from tmln.methods.answers import feature_cache
from tmln.methods.answers.feature_cache import FeatureCache, digest_rows, digest_weights, list_weights, read_disk_limit


def test_features_are_computed_once(tmp_path: Any) -> None:
    model = network().eval()
    x, calls = torch.randn(5, 5), 0  # in float32, as backbones are
    model.float()

    def compute() -> Tensor:
        nonlocal calls
        calls += 1
        found: Tensor = model[:2](x)  # type: ignore[index]
        return found

    head_layer = model[2]  # type: ignore[index]
    cache = FeatureCache(folder=tmp_path)
    with torch.no_grad():
        first = cache.get(model, head_layer, x, compute, keep=True)
        again = cache.get(model, head_layer, x, compute, keep=True)
        stored = FeatureCache(folder=tmp_path).get(model, head_layer, x.flip(0), compute, keep=False)
        assert calls == 1
        assert torch.equal(first, again)
        assert torch.equal(first.flip(0), stored)
        nn.init.zeros_(head_layer.bias)
        cache.get(model, head_layer, x, compute, keep=True)
        assert calls == 1
        model[0].bias += 1  # type: ignore[index]
        cache.get(model, head_layer, x, compute, keep=True)
        assert calls == 2
    little = FeatureCache(limit=4 * D * 5)
    little.get(model, head_layer, x, compute, keep=True)
    little.get(model, head_layer, x + 1, compute, keep=True)
    assert len(little.memory) == 5


def test_keys_are_of_values_shape_and_type() -> None:
    x = torch.arange(12).float().view(3, 4)
    keys = digest_rows(b"", x)
    assert len(set(keys)) == 3
    assert keys[::-1] == digest_rows(b"", x.flip(0))
    assert not set(keys) & {*digest_rows(b"", x.view(3, 2, 2)), *digest_rows(b"", x.double()), *digest_rows(b"w", x)}
    model = network()
    before = digest_weights(list_weights(model, model[2]))  # type: ignore[index]
    assert before == digest_weights(list_weights(model, model[2]))  # type: ignore[index]
    assert before != digest_weights(list_weights(model, model[0]))  # type: ignore[index]


def test_weights_that_stay_are_digested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of EfficientNet-Lite0 a digest takes 12 ms a batch, the hash 5 ms, measured on one core."""
    model, cache = network(), FeatureCache()
    digest = Mock(side_effect=digest_weights)
    monkeypatch.setattr(feature_cache, "digest_weights", digest)
    layer = model[2]  # type: ignore[index]
    first = cache._digest(model, layer)
    assert cache._digest(model, layer) == first == digest_weights(list_weights(model, layer))
    assert digest.call_count == 1
    model[0].weight.data[0, 0] += 1  # type: ignore[index]
    assert cache._digest(model, layer) == digest_weights(list_weights(model, layer)) != first


def ask(cache: FeatureCache, x: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, int]:
    """Return features of ``x``, which are twice the inputs, and how often they were computed."""
    calls: list[int] = []

    def compute() -> Tensor:
        calls.append(1)
        return 2 * x.to(dtype)

    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 2))
    for p in model.parameters():
        nn.init.zeros_(p)
    with torch.no_grad():
        return cache.get(model, model[1], x, compute, keep=False), len(calls)


def test_double_precision_is_kept(tmp_path: Path) -> None:
    x = torch.randn(3, 5).double() / 3
    for computed in (1, 0):
        found, calls = ask(FeatureCache(folder=tmp_path), x, torch.float64)
        assert calls == computed
        assert torch.equal(found, 2 * x)


@pytest.mark.parametrize("damage", ["text", "cut", "row"])
def test_a_damaged_file_is_computed_anew(tmp_path: Path, damage: str) -> None:
    x, path = torch.randn(64, 5), tmp_path / "features.sqlite"
    ask(FeatureCache(folder=tmp_path), x)
    content = path.read_bytes()
    if damage == "row":
        with sqlite3.connect(path) as base:
            base.execute("UPDATE rows SET value = ? WHERE rowid = 1", (b"0" * 20,))
        base.close()
    else:
        path.write_bytes(b"no database, but text" * 99 if damage == "text" else content[: len(content) // 2])
    with pytest.warns(UserWarning, match="damaged"):
        found, calls = ask(FeatureCache(folder=tmp_path), x)
    assert (calls, torch.equal(found, 2 * x)) == (1, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = FeatureCache(folder=tmp_path)
        ask(cache, x)  # a cut file is begun anew by the first write
        found, calls = ask(cache, x)
    assert (calls, torch.equal(found, 2 * x)) == (0, True)


def test_a_folder_that_cannot_be_used_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache, x = FeatureCache(folder=tmp_path / "file"), torch.randn(2, 5)
    with pytest.warns(UserWarning, match="cannot be used"):
        assert ask(cache, x)[1] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(ask(cache, x)[0], 2 * x)


def test_the_oldest_features_leave_a_full_disk(tmp_path: Path) -> None:
    limit = 200_000
    cache = FeatureCache(folder=tmp_path, disk_limit=limit)
    x = torch.randn(8000, 5)
    for piece in x.split(100):
        ask(cache, piece)
    assert (tmp_path / "features.sqlite").stat().st_size < 1.5 * limit
    assert ask(cache, x[-100:])[1] == 0
    assert ask(cache, x[:100])[1] == 1


def test_the_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_disk_limit() == 10**10
    monkeypatch.setenv("TMLN_FEATURES_GB", "0.5")
    assert read_disk_limit() == 5 * 10**8
    for wrong in ("much", "0", "-1", "inf"):
        monkeypatch.setenv("TMLN_FEATURES_GB", wrong)
        with pytest.raises(ValueError, match="TMLN_FEATURES_GB"):
            read_disk_limit()


def test_several_writers_at_once(tmp_path: Path) -> None:
    """Each with connections of its own, as processes have them; all begin with no file."""
    x, failed = torch.randn(200, 5), []

    def work() -> None:
        try:
            cache = FeatureCache(folder=tmp_path)
            for piece in x.split(20):
                assert torch.equal(ask(cache, piece)[0], 2 * piece)
        except BaseException as error:
            failed.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert ask(FeatureCache(folder=tmp_path), x)[1] == 0


@pytest.mark.parametrize("name", ["stream-ncm", "slda", "ranpac"])
def test_a_head_from_cached_features_is_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data()
    plain = learner(name)
    monkeypatch.setenv("TMLN_FEATURES", str(tmp_path))
    found = [plain, learner(name), learner(name)]
    for trained in found:
        trained.learn((x, y))
    assert torch.equal(scores(found[1], x), scores(plain, x))
    assert torch.equal(scores(found[2], x), scores(plain, x))
    assert head(found[2]).cache is not None
