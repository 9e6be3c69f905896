"""What was measured about runs, beside them: overheads, landscapes, barriers, for the report and the paper to show."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tmln.experiments.files import from_json, make_folder, read_own, refuse_link, to_json, write_whole

FORMAT = 1
FOLDER = ".analyses"  # within a folder of runs; a run's name never begins with a point

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Analysis:
    """``kind`` is overhead, losses, landscape or barrier; ``name`` tells those of one kind apart."""

    kind: str
    name: str
    content: dict[str, Any]

    def plain(self) -> dict[str, Any]:
        """What a file has of it."""
        return {"format": FORMAT, "kind": self.kind, "name": self.name, "content": self.content}


def save_analysis(runs: Path, kind: str, name: str, content: Mapping[str, Any]) -> Path:
    """Plain values, in a file that appears whole; an older one of this name gives way."""
    readable = re.sub(r"[^a-z0-9+.-]+", "-", f"{kind}-{name}".lower())
    path = runs / FOLDER / f"{readable}.json"
    refuse_link(path.parent)
    make_folder(path.parent)
    write_whole(path, to_json(Analysis(kind, name, dict(content)).plain()))
    return path


def load_analyses(runs: Path, kind: str | None = None) -> Iterator[Analysis]:
    """All that can be read, by name; others are said and passed over."""
    for path in sorted((runs / FOLDER).glob("*.json")):
        try:
            refuse_link(path.parent)
            analysis = analysis_of(from_json(read_own(path)))
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("passed over %s: %s", path, error)
            continue
        if kind in (None, analysis.kind):
            yield analysis


def analysis_of(found: Any) -> Analysis:
    """From the plain values of :meth:`Analysis.plain`; an error of whatever kind if they are none."""
    if found["format"] > FORMAT:
        raise ValueError(f"format {found['format']}, this tmln reads up to {FORMAT}: upgrade tmln")
    return Analysis(str(found["kind"]), str(found["name"]), dict(found["content"]))
