"""Heads in closed form: hand-computed vectors, slow oracles, order of tasks, removal, other libraries."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from tests.zoo import OwnAttentionTransformer
from tmln.learner import Learner
from tmln.methods.answers import ANSWERS
from tmln.methods.answers.closed_form import ClosedFormAnswer
from tmln.methods.answers.ranpac import (
    GRID,
    choose_ridge,
    cross_validation_error,
    cross_validation_terms,
    expand,
    factor_gram,
    projection,
    trace_probes,
)
from tmln.methods.answers.ranpac import scores_left_out as ridge_left_out
from tmln.methods.answers.slda import covariance, discriminants, scores_left_out
from tmln.methods.answers.stream_ncm import cosines, cosines_left_out
from tmln.methods.answers.sums import grow_dim, sum_by_class

NAMES = [name for name, kind in ANSWERS.items() if issubclass(kind, ClosedFormAnswer)]
SETTINGS: dict[str, dict[str, Any]] = {"ranpac": {"answer.width": 40}}
D = 16


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, D), nn.ReLU(), nn.Linear(D, 2)).double()


def data(seed: int = 0, n: int = 240, classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centre = 2 * torch.randn(classes, 5, generator=torch.Generator().manual_seed(9))
    y = torch.randint(classes, (n,), generator=generator)
    return (centre[y] + torch.randn(n, 5, generator=generator)).double(), y


def learner(name: str, seed: int = 0, **settings: Any) -> Learner:
    return Learner(
        network(), "naive", step="frozen", answer=name, settings={**SETTINGS.get(name, {}), **settings}, seed=seed
    )


def head(trained: Learner) -> ClosedFormAnswer:
    assert isinstance(trained.answer, ClosedFormAnswer)
    return trained.answer


def scores(trained: Learner, x: Tensor) -> Tensor:
    trained.model.eval()
    with torch.no_grad():
        return trained.answer.scores(trained.model, x)[1]


# -- hand-computed vectors ---------------------------------------------------------------------------------------------


def test_slda_by_hand() -> None:
    f, y = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0], [2.0, 3.0]]).double(), torch.tensor([0, 0, 1, 1])
    means, within = covariance(torch.tensor([2.0, 2.0]).double(), sum_by_class(f, y, 2), f.T @ f)
    assert means.tolist() == [[1, 0], [1, 3]]
    assert within.tolist() == [[1, 0], [0, 0]]
    weight, bias = discriminants(means, within, 0.5)
    expected = [([[1.0, 0.0], [1.0, 6.0]], weight.T), ([-0.5, -9.5], bias)]
    expected.append(([[0.5, 3.5], [0.5, -2.5]], torch.tensor([[1.0, 2.0], [1.0, 1.0]]).double() @ weight + bias))
    for value, found in expected:
        torch.testing.assert_close(found, torch.tensor(value).double())


def test_cosines_by_hand() -> None:
    sums = torch.tensor([[2.0, 0.0], [0.0, 5.0]])
    torch.testing.assert_close(cosines(torch.tensor([[3.0, 4.0]]), sums), torch.tensor([[0.6, 0.8]]))
    # the first sample of (1,0) and (3,4), left out of (4,4), leaves (3,4): its cosine is 0.6
    found = cosines_left_out(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), torch.tensor([[4.0, 4.0], [0.0, 2.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.0]]))


def test_ridge_by_hand() -> None:
    """One random feature, h = 1, 2 of class 0 and h = 3 of class 1: G = 14, Q = (3, 3), lambda 1."""
    gram, targets = torch.tensor([[14.0]]).double(), torch.tensor([[3.0, 3.0]]).double()
    factor = factor_gram(gram, 1.0)
    assert torch.cholesky_solve(targets, factor).tolist() == [[pytest.approx(0.2), pytest.approx(0.2)]]
    # residuals: class 0 (.8, .6, -.6), class 1 (-.2, -.4, .4): sum of squares 1.72; tr H = 14/15
    assert cross_validation_error(gram, targets, 3.0, 1.0) == pytest.approx((1.72 / 3) / (1 - 14 / 45) ** 2)


def test_relu_of_a_projection_that_its_seed_fixes() -> None:
    assert expand(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, -1.0], [1.0, 0.0]])).tolist() == [[3, 0]]
    one, other = projection(4, 3, 1), projection(4, 3, 2)
    assert torch.equal(one, projection(4, 3, 1))
    assert not torch.equal(one, other)
    assert abs(float(projection(300, 300, 0).var()) - 1) < 0.02


# -- slow oracles: leave each sample out, fit again --------------------------------------------------------------------


def cloud(n: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(n) % 3
    return torch.randn(n, 4, generator=generator).double() + 1.5 * F.one_hot(y, 4), y


def test_slda_left_out_is_the_head_without_the_sample() -> None:
    f, y = cloud()
    counts = torch.bincount(y).double()
    means, within = covariance(counts, sum_by_class(f, y, 3), f.T @ f)
    fast = scores_left_out(f, y, counts, means, within, 0.1)
    for i in range(len(y)):
        rest = torch.arange(len(y)) != i
        g, z = f[rest], y[rest]
        weight, bias = discriminants(*covariance(torch.bincount(z).double(), sum_by_class(g, z, 3), g.T @ g), 0.1)
        slow = f[i] @ weight + bias
        torch.testing.assert_close(fast[i] - fast[i].mean(), slow - slow.mean(), atol=1e-9, rtol=1e-9)


def test_cosines_left_out_are_those_without_the_sample() -> None:
    f, y = cloud()
    fast = cosines_left_out(f, y, sum_by_class(f, y, 3))
    for i in range(len(y)):
        rest = torch.arange(len(y)) != i
        torch.testing.assert_close(fast[i], cosines(f[i : i + 1], sum_by_class(f[rest], y[rest], 3))[0])


def test_ranpac_left_out_is_the_head_without_the_sample() -> None:
    f, y = cloud()
    h, targets = f.relu(), F.one_hot(y, 3).double()
    gram = h.T @ h
    factor = factor_gram(gram, 3.0)
    fast = ridge_left_out(h, y, torch.cholesky_solve(h.T @ targets, factor), factor)
    for i in range(len(y)):
        rest = torch.arange(len(y)) != i
        weight = torch.linalg.solve(h[rest].T @ h[rest] + 3 * torch.eye(4), h[rest].T @ targets[rest])
        torch.testing.assert_close(fast[i], h[i] @ weight)


def test_traces_of_large_matrices_are_estimated() -> None:
    for size in (8, 600):
        root = torch.randn(size, size, generator=torch.Generator().manual_seed(0)).double()
        probes, matrix = trace_probes(size), root @ root.T
        found = float((probes * (matrix @ probes)).sum()) / probes.shape[1]
        assert found == pytest.approx(float(matrix.trace()), rel=1e-9 if size == 8 else 0.02)


def test_cross_validation_error_is_that_of_all_samples() -> None:
    f, y = cloud()
    h, target = f.relu(), F.one_hot(y, 3).double()
    for ridge in (0.01, 1.0, 100.0):
        hat = h @ torch.linalg.inv(h.T @ h + ridge * torch.eye(4)) @ h.T
        slow = ((target - hat @ target).square().sum() / 40) / (1 - hat.trace() / 40) ** 2
        error, free = cross_validation_terms(h.T @ h, h.T @ target, 40.0, ridge)
        assert error / free**2 == pytest.approx(float(slow), rel=1e-9)
        assert cross_validation_error(h.T @ h, h.T @ target, 40.0, ridge) == pytest.approx(float(slow), rel=1e-5)
    best = min(GRID, key=lambda ridge: cross_validation_error(h.T @ h, h.T @ target, 40.0, ridge))
    assert choose_ridge(h.T @ h, h.T @ target, 40.0) == best


# -- other libraries ---------------------------------------------------------------------------------------------------


def test_slda_is_scikit_learns() -> None:
    """Of equally large classes: (1-s) S + s tr(S)/d I is ours where e / (1-e) is s tr(S)/d / (1-s)."""
    f, y = cloud(42)
    means, within = covariance(torch.bincount(y).double(), sum_by_class(f, y, 3), f.T @ f)
    s = 0.3
    ratio = s * float(within.trace()) / 4 / (1 - s)
    e = ratio / (1 + ratio)
    weight, bias = discriminants(means, within, e)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=s).fit(f.numpy(), y.numpy())
    ours = ((f @ weight + bias) * (1 - e) / (1 - s)).softmax(1)
    np.testing.assert_allclose(ours.numpy(), theirs.predict_proba(f.numpy()), atol=1e-9)


def test_ranpac_is_scikit_learns_ridge() -> None:
    f, y = cloud()
    h = expand(f, projection(4, 30, 0).double())
    weights = torch.cholesky_solve(h.T @ F.one_hot(y, 3).double(), factor_gram(h.T @ h, 2.0))
    theirs = Ridge(alpha=2.0, fit_intercept=False).fit(h.numpy(), F.one_hot(y, 3).numpy())
    np.testing.assert_allclose((h @ weights).numpy(), theirs.predict(h.numpy()), atol=1e-8)


# -- every head --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", [[[0, 1], [2, 3]], [[3], [1], [0, 2]], [[2, 0, 1, 3]]])
def test_tasks_one_after_another_are_all_at_once(name: str, order: list[list[int]]) -> None:
    x, y = data()
    whole, parts = learner(name), learner(name)
    whole.learn((x, y))
    for classes in order:
        rows = torch.isin(y, torch.tensor(classes))
        parts.learn((x[rows], y[rows]))
    for key, value in head(whole).sums.items():
        torch.testing.assert_close(head(parts).sums[key], value, atol=1e-9, rtol=1e-9)
    test = data(1)[0]
    torch.testing.assert_close(scores(parts, test), scores(whole, test), atol=1e-6, rtol=1e-6)
    assert whole.evaluate(data(1))["accuracy"] > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_removed_samples_were_never_there(name: str) -> None:
    x, y = data()
    rest = torch.arange(len(y)) % 5 > 0
    less, removed = learner(name, **{"answer.calibration": 0}), learner(name, **{"answer.calibration": 0})
    less.learn((x[rest], y[rest]))
    removed.learn((x, y))
    removed.forget((x[~rest], y[~rest]))
    for key, value in head(less).sums.items():
        torch.testing.assert_close(head(removed).sums[key], value, atol=1e-9, rtol=1e-9)
    test = data(1)[0]
    torch.testing.assert_close(scores(removed, test), scores(less, test), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_kept_samples_of_those_removed_are_dropped(name: str) -> None:
    x, y = data()
    trained = learner(name)
    trained.learn((x, y))
    first = (y == 2).nonzero().squeeze(1)[:4]
    assert int((head(trained).kept_y == 2).sum()) == 10
    trained.forget((x[first], y[first]))
    assert int((head(trained).kept_y == 2).sum()) == 6
    trained.forget((x[y == 2][4:], y[y == 2][4:]))
    assert float(head(trained).counts[2]) == 0
    assert 2 not in scores(trained, data(1)[0]).argmax(1).tolist()


def test_more_than_was_learned_cannot_be_removed() -> None:
    x, y = data()
    trained = learner("slda")
    trained.learn((x, y))
    before = copy.deepcopy(trained.answer.state_dict())
    with pytest.raises(ValueError, match="class 1 has fewer samples"):
        trained.forget((x.repeat(3, 1), torch.ones(3 * len(y), dtype=torch.int64)))
    assert all(torch.equal(before["sums"][key], value) for key, value in trained.answer.state_dict()["sums"].items())
    plain = Learner(network(), "naive")
    plain.learn((x, y))
    with pytest.raises(ValueError, match="slda"):
        plain.forget((x, y))


@pytest.mark.parametrize("name", NAMES)
def test_probabilities_are_calibrated(name: str) -> None:
    trained = learner(name)
    trained.learn(data(n=600))
    x, y = data(1, 2000)
    found = scores(trained, x)
    share = found.softmax(1)
    confidence, right = share.max(1).values, share.argmax(1) == y
    gap = abs(float(confidence.mean()) - float(right.double().mean()))
    assert gap < (0.2 if name == "stream-ncm" else 0.06)  # a temperature is one number
    plain = found / head(trained).fitted["inverse_temperature"]
    assert F.cross_entropy(found, y) < F.cross_entropy(plain, y) - 0.01


@pytest.mark.parametrize("name", NAMES)
def test_new_classes_and_unmet_ones(name: str) -> None:
    x, y = data()
    trained = learner(name)
    trained.learn((x[y < 2], y[y < 2]))
    assert scores(trained, x).shape == (len(x), 2)
    trained.learn((x[y == 3], y[y == 3]))  # class 2 was never met
    found = scores(trained, x)
    assert found.shape[1] == 4
    assert not bool((found.argmax(1) == 2).any())
    assert float(found.softmax(1)[:, 2].max()) < 1e-9
    assert found.isfinite().all()
    assert trained.evaluate((x[y != 2], y[y != 2]))["accuracy"] > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_before_anything_is_learned_the_model_answers(name: str) -> None:
    untrained, x = learner(name), data()[0]
    torch.testing.assert_close(scores(untrained, x), untrained.model.eval()(x))


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_head_goes_on(name: str, tmp_path: Any) -> None:
    x, y = data()
    trained = learner(name)
    trained.learn((x[y < 2], y[y < 2]))
    trained.save(tmp_path / "state")
    loaded = Learner.load(tmp_path / "state", network())
    for one in (trained, loaded):
        one.learn((x[y > 1], y[y > 1]))
    assert torch.equal(scores(trained, x), scores(loaded, x))


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_head_is_that_of_predict(name: str, tmp_path: Any) -> None:
    x, y = data()
    x = x.float()
    trained = Learner(network().float(), "naive", step="frozen", answer=name, settings=SETTINGS.get(name, {}))
    trained.learn((x[y != 1], y[y != 1]))
    before = copy.deepcopy(trained.model.state_dict())
    trained.export(tmp_path / "model.pt2")
    found = torch.export.load(tmp_path / "model.pt2").module()(x)
    torch.testing.assert_close(found.softmax(1), scores(trained, x).softmax(1).float(), atol=1e-4, rtol=1e-4)
    assert all(torch.equal(before[key], value) for key, value in trained.model.state_dict().items())
    if name == "slda":
        trained.export(tmp_path / "model.safetensors")
        other = nn.Sequential(nn.Linear(5, D), nn.ReLU(), nn.Linear(D, 4))
        other.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
        torch.testing.assert_close(other(x), found)
    else:
        with pytest.raises(ValueError, match=r"export to \.pt2 or \.onnx"):
            trained.export(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", NAMES)
def test_one_sample_a_class_is_enough(name: str) -> None:
    x, y = data()
    first = torch.stack([(y == c).nonzero()[0, 0] for c in range(4)])
    trained = learner(name)
    trained.learn((x[first], y[first]))
    found = scores(trained, x)
    assert found.isfinite().all()
    assert (found.argmax(1) == y).double().mean() > 0.4


@pytest.mark.parametrize("name", NAMES)
def test_bad_features_are_said(name: str) -> None:
    x, y = data()
    equal, broken = learner(name), learner(name)
    with pytest.warns(UserWarning, match="the features of all 240 samples are equal"):
        equal.learn((torch.ones_like(x), y))
    found = scores(equal, torch.ones_like(x)).softmax(1)
    torch.testing.assert_close(found, torch.full_like(found, 0.25), rtol=0, atol=1e-3)  # no class is preferred
    assert scores(equal, x).isfinite().all()
    nn.init.constant_(broken.model[0].weight, float("inf"))  # type: ignore[index]
    with pytest.raises(FloatingPointError, match="features are not finite"):
        broken.learn((x, y))
    with pytest.warns(UserWarning, match="no samples of class 3: it is never predicted"):
        learner(name).learn((x[y < 3], y[y < 3]), classes=[0, 1, 2, 3])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_trained(name: str) -> None:
    trained = learner(name)
    before = copy.deepcopy(trained.model.state_dict())
    steps: list[int] = []
    trained.learn(data(classes=2), epochs=50, on_step=lambda epoch, step, loss: steps.append(step))
    assert steps == []
    assert all(torch.equal(before[key], value) for key, value in trained.model.state_dict().items())


def test_first_session_trains_the_first_task_alone() -> None:
    x, y = data()
    trained = Learner(network(), "ranpac+", settings=SETTINGS["ranpac"], batch_size=20)
    states = [copy.deepcopy(trained.model[0].state_dict())]  # type: ignore[index]
    for classes in ((0, 1), (2, 3)):
        rows = torch.isin(y, torch.tensor(classes))
        trained.learn((x[rows], y[rows]), epochs=3)
        states.append(copy.deepcopy(trained.model[0].state_dict()))  # type: ignore[index]
    assert not torch.equal(states[0]["weight"], states[1]["weight"])
    assert torch.equal(states[1]["weight"], states[2]["weight"])
    assert trained.evaluate(data(1))["accuracy"] > 0.8


def test_grow_dim() -> None:
    assert grow_dim(torch.ones(2, 1), 1, 3).tolist() == [[1, 0, 0], [1, 0, 0]]
    assert grow_dim(torch.ones(3), 0, 2).tolist() == [1, 1, 1]


# -- texts -------------------------------------------------------------------------------------------------------------


def sentences(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Tokens of which each class has four of its own, between others."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randint(11, (n, 8), generator=generator)
    own = torch.rand(n, 8, generator=generator) < 0.7
    return torch.where(own, 3 * y[:, None] + torch.randint(3, (n, 8), generator=generator), x), y


def pairs(x: Tensor, y: Tensor) -> list[tuple[Tensor, int]]:
    """A data set of texts and labels: arrays of integers alone would be taken for labels."""
    return list(zip(x, y.tolist(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_features_of_texts(name: str, tmp_path: Any) -> None:
    """A frozen encoder of tokens: heads, removal and the exported network, whose inputs are integers."""
    torch.manual_seed(0)
    trained = Learner(OwnAttentionTransformer(width=32), "naive", step="frozen", answer=name)
    x, y = sentences(300, 0)
    for classes in ([0, 1], [2]):
        rows = torch.isin(y, torch.tensor(classes))
        trained.learn(pairs(x[rows], y[rows]))
    assert trained.evaluate(pairs(*sentences(300, 1)))["accuracy"] > 0.8
    found = [one.label for one in trained.predict(pairs(x[:5], y[:5]))]
    with torch.no_grad(), head(trained).in_model(trained.model.eval(), x[:2]):
        assert [str(int(one)) for one in trained.model(x[:5]).argmax(1)] == found
    trained.forget(pairs(x[y == 2], y[y == 2]))
    assert 2 not in scores(trained, x).argmax(1).tolist()


# -- little or bad data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_fewer_samples_than_features_and_features_that_never_vary(name: str) -> None:
    x, y = data(n=12)
    few, constant = learner(name), learner(name)
    few.learn((x, y))
    assert scores(few, x).isfinite().all()
    assert few.evaluate((x, y))["accuracy"] > 0.8
    nn.init.zeros_(constant.model[0].weight[:6].detach())  # type: ignore[index]  # six features are zero or the bias
    constant.learn(data())
    assert scores(constant, x).isfinite().all()
    assert constant.evaluate(data(1))["accuracy"] > 0.7


@pytest.mark.parametrize("name", NAMES)
def test_a_pass_that_is_stopped_changes_nothing(name: str) -> None:
    """Also without a copy to go back to: the sums are added when all features are there."""
    trained, (x, y) = learner(name), data(n=600)
    trained.learn((x[:300], y[:300]))
    before, again = copy.deepcopy(trained.state_dict()["parts"]["answer"]), copy.deepcopy(trained)
    calls: list[int] = []

    def stop(module: nn.Module, inputs: Any) -> None:
        calls.append(len(inputs[0]))
        if sum(calls) > 290:  # in the last batch
            raise KeyboardInterrupt

    with trained.model.register_forward_pre_hook(stop), pytest.raises(KeyboardInterrupt):
        trained.learn((x[300:], y[300:]), atomic=False)
    assert len(calls) > 1
    after = trained.state_dict()["parts"]["answer"]
    assert all(torch.equal(value, after["sums"][key]) for key, value in before["sums"].items())
    assert torch.equal(before["kept"], after["kept"])
    assert torch.equal(scores(trained, x), scores(again, x))


def test_the_head_is_avalanches_where_that_is_exact() -> None:
    """Its class means run sample by sample; with the same covariance and shrinkage its scores are ours."""
    f, y = cloud()
    means, counts = torch.zeros(3, 4).double(), torch.zeros(3).double()
    for row, label in zip(f, y.tolist(), strict=True):
        means[label] += (row - means[label]) / (counts[label] + 1)
        counts[label] += 1
    ours, within = covariance(counts, sum_by_class(f, y, 3), f.T @ f)
    torch.testing.assert_close(ours, means)
    inverse = torch.linalg.pinv(0.9 * within + 0.1 * torch.eye(4))
    weight = inverse @ means.T
    theirs = f @ weight - 0.5 * (means.T * weight).sum(0)
    head_of_ours = discriminants(ours, within, 0.1)
    torch.testing.assert_close(f @ head_of_ours.weight + head_of_ours.bias, theirs)
