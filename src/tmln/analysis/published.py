"""Read and write a published file: matrices, configurations, versions, commands, a checksum.

It is JSON, one line per run: ``{"kind": "tmln results", "format": 1, "tmln": version, "runs":
[...], "checksum": sha256}``. A run is its ``result.json``, its ``name``, the hash of its
``config``, and the ``command`` that repeats it. ``"measurements": [...]`` holds overheads,
landscapes and barriers. The same runs give the same bytes. The kind of machine is in it, not which
machine.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import tmln
from tmln.analysis.measurements import Analysis, parse_analysis
from tmln.experiments.command import commands_of
from tmln.experiments.files import from_json, make_folder, read_regular, to_json, write_whole
from tmln.experiments.identity import spell_numbers
from tmln.experiments.result import CHECKSUM, USUAL_FORMAT, Result, check_result, checksum_of, pack_long
from tmln.printable import one_line

KIND = "tmln results"
FORMAT = 1
MEASURED = "measurements"
KEYS = {"kind", "format", "tmln", MEASURED, "runs", CHECKSUM}
MOST_BYTES = 1 << 28  # of a file that is read
MACHINE = ("processor", "instructions", "cores", "device", "threads", "system")  # what kind it is, not which
COUNTED = ("confusion", "calibration", "class_names")
OURS = ("name", "said", "searched", CHECKSUM)  # fields of a result that no file has under these names
# Where a folder or a home begins, at a word's beginning: POSIX, Windows, a share.
PLACE = re.compile(r"""(?:^|[\s'"(=:,])(?:/[^\s/]|~[\w.-]*/|[A-Za-z]:[\\/]|\\\\[^\s\\])""")


log = logging.getLogger(__name__)


class NotPublished(ValueError):
    """A file that holds no published results."""


def publish(results: Iterable[Result], path: Path, measured: Iterable[Analysis] = (), *, light: bool = False) -> str:
    """Write the file atomically and return its checksum.

    A light one lacks confusions and bins of confidence, not the metrics that follow from them: a
    tenth of the bytes for 100 classes in ten tasks.
    """
    left_out = COUNTED if light else ()
    runs = [_entry(result, left_out) for result in sorted(results, key=lambda result: result.name)]
    lists: dict[str, Any] = {"runs": runs}
    if analyses := [one.plain() for one in measured]:
        lists = {MEASURED: analyses, **lists}
    head = {"kind": KIND, "format": FORMAT, "tmln": tmln.__version__}
    content = from_json(to_json({**head, **lists}).encode())
    checksum = checksum_of(content)
    lines = [f'"{key}": [\n' + ",\n".join(map(to_json, content[key])) + "\n]" for key in lists]
    text = f'{to_json(head)[:-1]}, {", ".join(lines)}, "{CHECKSUM}": "{checksum}"}}\n'
    if len(text) > MOST_BYTES:
        raise ValueError(
            f"{path.name} would have {len(text):,} bytes, more than the {MOST_BYTES:,} that are read: publish fewer "
            "runs in a file, or without confusions (--light)"
        )
    make_folder(path.parent)
    write_whole(path, text)
    return checksum


def _entry(result: Result, left_out: Sequence[str]) -> dict[str, Any]:
    content = {f.name: getattr(result, f.name) for f in fields(Result) if f.name not in (*OURS, *left_out)}
    commands, _ = commands_to_repeat(result, [result.seed])
    entry = {
        "name": result.name,
        "command": commands[0] if commands else None,
        **content,
        "format": USUAL_FORMAT if result.checksum else 1,
        "config": spell_numbers(result.config),
        "machine": {key: result.machine[key] for key in MACHINE if key in result.machine},
        "metrics": result.metrics,
    }
    return pack_long(entry)


def has_paths(one: Result | Analysis) -> bool:
    """Return whether it holds the path of a folder or file, as ``folder:PATH`` does."""
    return any(PLACE.search(text) for text in _texts({**vars(one), "name": ""}))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def read_published(path: Path) -> tuple[list[Result], dict[str, str]]:
    """Return the results of a file, and by name why others in it were refused."""
    runs = _content(path).get("runs")
    if not isinstance(runs, list):
        raise ValueError(f"{path.name} holds no list of runs")
    found: dict[str, Result] = {}
    refused: dict[str, str] = {}
    for number, run in enumerate(runs):
        name = run.pop("name", None) if isinstance(run, dict) else None
        try:
            if not isinstance(name, str) or name in found:
                raise ValueError(f"entry {number} of {path.name} has no name of its own")
            found[name] = check_result(run, name, path.name)
        except ValueError as error:
            refused[str(name)] = str(error)
    return list(found.values()), refused


def read_measured(path: Path) -> list[Analysis]:
    """Return the measurements in a file; warn about those that cannot be read."""
    found = []
    listed = _content(path).get(MEASURED, [])
    for number, one in enumerate(listed if isinstance(listed, list) else []):
        try:
            found.append(parse_analysis(one))
        except (ValueError, TypeError, KeyError) as error:
            log.warning("passed over measurement %d of %s: %s", number, path.name, error)
    return found


def _content(path: Path) -> dict[str, Any]:
    """Return the checked content of a published file, without its checksum."""
    try:
        content = from_json(read_regular(path, MOST_BYTES))
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}; `tmln publish runs -o {path.name}` makes one") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not JSON") from None
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise NotPublished(f"{path.name} holds no published results; `tmln publish runs -o FILE` writes such a file")
    version = content.get("format")
    if not isinstance(version, int) or version > FORMAT:
        raise ValueError(f"{path.name} has format {version!r:.40}, this tmln reads up to {FORMAT}: upgrade tmln")
    if unknown := content.keys() - KEYS:
        raise ValueError(f"{path.name} has the unknown key {one_line(min(unknown))}")
    if content.pop(CHECKSUM, None) != checksum_of(content):
        raise ValueError(f"{path.name} does not match its checksum: it was damaged, or edited")
    return content


def commands_to_repeat(result: Result, seeds: Sequence[int]) -> tuple[list[str], str]:
    """Return the commands that repeat a run under these seeds, or why there are none.

    Results of earlier versions do not say what was changed; working that out takes torch.
    """
    try:
        changed = result.changed
        if changed is None:
            from tmln.experiments.command import changed_of
            from tmln.experiments.config import RunConfig

            changed = changed_of(RunConfig.of(result.config))
        return commands_of(result.config, changed, seeds), ""
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [], f"this version of tmln does not know the configuration: {error}"
