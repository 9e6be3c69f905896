"""What a state file says is checked before anything is built or imported; versions go on or are refused in one line."""

from __future__ import annotations

import copy
import math
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from tmln.learner import Learner
from tmln.learner.checkpoint import NewerFormat, load_file, save_file
from tmln.learner.state import VERSION, check_file, full_recipe

HELPER = "helper_of_somebody"


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def trained(method: str = "tmln+", **more: Any) -> Learner:
    learner = Learner(network(), method, batch_size=8, lr=0.01, settings={"replay.capacity": 10, **more})
    for task in range(2):
        y = torch.arange(20) % 2 + task
        learner.learn((torch.randn(20, 4, generator=torch.Generator().manual_seed(task)), y), hold_out=0.2)
    return learner


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("state") / "s.tmln"
    trained().save(path)
    return load_file(path)


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the current folder that leaves a file when it is imported."""
    (tmp_path / f"{HELPER}.py").write_text("open('ran', 'w').close()\nclass Step: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    return tmp_path


def put(content: Any, place: str, value: Any) -> dict[str, Any]:
    """A copy with ``value`` at ``place``, keys joined by slashes."""
    changed: dict[str, Any] = copy.deepcopy(content)
    *keys, last = place.split("/")
    inner: Any = changed
    for key in keys:
        inner = inner[int(key) if isinstance(inner, list) else key]
    inner[int(last) if isinstance(inner, list) else last] = value
    return changed


CODE = f"{HELPER}:Step"
HUGE = 10**12
HOSTILE: dict[str, tuple[str, Any]] = {
    "code as an option": ("options/step", CODE),
    "code as a method": ("options/method", CODE),
    "settings as an option": ("options/settings", {"replay.path": "elsewhere"}),
    "an unknown key": ("extra", 1),
    "code in the recipe": ("recipe/step/name", CODE),
    "code within a component": ("recipe/step", {"name": "sam", "settings": {"inner": CODE}}),
    "an unknown family": ("recipe/optimizer", {"name": "sgd", "settings": {}}),
    "a memory elsewhere": ("recipe/replay/settings/path", "elsewhere"),
    "a memory that is no path": ("recipe/replay/settings/path", 3),
    "an unknown setting": ("recipe/step/settings/speed", 1.0),
    "a setting out of range": ("recipe/step/settings/damping", -1.0),
    "lr": ("options/lr", float("nan")),
    "lr as text": ("options/lr", "0.1"),
    "batch size": ("options/batch_size", 0),
    "a class number": ("state/classes", [0, HUGE]),
    "a class that is negative": ("state/classes", [-1]),
    "an earlier class number": ("previous/0/state/classes", [HUGE]),
    "a sample's shape": ("state/intake/shape", [HUGE]),
    "a sample's shape in pieces": ("state/intake/shape", [2**20, 2**20]),
    "a dtype": ("state/intake/dtype", "nn"),
    "a generator": ("state/generators", [torch.zeros(3)] * 3),
    "tasks": ("state/tasks", -1),
    "a model that is text": ("state/model/0.weight", "text"),
    "first weights of another size": ("state/initial", {"0.weight": torch.zeros(9)}),
    "a component's state": ("state/parts/step", {}),
    "an unknown component": ("state/parts/heart", {}),
    "a record's lengths": ("record/held", []),
    "held-out labels": ("record/held/0", {"x": torch.zeros(3, 4), "y": torch.zeros(2, dtype=torch.int64)}),
    "a row": ("record/rows", [["a", "b", 1, 0.5, 7.0]]),
    "an accuracy": ("record/lessons/0/accuracy", 2.0),
    "another memory": ("state/parts/replay/memory/capacity", 7),
    "a memory of no size": ("state/parts/replay/memory/capacity", {"x": torch.zeros(2, 2)}),
    "a memory without labels": ("state/parts/replay/memory/fields", {"x": torch.zeros(10, 4)}),
    "a setting of the optimizer": ("state/parts/step/optimizer/param_groups/0/lr", None),
    "a size of it": ("state/parts/step/optimizer/param_groups/0/momentum", 2**1100),
    "a switch of it": ("state/parts/step/optimizer/param_groups/0/maximize", "yes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_state_must_not_say(name: str, saved: dict[str, Any], helper: Path) -> None:
    before = set(helper.rglob("*"))
    save_file(helper / "hostile.tmln", put(saved, *HOSTILE[name]))
    with pytest.raises(ValueError, match=r"\S") as caught:
        Learner.load(helper / "hostile.tmln", network())
    assert "\n" not in str(caught.value)
    assert set(helper.rglob("*")) == {*before, helper / "hostile.tmln"}
    assert HELPER not in sys.modules


def test_a_setting_that_the_optimizer_s_state_lacks_is_the_recipe_s(saved: dict[str, Any], tmp_path: Path) -> None:
    changed = copy.deepcopy(saved)
    del changed["state"]["parts"]["step"]["optimizer"]["param_groups"][0]["momentum"]
    save_file(tmp_path / "s.tmln", changed)
    learner = Learner.load(tmp_path / "s.tmln", network())
    learner.learn((torch.randn(20, 4), torch.arange(20) % 3))


def test_code_in_the_recipe_is_imported_where_it_is_allowed(saved: dict[str, Any], helper: Path) -> None:
    save_file(helper / "mine.tmln", put(saved, "recipe/step/name", CODE))
    with pytest.raises((TypeError, ValueError)):  # it is no Step, but it was imported
        Learner.load(helper / "mine.tmln", network(), allow_code=True)
    assert (helper / "ran").exists()
    sys.modules.pop(HELPER, None)


NUMBERS = [None, True, -1, 0, 3, HUGE, 2**70, 0.5, -0.5, float("nan"), float("inf")]
EMPTY: list[Any] = [[], {}, (), torch.zeros(0)]
NESTED = [*EMPTY, [HUGE], {"inner": CODE}, {"path": "elsewhere"}, {0: 1}, torch.full((3,), math.nan)]
VALUES = st.sampled_from([*NUMBERS, "", CODE, "/elsewhere", "er", "sam", *NESTED])
KEYS = st.sampled_from(["step", "path", "inner", "method", "fabric", "prepare", "version", "files", "x", "0", "shape"])


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [place for key, inner in items for place in places(inner, (*at, key))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_meaning_loads_or_is_one_line(saved: dict[str, Any], helper: Path, data: st.DataObject) -> None:
    """Sealed again after the change, as whoever writes a file can: it runs no code, makes no folder, takes little."""
    changed = copy.deepcopy(saved)
    changed["previous"] = changed["previous"][:1]
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from(places(changed)))
        inner = changed
        for key in way:
            inner = inner[key]
        act = data.draw(st.sampled_from(["set", "delete", "add"]))
        if act == "set":
            inner[last] = data.draw(VALUES)
        elif act == "delete":
            del inner[last]
        elif isinstance(inner, dict):
            inner[data.draw(KEYS)] = data.draw(VALUES)
    save_file(helper / "changed.tmln", changed)
    before, begin, memory = set(helper.iterdir()), time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        learner = Learner.load(helper / "changed.tmln", network())
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert len(tuple(learner.components.values())) == 5
    assert time.monotonic() - begin < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 300_000  # KiB
    assert HELPER not in sys.modules
    assert set(helper.iterdir()) == before
    assert not os.path.lexists("/elsewhere")


def test_a_newer_version_says_upgrade(saved: dict[str, Any], tmp_path: Path) -> None:
    for place in ("state/version", "previous/0/state/version"):
        save_file(tmp_path / "s.tmln", {**put(saved, place, VERSION + 1), "unknown": 1})
        with pytest.raises(NewerFormat, match=rf"version {VERSION + 1}, .*{VERSION}: upgrade tmln"):
            Learner.load(tmp_path / "s.tmln", network())
    learner = trained()
    with pytest.raises(NewerFormat, match="upgrade tmln"):
        learner.load_state_dict({**learner.state_dict(), "version": VERSION + 1})


def test_every_setting_is_in_the_file(saved: dict[str, Any]) -> None:
    """Defaults may change later: what was trained goes on as it began."""
    recipe, _ = check_file(saved)
    assert {"damping", "trajectory", "geometry"} <= set(saved["recipe"]["step"]["settings"])
    assert full_recipe(recipe) == full_recipe(trained().recipe)


def test_older_states_with_other_defaults_are_refused(tmp_path: Path) -> None:
    trained("der++").save(tmp_path / "s.tmln")
    content = load_file(tmp_path / "s.tmln")
    del content["state"]["version"]
    for one in content["previous"]:
        del one["state"]["version"]
    assert check_file(content)[0].replay.settings["alpha"] == 0.3  # it names them
    del content["recipe"]["replay"]["settings"]["alpha"]
    with pytest.raises(ValueError, match=r"earlier tmln, in which replay 'der\+\+' had other defaults for alpha"):
        check_file(content)


def test_a_memory_on_disk_is_gone_on_from_where_it_is(tmp_path: Path) -> None:
    first = trained(**{"replay.path": str(tmp_path / "memory")})
    first.save(tmp_path / "s.tmln")
    again = Learner.load(tmp_path / "s.tmln", network())
    assert again.replay.memory is not None
    assert len(again.replay.memory) == 10
    del first, again
    (tmp_path / "memory").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match="memory_path="):
        Learner.load(tmp_path / "s.tmln", network())
    moved = Learner.load(tmp_path / "s.tmln", network(), memory_path=tmp_path / "moved")
    assert moved.replay.memory is not None
    assert len(moved.replay.memory) == 10


@pytest.mark.parametrize("name", ["0.rows", "1.rows", "slots", "memory.json", ".memory.json.writing", "lock"])
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_a_planted_link_is_not_written_through(name: str, kind: str, tmp_path: Path) -> None:
    """A memory folder of others: what `tmln learn` would overwrite is not a file of the user's."""
    learner = trained(**{"replay.path": str(tmp_path / "memory")})
    learner.save(tmp_path / "s.tmln")
    del learner
    (folder,) = (tmp_path / "memory").iterdir()
    victim, planted = tmp_path / "victim", folder / name
    victim.write_bytes(planted.read_bytes() if planted.exists() else b"precious")
    content = victim.read_bytes()
    planted.unlink(missing_ok=True)
    if kind == "link":
        planted.symlink_to(victim)
    elif kind == "hard link":
        planted.hardlink_to(victim)
    else:
        os.mkfifo(planted)
    try:
        learner = Learner.load(tmp_path / "s.tmln", network())
        learner.learn((torch.randn(20, 4), torch.arange(20) % 3))
    except ValueError as error:
        assert "remove it" in str(error)  # noqa: PT017
    else:
        assert name == ".memory.json.writing"  # it is removed: it is the memory's own
    assert victim.read_bytes() == content


def test_a_memory_folder_behind_a_link_is_refused(tmp_path: Path) -> None:
    learner = trained(**{"replay.path": str(tmp_path / "memory")})
    learner.save(tmp_path / "s.tmln")
    del learner
    (folder,) = (tmp_path / "memory").iterdir()
    folder.rename(tmp_path / "theirs")
    folder.symlink_to(tmp_path / "theirs")
    with pytest.raises(ValueError, match="behind a link"):
        Learner.load(tmp_path / "s.tmln", network())
