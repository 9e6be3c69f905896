"""Probabilities of the nearest mean: the temperature by hand, against a grid, and what it does to calibration."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.methods.answers.test_answers import network, scores, task, trained
from tmln.evaluation_counts import CALIBRATION, calibration_error
from tmln.learner import Learner
from tmln.learner.evaluation_statistics import Tally
from tmln.methods.answers.ncm import (
    MAX_FIT_SAMPLES,
    compute_class_means,
    fit_inverse_temperature,
    score_by_distance,
    score_left_out,
)
from tmln.models import make_model
from tmln.streams import make_stream


def test_the_temperature_by_hand() -> None:
    """Three of four right at a margin of 1: targets are 5/6 and 1/6, in the mean 2/3 = 1/(1 + exp(-ln 2))."""
    same = torch.tensor([[0.0, -1.0]] * 4, dtype=torch.float64)
    assert fit_inverse_temperature(same, torch.tensor([0, 0, 0, 1])) == pytest.approx(math.log(2), rel=1e-9)
    assert fit_inverse_temperature(same / 8, torch.tensor([0, 0, 0, 1])) == pytest.approx(8 * math.log(2), rel=1e-9)


def test_without_a_choice_nothing_is_fitted() -> None:
    assert fit_inverse_temperature(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)) == 1
    assert fit_inverse_temperature(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64)) == 1


def test_the_temperature_is_the_best_of_a_grid() -> None:
    generator = torch.Generator().manual_seed(0)
    found, column = torch.randn(50, 4, generator=generator).double(), torch.randint(4, (50,), generator=generator)
    found[torch.arange(50), column] += 1.0
    target = torch.full_like(found, 1 / (52 * 3))
    target[torch.arange(50), column] = 51 / 52
    grid = [2 ** (k / 50) for k in range(-200, 200)]
    losses = [-float((target * (found * b).log_softmax(1)).sum()) for b in grid]
    assert fit_inverse_temperature(found, column) == pytest.approx(grid[losses.index(min(losses))], rel=0.02)


def test_left_out_scores_against_means_made_without_the_sample() -> None:
    generator = torch.Generator().manual_seed(1)
    features, y = torch.randn(9, 5, generator=generator).double(), torch.tensor([0, 2, 2, 4, 4, 4, 4, 2, 7])
    found, column = score_left_out(features, y)
    kept = [1, 2, 3, 4, 5, 6, 7]  # the others are alone in their class
    assert column.tolist() == [[0, 2, 4, 7].index(int(y[row])) for row in kept]
    for row, said in zip(kept, found, strict=True):
        others = torch.arange(9) != row
        means, classes = compute_class_means(features[others], y[others])
        expected = score_by_distance(torch.zeros(1, 8), features[row : row + 1], means, classes)[0, classes]
        torch.testing.assert_close(said, expected)


def test_of_a_large_memory_some_are_taken() -> None:
    y = torch.arange(3 * MAX_FIT_SAMPLES) % 3
    found, column = score_left_out(torch.randn(len(y), 2, generator=torch.Generator().manual_seed(0)), y)
    assert len(found) == MAX_FIT_SAMPLES
    assert column.unique().tolist() == [0, 1, 2]


def test_calibration_on_split_digits(tmp_path: Path) -> None:
    """With the temperature the calibration error is a tenth, and every prediction is what it was."""
    stream = make_stream("split-digits")
    torch.manual_seed(0)
    options = {"prepare": stream.prepare, "augment": stream.augment}
    learner = Learner(make_model("mlp", stream.shape, stream.classes), "icarl", batch_size=32, **options)  # type: ignore[arg-type]
    for one in stream:
        learner.learn(one.train, epochs=5, classes=one.classes)
    learner.save(tmp_path / "icarl.tmln")
    tests = [(one.test, one.classes) for one in stream]

    def tally(of: Learner) -> tuple[Tally, float]:
        counted = Tally(len(tests))
        of.evaluate_tasks(tests, counted)
        return counted, calibration_error(dict(zip(CALIBRATION, [[row] for row in counted.bins.tolist()], strict=True)))

    fitted, error = tally(learner)
    again = Learner.load(tmp_path / "icarl.tmln", make_model("mlp", stream.shape, stream.classes), **options)  # type: ignore[arg-type]
    assert torch.equal(tally(again)[0].bins, fitted.bins)
    again.answer.inverse_temperature = 1.0  # type: ignore[attr-defined]
    plain, before = tally(again)
    assert torch.equal(torch.cat(plain.predicted), torch.cat(fitted.predicted))
    assert before > 0.4
    assert error < before / 10


def test_a_state_without_a_temperature_predicts_as_it_did() -> None:
    learner = trained("ncm")
    state = learner.answer.state_dict()
    assert state.pop("inverse_temperature") > 1
    before = scores(learner, task(0)[0])
    learner.answer.load_state_dict(state)
    assert learner.answer.inverse_temperature == 1.0  # type: ignore[attr-defined]
    assert torch.equal(scores(learner, task(0)[0]).argsort(1), before.argsort(1))


def test_the_memory_of_a_gem_within_sam_will_do() -> None:
    settings = {"step.inner": "a-gem"}
    learner = Learner(network(), "naive", answer="ncm", step="sam", settings=settings, batch_size=10)
    learner.learn(task(0))
    assert learner.answer.is_fitted  # type: ignore[attr-defined]
