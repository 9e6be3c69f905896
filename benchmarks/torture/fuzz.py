"""Generate bytes for the readers: guided by coverage (atheris, the extra ``fuzz``), or mutated blindly.

A guided trial starts ``python -m benchmarks.torture.fuzz READER FINDINGS [options of libFuzzer ...] CORPUS ...``.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.torture.scene import Scene
from benchmarks.torture.verdict import Verdict, lost, unclear
from benchmarks.torture.warm import Tell, call

NAMES = ("cifar", "cifar-binary", "mnist", "image", "configuration", "result", "learner", "state", "published")
SECONDS = 40  # of one reader, at most
MEGABYTES, SLOW = 4000, 30  # more memory, or more seconds for one file, is a finding
INSTRUMENTED = ["tmln", "yaml", "PIL"]


def guided(scene: Scene, index: int, each: int) -> Verdict:
    """Try at most ``each`` inputs and 40 s on one reader; a crash, a hang or too much memory is a loss."""
    name, folder = NAMES[index % len(NAMES)], scene.folder("fuzz", index)
    if importlib.util.find_spec("atheris") is None:
        return Verdict(notes=("not done: atheris is not installed (pip install 'tmln[fuzz]')",))
    findings, grown = folder / "findings", folder / "corpus"
    grown.mkdir()
    limits = {"runs": each, "max_total_time": SECONDS, "timeout": SLOW, "rss_limit_mb": MEGABYTES, "max_len": 8192}
    options = [*(f"-{key}={value}" for key, value in limits.items()), f"-seed={scene.seed + index + 1}"]
    options += ["-print_final_stats=1", f"-artifact_prefix={folder}{os.sep}"]
    tree = Path(__file__).resolve().parents[2]
    corpus = tree / "tests" / "torture" / "corpus" / name
    command = [sys.executable, "-m", "benchmarks.torture.fuzz", name, str(findings), *options, str(grown), str(corpus)]
    done = subprocess.run(command, capture_output=True, check=False, cwd=tree)
    said = done.stderr.decode(errors="replace")
    found = dict.fromkeys(findings.read_text().splitlines()) if findings.exists() else {}
    number = re.search(r"stat::number_of_executed_units:\s*(\d+)", said)
    verdict = Verdict(int(number[1]) if number else 0)
    verdict += sum((unclear(f"{name}: {line}") for line in found), Verdict())
    if done.returncode or not number:
        verdict += lost(f"the reader of {name} ended with {done.returncode}: {said[-600:]}")
    return verdict


def main(words: list[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris
    import torch

    torch.set_num_threads(1)
    name, findings = words[1], Path(words[2])
    with atheris.instrument_imports(include=INSTRUMENTED):
        readers = importlib.import_module("benchmarks.torture.readers")
    known: set[str] = set()
    with readers.quiet_folder() as folder:

        def one(data: bytes) -> None:
            wrong = readers.wrong(readers.READERS[name], data, folder)
            kind = re.sub(r"\d+|'[^']*'", "#", wrong)
            if wrong and kind not in known:
                known.add(kind)
                with findings.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(wrong)} of {data[:300]!r}\n")

        fuzzer: Any = atheris
        fuzzer.Setup([words[0], *words[3:]], one)
        fuzzer.Fuzz()


ODD: tuple[Any, ...] = (
    None, "", "x\n", -1, 0, True, 0.5, 1e308, 2**70, math.nan, math.inf, [], {}, [None], [[0.5]], [["a"]], {"a": 1},
    [[0.5, 0.5], [0.5]],
)  # fmt: skip


def misplaced(data: bytes, chance: random.Random) -> bytes:
    """Return JSON with one or two values changed or removed, and other bytes as they are."""
    try:
        content = json.loads(data)
    except ValueError:
        return data
    for _ in range(chance.choice((1, 1, 2))):
        places = list(_places(content))
        if places and chance.random() < 0.9:
            inside, where = chance.choice(places)
            inside[where] = copy.deepcopy(chance.choice(ODD))
        elif places:
            inside, where = chance.choice(places)
            del inside[where]
    return json.dumps(content).encode()


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """What holds a value, and where in it; of long lists the first few."""
    named = list(content.items()) if isinstance(content, dict) else []
    listed = list(enumerate(content[:4])) if isinstance(content, list) else []
    for where, value in [*named, *listed]:
        yield content, where
        yield from _places(value)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return other JSON, or bytes with a few changes: bits, bytes, pieces moved, removed, doubled or new."""
    if chance.random() < 0.5 and (new_value := misplaced(data, chance)) != data:
        return new_value
    new = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        at, kind = chance.randrange(len(new) + 1), chance.randrange(6)
        piece = slice(at, at + chance.choice((1, 1, 2, 4, 16, 64)))
        if kind == 0 and at < len(new):
            new[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            new[piece] = chance.randbytes(len(new[piece]))
        elif kind == 2:
            del new[piece]
        elif kind == 3:
            new[at:at] = new[piece]
        elif kind == 4:
            new[piece] = chance.choice((b"\xff", b"\x00", b"9", b"\x7f")) * len(new[piece])
        elif kind == 5:
            del new[at:]
    return bytes(new)


def blindly(tell: Tell, name: str, count: int, seed: str) -> Verdict:
    from benchmarks.torture.readers import READERS, quiet_folder, seeds, wrong

    chance, sound, verdict = random.Random(seed), seeds(name), Verdict(count)
    with quiet_folder() as folder:
        for _ in range(count):
            data = mutated(chance.choice(sound), chance)
            if said := wrong(READERS[name], data, folder):
                verdict += unclear(f"{name}: {said} of {data[:200]!r}")
    return verdict


def blind(scene: Scene, index: int, each: int) -> Verdict:
    name = NAMES[index % len(NAMES)]
    ended = call(blindly, name, each, f"{scene.seed} {index}")
    return ended.value if isinstance(ended.value, Verdict) else lost(f"{name}: {ended.code} {ended.said[-500:]}")


if __name__ == "__main__":
    main(sys.argv)
