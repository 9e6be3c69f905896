"""Measurements that are no runs (overhead, losses, landscape, barrier): made once, kept beside the runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from tmln.analysis.measurements import FOLDER, save_analysis
from tmln.analysis.read import read_analyses
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.files import to_json
from tmln.paper.evidence import Study
from tmln.paper.scales import Scale, Stand

Content = dict[str, Any]


def mark(scale: Scale) -> str:
    """A part of the name of all that was measured at this scale."""
    return f"-paper-{scale.name}-"


def measured(
    study: Study,
    stand: Stand,
    kind: str,
    configs: Sequence[RunConfig],
    measure: Callable[[], Content],
    **options: Any,
) -> tuple[Content | None, list[str]]:
    """What ``measure`` found, as it is read from disk (null is no number); or None, and in words why there is nothing.

    ``options`` are what it was measured with: others make another measurement.
    """
    asked = to_json([kind, [run_id(config) for config in configs], options])
    name = f"{stand.benchmark}{mark(study.scale)}{hashlib.sha256(asked.encode()).hexdigest()[:8]}"
    found = _load(study, kind, name)
    if study.published is not None:
        return found, [] if found is not None else [f"not measured in what {study.store.root} has of {kind}"]
    if found is not None:
        return found, [f"measured before; without {study.store.root / FOLDER} it is measured anew"]
    if stand.missing:
        return None, [f"not run: {stand.missing} is not at hand; tmln data get {stand.missing}"]
    try:
        save_analysis(study.store.root, kind, name, measure())
    except (ArithmeticError, RuntimeError, ValueError) as error:
        return None, [f"not measured: {error}"]
    return _load(study, kind, name), []


def _load(study: Study, kind: str, name: str) -> Content | None:
    return next((one.content for one in read_analyses(study.store.root, kind) if one.name == name), None)
