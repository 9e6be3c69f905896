"""Store measurements beside runs (overheads, landscapes, barriers), and write overheads as text."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tmln.experiments.files import from_json, make_folder, read_regular, refuse_link, to_json, write_whole

FORMAT = 1
FOLDER = ".analyses"  # within a folder of runs; a run's name never begins with a point

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Analysis:
    """A measurement: its kind (overhead, losses, landscape, barrier), a name, and the content."""

    kind: str
    name: str
    content: dict[str, Any]

    def plain(self) -> dict[str, Any]:
        """Return what its file holds."""
        return {"format": FORMAT, "kind": self.kind, "name": self.name, "content": self.content}


def save_analysis(runs: Path, kind: str, name: str, content: Mapping[str, Any]) -> Path:
    """Write a measurement atomically; it replaces an older one of this name."""
    readable = re.sub(r"[^a-z0-9+.-]+", "-", f"{kind}-{name}".lower())
    path = runs / FOLDER / f"{readable}.json"
    refuse_link(path.parent)
    make_folder(path.parent)
    write_whole(path, to_json(Analysis(kind, name, dict(content)).plain()))
    return path


def load_analyses(runs: Path, kind: str | None = None) -> Iterator[Analysis]:
    """Yield all readable measurements by name; warn about others."""
    for path in sorted((runs / FOLDER).glob("*.json")):
        try:
            refuse_link(path.parent)
            analysis = parse_analysis(from_json(read_regular(path)))
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("passed over %s: %s", path, error)
            continue
        if kind in (None, analysis.kind):
            yield analysis


def parse_analysis(found: Any) -> Analysis:
    """Return a measurement from plain values; raise if they are none."""
    if found["format"] > FORMAT:
        raise ValueError(f"format {found['format']}, this tmln reads up to {FORMAT}: upgrade tmln")
    return Analysis(str(found["kind"]), str(found["name"]), dict(found["content"]))


BUSY = 0.5  # load by core from which on seconds are not to be trusted


def overhead_lines(content: Mapping[str, Any], formulas: bool = True) -> list[list[str]]:
    """Return heading and one line per method, on request with formulas of memory."""
    columns = ["by formula", "bytes"] if formulas else []
    on_gpu = any(found.get("device_peak_bytes") for found in content["methods"].values())
    peaks = ["host peak", "GPU peak"] if on_gpu else ["host peak"]
    lines = [["method", "step", "95%", "run", "boundary", "epochs", *columns, "held", *peaks]]
    for name, found in content["methods"].items():
        ratio, memory = found["step"]["ratio"], found["auxiliary"]
        times = [
            format_ratio(ratio["mean"]),
            "-" if name == "naive" else format_interval(ratio),
            format_ratio(found["training"]["ratio"]["mean"]),
        ]
        ends = [_seconds(found["boundary"]["seconds"]["mean"]), _digits(found["boundary"]["epochs"]["mean"])]
        form = [memory["formula"] or "-", _bytes(memory["formula_bytes"])] if formulas else []
        highest = [found["peak_bytes"], *([found.get("device_peak_bytes")] if on_gpu else [])]
        lines.append([name, *times, *ends, *form, _bytes(memory["held_bytes"]), *map(_bytes, highest)])
    return lines


def overhead_notes(content: Mapping[str, Any]) -> list[str]:
    """Return notes on how overheads were measured."""
    machine, control, units = content["machine"], content["control"], content["units"]
    methods = content["methods"]
    notes = [
        f"{content['rounds']} rounds of {content['steps']} steps in turns, from the second task on: "
        f"{content['model']}, {content['parameters']} parameters, batches of {content['batch_size']}; "
        f"{machine['processor']}, {machine['threads']} of {machine['cores']} cores, "
        f"torch {content['versions']['torch']}",
        "step: time of a step over naive's, geometric mean and 95% t-interval (of logarithms) over rounds; run: the "
        f"same of a whole run of {content['tasks']} tasks of {content['epochs']} epochs, with its boundaries",
        "boundary: what is done when a task ends; epochs: the same in epochs of naive",
        f"control, naive against itself: {format_ratio(control['mean'])} {format_interval(control)}",
        "held: what the method's components keep beside the model, as found; host peak: of the whole process, torch "
        "included; GPU peak: of its tensors there",
        "by formula: " + "; ".join(f"{name} {_formula(found['auxiliary'])}" for name, found in methods.items()),
        f"N, the weights: {_bytes(units['N'])}; K, Kronecker factors: {_bytes(units['K'])}; "
        f"a sample: {units['samples']} bytes",
    ]
    derived = {name: found["auxiliary"]["derived"] for name, found in methods.items()}
    if any(derived.values()):
        listed = "; ".join(f"{name} {', '.join(names)}" for name, names in derived.items() if names)
        notes.append(f"of which derived, and in no checkpoint: {listed}")
    if content["rounds"] == 1:
        notes.append("one round only, so no interval")
    if machine["load"] is not None and machine["load"] > BUSY * (machine["cores"] or 1):
        notes.append(
            f"others were at work (load {machine['load']:.1f} on {machine['cores']} cores): the intervals are wider, "
            "and the seconds longer, than on a free machine"
        )
    for name, found in methods.items():
        if found["diverged"]:
            notes.append(f"{name} diverged {found['diverged']}")
    return notes


def overhead_records(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return flat records for CSV, with full precision."""
    pairs = {"step": ("ratio", "seconds"), "training": ("ratio",), "boundary": ("seconds", "epochs")}
    summaries = [(group, key) for group, keys in pairs.items() for key in keys]
    return [
        {
            "benchmark": content["benchmark"],
            "method": name,
            **{f"{a}_{b}_{part}": found[a][b][part] for a, b in summaries for part in ("mean", "low", "high", "n")},
            **{size: found["auxiliary"][size] for size in ("formula", "formula_bytes", "held_bytes", "saved_bytes")},
            "peak_bytes": found["peak_bytes"],
            "device_peak_bytes": found.get("device_peak_bytes"),
            "diverged": found["diverged"],
        }
        for name, found in content["methods"].items()
    ]


def _formula(memory: Mapping[str, Any]) -> str:
    """Return the formula of memory, with its bytes where they differ from those measured."""
    formula: str | None = memory["formula"]
    if formula is None:
        return "unknown"
    differs = memory["held_bytes"] not in (None, memory["formula_bytes"])
    return formula + (f" ({_bytes(memory['formula_bytes'])}, unlike what is held)" if differs else "")


def format_ratio(ratio: float | None) -> str:
    """Write a ratio with two digits; a dash where there is none."""
    return "-" if ratio is None else f"{ratio:.2f}"


def format_interval(summary: Mapping[str, Any]) -> str:
    """Write ``[1.02, 1.10]``; a dash for a single round."""
    return "-" if summary["low"] is None else f"[{summary['low']:.2f}, {summary['high']:.2f}]"


def _digits(value: float | None) -> str:
    """Return the number with two significant digits."""
    if value is None:
        return "-"
    if 0 < value < 0.001:
        return "<0.001"
    return f"{value:.0f}" if value >= 10 or not value else f"{value:.{1 - math.floor(math.log10(value))}f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{_digits(1000 * value)} ms" if value < 1 else f"{_digits(value)} s"


def _bytes(size: int | None) -> str:
    if size is None:
        return "-"
    unit, name = (1e3, "kB") if size < 1e6 else (1e6, "MB") if size < 1e9 else (1e9, "GB")
    return f"{_digits(size / unit)} {name}"
