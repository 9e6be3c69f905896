"""What a state file of the present version holds: keys of its schema, and what components save and default to.

``python -m tests.golden state`` records it for the present version, and writes the version's fixture. A change of
format, of what a component saves, or of a default is a new version: raise ``tmln.learner.state.VERSION``, then record.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import tmln
from tmln.learner import state
from tmln.methods.recipes import FAMILIES
from tmln.models import make_model

STATES = Path(__file__).parent / "states.json"
FIXTURES = Path(__file__).parent / "fixtures"


def present() -> dict[str, Any]:
    """Return keys of every schema, and for each component what it saves and its defaults."""
    schemas = [value for value in vars(state).values() if isinstance(value, type) and issubclass(value, state.Schema)]
    components = {
        f"{family}/{name}": {
            "saved": sorted(component.state_names),
            "defaults": {key: field.default for key, field in component.Settings.model_fields.items()},
        }
        for family, table in FAMILIES.items()
        for name, component in table.items()
    }
    keys = {one.__name__: sorted(one.model_fields) for one in schemas if one.__name__ != "_Families"}
    found: dict[str, Any] = json.loads(json.dumps({"keys": keys, "components": components}))
    return found


def fixture(version: int) -> Path:
    """Return the path of a version's state file; ``learner.json`` beside it says what it predicts."""
    return FIXTURES / ("learner.tmln" if version == 1 else f"learner-{version}.tmln")


def network() -> torch.nn.Module:
    """Return the network of the fixtures, which grows to three classes in them."""
    return make_model("mlp", (4,), 3, hidden=8)


def record() -> None:
    """Record the present version and write its fixture, from the fixture before."""
    every = json.loads(STATES.read_text(encoding="utf-8")) if STATES.exists() else {}
    every[str(state.VERSION)] = present()
    STATES.write_text(json.dumps(every, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    tmln.Learner.load(fixture(state.VERSION - 1), network()).save(fixture(state.VERSION))
