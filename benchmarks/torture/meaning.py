"""Sealed files of others whose meaning was changed: keys, types, ranges and names, behind checksums that are right.

A reader may take such a file or refuse it in one line. It imports nothing that the file names, makes nothing outside
the file's folder, and takes no more memory than there is for a small run.
"""

from __future__ import annotations

import copy
import json
import os
import random
import resource
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.torture.fuzz import ODD
from benchmarks.torture.reached import (
    Execution,
    Learner,
    RunConfig,
    Store,
    build,
    build_document,
    checksum_of,
    find_defect,
    make_jobs,
    make_model,
    read_published,
    read_result,
    run_name,
)
from benchmarks.torture.readers import quiet_folder, wrong
from benchmarks.torture.scene import Scene
from benchmarks.torture.verdict import Verdict, lost, unclear
from benchmarks.torture.warm import Tell, call

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "golden" / "fixtures"
MEMORY = 8 << 30  # bytes of address space
PLANTED, OUTSIDE = "planted_by_the_torture", "made_outside"
SIZES = (0, -1, 1, 3, 2**31, 10**12, 2**62, 10**30, 1e12, 1e308, -1e308)
NAMES = (f"{PLANTED}:Thing", "os:system", "timm:hf-hub:somebody/net", "../..", "er", "tmln", "x\n1 of 1 match")
Seal = Callable[[dict[str, Any], Path], None]  # writes the changed content into a folder


def places(content: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield every container and where in it a value is; of lists the first two."""
    named = list(content) if isinstance(content, dict) else list(range(min(2, len(content))))
    for where in named:
        yield content, where
        if isinstance(content[where], (dict, list)) and depth < 8:
            yield from places(content[where], depth + 1)


def change(content: Any, chance: random.Random, outside: Path) -> None:
    """Change one to three values: another name, size, type or sibling's value; a key gone, renamed or new."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        inside, where = chance.choice(list(places(content)))
        kind = chance.randrange(8)
        if kind == 0 and isinstance(inside, dict):
            inside[chance.choice(("unheard_of", "options", "path", "replay.path", "format"))] = str(outside)
        elif kind == 1 and isinstance(inside, dict):
            inside[f"{where}_"] = inside.pop(where)
        elif kind == 2:
            del inside[where]
        elif kind == 3:
            inside[where] = copy.deepcopy(chance.choice(ODD))
        elif kind == 4:
            inside[where] = copy.deepcopy(chance.choice([value[key] for value, key in places(content)]))
        elif kind == 5:
            inside[where] = chance.choice((*NAMES, str(outside)))
        else:
            inside[where] = chance.choice(SIZES)
        if not content:
            return


def sealed(content: Any) -> str:
    return json.dumps({"checksum": zlib.crc32(json.dumps(content).encode()), "content": content})


def read_state(content: dict[str, Any], folder: Path) -> None:
    """A state file, whose tensors stay as they were."""
    data = (FIXTURES / "learner.tmln").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"]["tmln"] = sealed(content)
    text = json.dumps(header).encode()
    (folder / "state.tmln").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    Learner.load(folder / "state.tmln", make_model("mlp", (4,), 3, hidden=8))


def read_checkpoint(content: dict[str, Any], folder: Path) -> None:
    shutil.copytree(FIXTURES / "unfinished-2", folder / "runs")
    (file,) = folder.glob("runs/*/checkpoint/*/state.json")
    file.write_text(sealed(content), encoding="utf-8")
    (config,) = folder.glob("runs/*/config.yaml")
    run = Store(folder / "runs").open(RunConfig.from_yaml(config.read_text(encoding="utf-8")))
    with run.lock:
        Execution(run)


def read_finished(content: dict[str, Any], folder: Path) -> None:
    content.pop("checksum", None)
    config = content.get("config")
    file = folder / (run_name(config) if isinstance(config, dict) else "run") / "result.json"
    file.parent.mkdir()
    file.write_text(json.dumps({**content, "checksum": checksum_of(content)}), encoding="utf-8")
    result = read_result(file)
    if not find_defect(result):
        assert result.metrics is not None
        jobs, _ = make_jobs([result])
        for job in jobs.values():
            build(job.config)


def read_config(content: dict[str, Any], folder: Path) -> None:
    build(RunConfig.from_yaml(yaml.safe_dump(content)))


def read_publication(content: dict[str, Any], folder: Path) -> None:
    content.pop("checksum", None)
    for run in content["runs"] if isinstance(content.get("runs"), list) else ():
        if isinstance(run, dict) and isinstance(run.get("config"), dict):
            run["name"] = run_name(run["config"])
    file = folder / "published.json"
    file.write_text(json.dumps({**content, "checksum": checksum_of(content)}), encoding="utf-8")
    results, _ = read_published(file)
    make_jobs([result for result in results if not find_defect(result)])
    build_document(file)


def contents(name: str) -> Any:
    """Return what the sound file says."""
    if name == "state":
        data = (FIXTURES / "learner.tmln").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        return json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["tmln"])["content"]
    patterns = {
        "checkpoint": "unfinished-2/*/checkpoint/*/state.json", "result": "finished/*/result.json",
        "configuration": "unfinished-2/*/config.yaml", "published": "published.json",
    }  # fmt: skip
    (file,) = FIXTURES.glob(patterns[name])
    text = file.read_text(encoding="utf-8")
    return yaml.safe_load(text) if file.suffix == ".yaml" else json.loads(text).get("content", json.loads(text))


READERS: dict[str, Seal] = {
    "checkpoint": read_checkpoint,
    "result": read_finished,
    "configuration": read_config,
    "published": read_publication,
    "state": read_state,
}
MANY = len(READERS)


def fault_of(reader: Seal, content: Any, folder: Path) -> str:
    """Return what is wrong with a reader's answer to this content, or nothing."""
    outside, place = folder / OUTSIDE, folder / "file"
    place.mkdir()
    try:
        said = wrong(lambda data, where: reader(content, where), b"", place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if PLANTED in sys.modules:
        return "it imported what the file names"
    if outside.exists():
        shutil.rmtree(outside)
        return "it made a folder that the file names"
    return said


def tried(tell: Tell, name: str, count: int, seed: str) -> Verdict:
    os.environ.pop("TMLN_ALLOW_CODE", None)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    chance, verdict = random.Random(seed), Verdict(count)
    with quiet_folder() as folder:
        (folder / f"{PLANTED}.py").write_text("Thing = dict\n", encoding="utf-8")
        sys.path.insert(0, str(folder))
        for _ in range(count):
            content = copy.deepcopy(contents(name))
            change(content, chance, folder / OUTSIDE)
            if said := fault_of(READERS[name], content, folder):
                verdict += unclear(f"{name}: {said[:300]}")
    return verdict


def trial(scene: Scene, index: int, each: int) -> Verdict:
    name = list(READERS)[index % len(READERS)]
    ended = call(tried, name, each, f"{scene.seed} meaning {index}")
    return ended.value if isinstance(ended.value, Verdict) else lost(f"{name}: {ended.code} {ended.said[-500:]}")
