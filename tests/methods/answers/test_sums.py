"""Sums of heads in closed form, and the two rules that choose lambda of ridge regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.methods.answers.test_closed_form import D, data, head, learner, scores
from tmln.methods.answers.closed_form import KEPT
from tmln.methods.answers.ranpac import GRID, choose_ridge_held_out, cross_validation_error, cross_validation_terms
from tmln.methods.answers.sums import BLOCK, FeatureBatch, Places, add_gram_, join_batches, keep_first, mirror_lower_


@pytest.mark.parametrize("size", [1, 7, BLOCK, BLOCK + 3])
def test_a_gram_matrix_in_blocks_is_the_whole(size: int) -> None:
    first, second = torch.randn(2, 5, size, generator=torch.Generator().manual_seed(0)).double()
    total = mirror_lower_(add_gram_(add_gram_(torch.zeros(size, size).double(), first), second))
    torch.testing.assert_close(total, first.T @ first + second.T @ second)
    assert torch.equal(total, total.T)


def test_the_first_samples_of_each_class_are_kept() -> None:
    kept, labels = torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64)
    kept, labels = keep_first(kept, labels, torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1, 1, 0]), 2)
    kept, labels = keep_first(kept, labels, torch.tensor([[4.0], [5.0], [6.0]]), torch.tensor([1, 0, 0]), 2)
    assert (kept.squeeze(1).tolist(), labels.tolist()) == ([3, 1, 2, 5], [0, 1, 1, 0])
    kept, labels = keep_first(kept, labels, kept[:0], labels[:0], 1)
    assert (kept.squeeze(1).tolist(), labels.tolist()) == ([3, 1], [0, 1])


def test_labels_have_places_as_they_come() -> None:
    places = Places()
    assert places.of(torch.tensor([7, 7, 2])).tolist() == [1, 1, 0]
    assert places.of(torch.tensor([0, 7])).tolist() == [2, 1]
    assert places.labels == [2, 7, 0]
    assert places.of(torch.zeros(0, dtype=torch.int64)).tolist() == []
    assert places.count(torch.tensor([1, 1, 0])).tolist() == [0, 1, 0]
    assert places.count(torch.tensor([2, 1])).tolist() == [0, 2]


def test_batches_are_joined_in_order() -> None:
    numbers = (2, 0, 3, 1)
    batches = [FeatureBatch(torch.full((n, 1), float(n)), torch.full((n,), n), n + 1, torch.arange(n)) for n in numbers]
    found = list(join_batches(batches, 4))
    assert [(one.y.tolist(), one.classes) for one in found] == [([2, 2, 3, 3, 3], 4), ([1], 2)]
    assert [one.features.squeeze(1).tolist() for one in found] == [[2, 2, 3, 3, 3], [1]]
    assert found[0].order.tolist() == [0, 1, 0, 1, 2]
    assert list(join_batches([], 4)) == []


def test_kept_samples_are_bounded_in_all() -> None:
    trained = learner("stream-ncm", **{"answer.calibration": KEPT})
    x, y = data(n=4 * KEPT // 3)
    trained.learn((x, y))
    assert len(head(trained).kept_y) <= KEPT
    before = len(head(trained).kept_y)
    trained.learn((x[:8], torch.arange(8) % 4 + 4))
    assert len(head(trained).kept_y) < before
    assert int(torch.bincount(head(trained).kept_y).max()) == KEPT // 8


# -- lambda ------------------------------------------------------------------------------------------------------------


def official_ridge(f: Tensor, y: Tensor, gram: Tensor, targets: Tensor, out: Tensor) -> float:
    """The rule of RanPAC's code, in plain torch: sums before, four fifths, squared error on the last fifth."""
    onehot = F.one_hot(y, targets.shape[1]).double()
    gram, targets = gram + f[~out].T @ f[~out], targets + f[~out].T @ onehot[~out]
    losses = []
    for ridge in GRID:
        weight = torch.linalg.solve(gram + ridge * torch.eye(len(gram)), targets).T
        losses.append(float(F.mse_loss(f[out] @ weight.T, onehot[out])))
    return GRID[losses.index(min(losses))]


def test_lambda_by_held_out_samples_is_the_authors() -> None:
    """Learner against the authors' loop over tasks: lambda, W, predictions."""
    trained = learner("ranpac", 0, **{"answer.choice": "held-out"})
    x, y = data()
    gram, targets = torch.zeros(40, 40).double(), torch.zeros(40, 4).double()
    for classes in ([0, 1], [2, 3]):
        rows = torch.isin(y, torch.tensor(classes))
        trained.learn((x[rows], y[rows]))
        answer: Any = head(trained)
        features = trained.model[:2](x[rows]).detach()  # type: ignore[index]
        h = answer._expand(features)
        out = torch.zeros(int(rows.sum()), dtype=torch.bool)
        for label in classes:
            out[(y[rows] == label).nonzero().squeeze(1)[4::5]] = True
        assert 0.15 < float(out.double().mean()) < 0.25
        ridge = official_ridge(h, y[rows], gram, targets, out)
        gram, targets = gram + h.T @ h, targets + h.T @ F.one_hot(y[rows], 4).double()
        assert answer.diagnostics["ridge"] == ridge
        weight = torch.linalg.solve(gram + ridge * torch.eye(40), targets)
        torch.testing.assert_close(answer.solution.weight, weight[:, : answer.solution.weight.shape[1]])


def test_lambda_by_held_out_samples_is_in_the_state() -> None:
    first, second = (learner("ranpac", 0, **{"answer.choice": "held-out"}) for _ in range(2))
    x, y = data()
    first.learn((x, y))
    second.load_state_dict(first.state_dict())
    assert torch.equal(scores(first, x), scores(second, x))
    assert head(second).fitted["ridge"] == head(first).fitted["ridge"]


def test_samples_held_out_choose_the_least_error() -> None:
    h = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).double()
    y = (h[:, 0] > 0).long()
    targets = h[:20].T @ F.one_hot(y[:20], 2).double()
    found = choose_ridge_held_out(h[:20].T @ h[:20], targets, h[20:], y[20:])

    def error(ridge: float) -> float:
        weight = torch.linalg.solve(h[:20].T @ h[:20] + ridge * torch.eye(4), targets)
        return float((h[20:] @ weight - F.one_hot(y[20:], 2)).square().sum())

    assert found == min(GRID, key=error)


def test_single_precision_is_left_where_it_is_not_enough() -> None:
    """At a small lambda nothing of the error is left in single precision: double precision answers."""
    f = torch.randn(400, 300, generator=torch.Generator().manual_seed(0)).double().relu()
    target = F.one_hot(torch.arange(400) % 3, 3).double()
    gram, q = f.T @ f, f.T @ target
    for ridge in (1e-8, 1e-2, 1.0, 1e4):
        error, free = cross_validation_terms(gram, q, 400.0, ridge)
        assert cross_validation_error(gram, q, 400.0, ridge) == pytest.approx(error / free**2, rel=1e-3)


# -- the head is computed when it is needed ----------------------------------------------------------------------------


def count_solutions(trained: Any) -> list[int]:
    solved: list[int] = []
    solve: Callable[[], Any] = trained.answer.solve

    def counted() -> Any:
        solved.append(1)
        return solve()

    trained.answer.solve = counted
    return solved


def test_the_head_is_solved_once_and_late(tmp_path: Any) -> None:
    trained = learner("slda")
    solved, (x, y) = count_solutions(trained), data()
    for classes in ([0, 1], [2], [3]):
        rows = torch.isin(y, torch.tensor(classes))
        trained.learn((x[rows], y[rows]))
    assert solved == []
    trained.predict(x[:3])
    trained.predict(x[:3])
    assert trained.diagnostics["answer/samples"] == len(y)
    assert solved == [1]
    trained.forget((x[:2], y[:2]))
    trained.save(tmp_path / "state")  # so that no prediction by the file has to choose anything
    assert solved == [1, 1]
    assert set(head(trained).fitted) == {"shrinkage", "inverse_temperature"}


def test_features_are_summed_in_double_precision_of_single_ones() -> None:
    """h is computed in the features' precision; its products are added in double precision."""
    trained = learner("ranpac")
    trained.model.float()
    x, y = data()
    trained.learn((x.float(), y))
    answer: Any = head(trained)
    h = answer._expand(trained.model[:2](x.float()).detach())  # type: ignore[index]
    assert answer.matrix.dtype == torch.float32
    assert answer.sums["gram"].dtype == torch.float64
    torch.testing.assert_close(answer.sums["gram"], h.T @ h, rtol=1e-12, atol=1e-12)
    assert answer.kept.shape == (40, D)
