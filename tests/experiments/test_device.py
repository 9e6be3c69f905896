"""Runs compute where they are told to, and what a state holds follows the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tmln.experiments.build import build
from tmln.experiments.config import RunConfig
from tmln.experiments.device import VARIABLE, device_name, run_device
from tmln.methods import Component
from tmln.methods.penalties import PENALTIES
from tmln.methods.penalties.path_integral import Path


@pytest.mark.parametrize(("asked", "found"), [(None, "auto"), ("", "auto"), ("cpu", "cpu"), ("meta", "meta")])
def test_where_runs_compute(monkeypatch: pytest.MonkeyPatch, asked: str | None, found: str) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if asked is not None:
        monkeypatch.setenv(VARIABLE, asked)
    best = "cuda" if torch.cuda.is_available() else "cpu"
    assert run_device().type == (best if found == "auto" else found)


@pytest.mark.parametrize("asked", ["gpu", "cuda:99", "cpux"])
def test_what_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setenv(VARIABLE, asked)
    with pytest.raises(ValueError, match=f"device '{asked}' is not to be had here; use auto, cpu"):
        run_device()


def test_the_model_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "meta")
    _, learner = build(RunConfig(benchmark="split-digits", method="ewc++"))
    assert {p.device.type for p in learner.model.parameters()} == {"meta"}
    assert device_name(torch.device("cpu")) == "cpu"


@pytest.mark.parametrize("name", [name for name, part in PENALTIES.items() if "anchor" in part.state_names])
def test_a_loaded_state_goes_to_the_weights(name: str) -> None:
    here, there = nn.Linear(2, 2), nn.Linear(2, 2, device="meta")
    parts: list[Component[Any]] = [PENALTIES[name](PENALTIES[name].Settings(), model) for model in (here, there)]
    held = [torch.ones_like(p) for p in here.parameters()]
    state = {**parts[0].state_dict(), "anchor": held, "importance": held}
    parts[1].load_state_dict(state)
    for attribute in ("anchor", "importance"):
        assert {value.device.type for value in getattr(parts[1], attribute)} == {"meta"}


def test_a_loaded_path_goes_to_the_weights() -> None:
    path = Path(list(nn.Linear(2, 2, device="meta").parameters()))
    path.load_state_dict({"banked": [], "recent": [torch.ones(2, 2), torch.ones(2)], "steps": 0})
    assert [value.device.type for value in path.total] == ["meta", "meta"]
