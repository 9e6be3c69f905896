"""What kind of machine it is: limits that are set on its instructions make it another kind."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tmln.experiments.build import build
from tmln.experiments.config import RunConfig
from tmln.experiments.machine import VARIABLE, commit_of, device_name, instructions, machine, run_device
from tmln.methods import Component
from tmln.methods.penalties import PENALTIES, path_integral


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
    path = path_integral.Path(list(nn.Linear(2, 2, device="meta").parameters()))
    path.load_state_dict({"banked": [], "recent": [torch.ones(2, 2), torch.ones(2)], "steps": 0})
    assert [value.device.type for value in path.total] == ["meta", "meta"]


def test_what_decides_on_the_last_bits_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    plain = instructions()
    assert plain.split()[0] == torch.backends.cpu.get_cpu_capability().split()[0]
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert instructions() == f"{plain} ONEDNN_MAX_CPU_ISA=AVX2"
    assert machine()["instructions"] == instructions()


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True).stdout


def test_a_commit_is_of_the_checkout_that_tracks_the_package(tmp_path: Path) -> None:
    package = tmp_path / "src" / "pack"
    package.mkdir(parents=True)
    assert commit_of(package) == ""
    (package / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    (tmp_path / "README").write_text("")
    git(tmp_path, "add", "README")
    git(tmp_path, "commit", "-q", "-m", "one")
    assert commit_of(package) == ""  # in the checkout, but not of it
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "two")
    head = git(tmp_path, "rev-parse", "HEAD").strip()
    (tmp_path / "README").write_text("elsewhere")
    assert commit_of(package) == head
    (package / "__init__.py").write_text("x = 1")
    assert commit_of(package) == f"{head}+changes"
