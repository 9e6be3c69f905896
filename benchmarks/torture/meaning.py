"""Change the meaning of sealed files: keys, types, ranges and names, behind checksums that are right.

A reader may take such a file or refuse it in one line. It imports nothing that the file names, makes and changes
nothing outside the file's folder, and takes no more memory than a small run does. Half of the changes are anywhere,
half are ``AIMS``: what somebody would write who wants to reach further.
"""

from __future__ import annotations

import copy
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from benchmarks.torture.fuzz import ODD
from benchmarks.torture.reached import (
    Execution,
    Learner,
    LearnRequest,
    RunConfig,
    Store,
    build,
    build_document,
    checksum_of,
    find_defect,
    learn_into,
    learner_of_run,
    make_jobs,
    make_model,
    open_learner,
    read_published,
    read_result,
    run_name,
)
from benchmarks.torture.readers import quiet_folder, wrong
from benchmarks.torture.scene import Scene
from benchmarks.torture.verdict import Verdict, lost, unclear
from benchmarks.torture.warm import Tell, call

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "golden" / "fixtures"
MEMORY = 8 << 30  # bytes of address space, besides what torch takes
MOST = 1 << 29  # bytes of it that one file may take
SECONDS = 60  # of one file, after which the trial is ended
PLANTED, OUTSIDE, VICTIM = "planted_by_the_torture", "made_outside", "victim"
PRECIOUS = bytes(1 << 16)  # what a file of the user's has
SIZES = (0, -1, 1, 3, 2**31, 10**12, 2**62, 10**30, 1e12, 1e308, -1e308)
NAMES = (f"{PLANTED}:Thing", "os:system", "timm:hf-hub:somebody/net", "../..", "er", "tmln", "x\n1 of 1 match")
HUGE = (2**29, 2**31, 10**9, 10**12)
HERE = "/folder/of/the/file"  # stands for it in what the sound file says
Seal = Callable[[dict[str, Any], Path], None]  # writes the changed content into a folder
Aim = tuple[tuple[str | int, ...], tuple[Any, ...]]  # a place in the content, and what is written there

CODE = f"{PLANTED}:Thing"
OF_CONFIGURATIONS: tuple[Aim, ...] = (
    (("model",), (CODE, "resnet18")),
    (("penalty",), (CODE,)),
    (("model_options", "hidden"), HUGE),
    (("batch_size",), HUGE),
    (("benchmark_options", "per_class"), HUGE),
    (("settings", "replay.capacity"), HUGE),
    (("settings", "replay.path"), (OUTSIDE,)),
)
LAYOUT = (*([size] for size in HUGE), [2**15, 2**14])


def _of_tensor(*place: str | int) -> tuple[Aim, ...]:
    return ((*place, "shape"), LAYOUT), ((*place, "stride"), ([0, 0], [2**26, 1], [2**40, 1]))


def _below(*place: str | int) -> tuple[Aim, ...]:
    return tuple(((*place, *where), values) for where, values in OF_CONFIGURATIONS)


OF_STATES: tuple[Aim, ...] = (
    (("state", "recipe", "replay", "settings", "path"), (OUTSIDE,)),
    (("state", "recipe", "step", "name"), (CODE,)),
    *((("state", "options", family), (CODE,)) for family in ("step", "replay", "answer")),
    (("state", "state", "classes"), LAYOUT),
    (("state", "state", "tasks"), HUGE),
    *_of_tensor("state", "state", "model", "hidden.0.weight"),
)
FILES = ("0.rows", "1.rows", "slots", "memory.json", ".memory.json.writing", "lock")
AIMS: dict[str, tuple[Aim, ...]] = {
    "checkpoint": (
        (("sparse",), (1 << 30,)),
        (("state", "learner", "classes"), LAYOUT),
        *_of_tensor("state", "learner", "model", "hidden.0.weight"),
    ),
    "result": _below("config"),
    "configuration": OF_CONFIGURATIONS,
    "published": _below("runs", 0, "config"),
    "state": OF_STATES,
    "deployed state": (
        (("state", "about", "options", "hidden"), (*HUGE, [1] * 200_000)),
        (("state", "about", "outputs"), HUGE),
        (("state", "about", "shape"), LAYOUT),
        (("state", "about", "model"), (CODE, "resnet18")),
        (("state", "state", "classes"), LAYOUT),
    ),
    "memory folder": (
        *((("planted", name), ("link", "hard link", "pipe")) for name in FILES),
        (("planted", ""), ("link",)),
        (("note", "capacity"), HUGE),
        (("note", "fields", "0", "shape"), LAYOUT),
        (("file", "state", "recipe", "replay", "settings", "path"), (OUTSIDE,)),
        (("file", "state", "state", "parts", "replay", "memory", "files", "rows"), HUGE),
    ),
    "run folder": OF_CONFIGURATIONS,
    "npz": (
        (("x", "shape"), LAYOUT),
        (("x", "zeros"), (600,)),
        (("y", "values"), ([0, 10**12], [2**40], [-1])),
        (("y", "descr"), ("|O", "<U100000000")),
    ),
}


def places(content: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield every container and where in it a value is; of lists the first two."""
    named = list(content) if isinstance(content, dict) else list(range(min(2, len(content))))
    for where in named:
        yield content, where
        if isinstance(content[where], (dict, list)) and depth < 8:
            yield from places(content[where], depth + 1)


def change(content: Any, chance: random.Random, outside: Path, aims: tuple[Aim, ...] = ()) -> None:
    """Change one to three values: another name, size, type or sibling's value; a key gone, renamed or new.

    Half of the times one of ``aims`` instead.
    """
    if aims and chance.random() < 0.5:
        aim(content, *chance.choice(aims), chance, outside)
        return
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


def aim(
    content: Any, place: tuple[str | int, ...], values: tuple[Any, ...], chance: random.Random, outside: Path
) -> None:
    """Write one of the values at a place; what is on the way there is made."""
    *way, last = place
    for key in way:
        content = content.setdefault(key, {}) if isinstance(content, dict) else content[key]
    value = chance.choice(values)
    content[last] = str(outside) if value == OUTSIDE else copy.deepcopy(value)


def sealed(content: Any) -> str:
    return json.dumps({"checksum": zlib.crc32(json.dumps(content).encode()), "content": content})


def split(file: Path) -> tuple[dict[str, Any], bytes]:
    """Return the header of a state file, and its tensors."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def said(file: Path) -> Any:
    """Return the JSON of a state file."""
    return json.loads(split(file)[0]["__metadata__"]["tmln"])["content"]


def write_state(content: dict[str, Any], file: Path, like: Path = FIXTURES / "learner.tmln") -> Path:
    """Write a state file with the tensors of another one."""
    header, tensors = split(like)
    header["__metadata__"]["tmln"] = sealed(content)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + tensors)
    return file


def network() -> Any:
    """Return the model of the states."""
    return make_model("mlp", (4,), 3, hidden=8)


def read_state(content: dict[str, Any], folder: Path) -> None:
    """Load a state file from Python."""
    Learner.load(write_state(content, folder / "state.tmln"), network())


def read_deployed(content: dict[str, Any], folder: Path) -> None:
    """Open a state file as `tmln predict` and `tmln export` do."""
    open_learner(write_state(content, folder / "state.tmln")).export(folder / "labels.json")


@cache
def memory_on_disk() -> Path:
    """Return a folder with a state file whose memory is on disk."""
    root = Path(tempfile.mkdtemp(prefix="tmln-memory-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    settings = {"replay.path": str(root / "memory"), "replay.capacity": 10}
    learner = Learner(network(), "er", batch_size=8, settings=settings)
    learner.learn((torch.rand(20, 4), torch.arange(20) % 3))
    learner.save(root / "state.tmln")
    return root


def read_memory(content: dict[str, Any], folder: Path) -> None:
    """Go on from a state whose memory folder somebody else made."""
    base = memory_on_disk()
    shutil.copytree(base / "memory", folder / "memory")
    (inner,) = (folder / "memory").iterdir()
    planted = content.get("planted")
    (inner / "memory.json").write_text(json.dumps(content.get("note")), encoding="utf-8")
    for name, kind in planted.items() if isinstance(planted, dict) else ():
        if name not in ("", *FILES):
            continue
        if name:
            (inner / name).unlink(missing_ok=True)
        else:
            inner.rename(folder / "theirs")
        if kind == "pipe":
            os.mkfifo(inner / name)
        elif kind == "hard link" and name:
            (inner / name).hardlink_to(folder.parent / VICTIM)
        else:
            (inner / name).symlink_to(folder.parent / VICTIM if name else folder / "theirs")
    state = json.loads(json.dumps(content.get("file")).replace(HERE, str(folder)))
    learner = Learner.load(write_state(state, folder / "state.tmln", base / "state.tmln"), network())
    learner.learn((torch.rand(20, 4), torch.arange(20) % 3))


def read_checkpoint(content: dict[str, Any], folder: Path) -> None:
    """Go on with a run."""
    shutil.copytree(FIXTURES / "unfinished-2", folder / "runs")
    (file,) = folder.glob("runs/*/checkpoint/*/state.json")
    sparse = content.pop("sparse", None)
    file.write_text(sealed(content), encoding="utf-8")
    if type(sparse) is int and sparse > 0:
        os.truncate(file, sparse)
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


def read_run_folder(content: dict[str, Any], folder: Path) -> None:
    """Export a finished run whose configuration was edited."""
    (run,) = (FIXTURES / "finished").iterdir()
    shutil.copytree(run, folder / "runs" / run.name)
    (folder / "runs" / run.name / "config.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    try:
        learner_of_run(folder / "runs" / run.name)
    except RuntimeError as error:
        if "learned again" not in str(error):  # on another kind of machine
            raise


ZEROS = zlib.compressobj(9, wbits=-15)
MEBIBYTE = ZEROS.compress(bytes(1 << 20)) + ZEROS.flush(zlib.Z_FULL_FLUSH)  # of zeros, packed: may be repeated


def read_arrays(content: dict[str, Any], folder: Path) -> None:
    """Learn an .npz whose headers say what they like, and which unpacks to as many MiB of zeros as ``x`` says."""
    with zipfile.ZipFile(folder / "data.npz", "w") as pack:
        for name, array in content.items():
            about = array if isinstance(array, dict) else {}
            zeros = about.get("zeros")
            zeros = zeros if type(zeros) is int and 0 < zeros <= 600 else 0
            values = about.get("values")
            fits = isinstance(values, list) and values and all(type(v) is int and -(2**63) <= v < 2**63 for v in values)
            data = np.resize(np.array(values if fits else [0]), 20).tobytes() if "values" in about else bytes(320)
            shape = [20 + (zeros << 16), 4] if zeros else about.get("shape")
            plain = {"descr": about.get("descr"), "fortran_order": False, "shape": shape}
            header = repr(plain).replace("[", "(").replace("]", ",)").encode()
            head = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header
            info = zipfile.ZipInfo(f"{name}.npy")
            if not zeros:
                pack.writestr(info, head + data)
                continue
            packer = zlib.compressobj(9, wbits=-15)
            body = packer.compress(head + data) + packer.flush(zlib.Z_FULL_FLUSH) + zeros * MEBIBYTE + b"\x03\x00"
            pack.writestr(info, body)
            info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, len(head + data) + (zeros << 20)
    learn_into(folder / "new.tmln", folder / "data.npz", LearnRequest(epochs=1, settings={"model.hidden": "8"}))


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
    state = said(FIXTURES / "learner.tmln")
    if name == "state":
        return state
    if name == "deployed state":
        state["state"]["about"] = {"model": "mlp", "shape": [4], "outputs": 3, "options": {"hidden": 8}}
        return state
    if name == "memory folder":
        root = memory_on_disk()
        (note,) = root.glob("memory/*/memory.json")
        file = json.loads(json.dumps(said(root / "state.tmln")).replace(str(root), HERE))
        return {"file": file, "note": json.loads(note.read_text()), "planted": {}}
    if name == "npz":
        x, y = {"descr": "<f4", "shape": [20, 4]}, {"descr": "<i8", "shape": [20], "values": [0, 1]}
        return {"x": x, "y": y}
    patterns = {
        "checkpoint": "unfinished-2/*/checkpoint/*/state.json", "result": "finished/*/result.json",
        "configuration": "unfinished-2/*/config.yaml", "published": "published.json",
        "run folder": "finished/*/config.yaml",
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
    "deployed state": read_deployed,
    "memory folder": read_memory,
    "run folder": read_run_folder,
    "npz": read_arrays,
}
MANY = len(READERS)


def peak() -> int:
    """Return the most address space that this process has had, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmPeak"))


def fault_of(reader: Seal, content: Any, folder: Path) -> str:
    """Return what is wrong with a reader's answer to this content, or nothing."""
    outside, place, victim, before = folder / OUTSIDE, folder / "file", folder / VICTIM, peak()
    place.mkdir()
    victim.write_bytes(PRECIOUS)
    try:
        said = wrong(lambda data, where: reader(content, where), b"", place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if PLANTED in sys.modules:
        return "it imported what the file names"
    if outside.exists():
        shutil.rmtree(outside)
        return "it made a folder that the file names"
    if victim.read_bytes() != PRECIOUS:
        return "it wrote into a file that the folder links to"
    return said or (f"it took {(peak() - before) >> 20:,} MiB" if peak() - before > MOST else "")


def tried(tell: Tell, name: str, count: int, seed: str) -> Verdict:
    os.environ.pop("TMLN_ALLOW_CODE", None)
    resource.setrlimit(resource.RLIMIT_AS, (peak() + MEMORY, resource.RLIM_INFINITY))
    chance, verdict = random.Random(seed), Verdict(count)
    with quiet_folder() as folder:
        (folder / f"{PLANTED}.py").write_text("Thing = dict\n", encoding="utf-8")
        sys.path.insert(0, str(folder))
        sound = contents(name)
        for _ in range(count):
            content = copy.deepcopy(sound)
            change(content, chance, folder / OUTSIDE, AIMS[name])
            signal.alarm(SECONDS)
            if said := fault_of(READERS[name], content, folder):
                verdict += unclear(f"{name}: {said[:300]}")
        signal.alarm(0)
    if name == "memory folder":
        shutil.rmtree(memory_on_disk(), ignore_errors=True)
        memory_on_disk.cache_clear()
    return verdict


def trial(scene: Scene, index: int, each: int) -> Verdict:
    name = list(READERS)[index % len(READERS)]
    ended = call(tried, name, each, f"{scene.seed} meaning {index}")
    return ended.value if isinstance(ended.value, Verdict) else lost(f"{name}: {ended.code} {ended.said[-500:]}")
