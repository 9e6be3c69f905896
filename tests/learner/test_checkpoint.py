"""Checkpoints: every state comes back bit by bit, a killed or damaged write is never taken for a whole one."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import pickle
import random
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tmln.learner import checkpoint
from tmln.learner.checkpoint import NewerFormat, Torn, load_file, read_newest, save_file, write_checkpoint


def same(a: Any, b: Any) -> bool:
    """Equal in type, value, and, of tensors, bits and strides."""
    if isinstance(a, Tensor):
        if not isinstance(b, Tensor) or (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        # of what has gaps or overlaps, the copy has the strides of any other copy
        strides = a.stride() if a.permute(checkpoint._order(a)).is_contiguous() else a.clone().stride()
        return b.stride() == strides and bits(a) == bits(b)
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float):
        return isinstance(b, float) and (math.isnan(b) if math.isnan(a) else struct.pack("d", a) == struct.pack("d", b))
    return type(a) is type(b) and bool(a == b)


def bits(value: Tensor) -> bytes:
    flat = value.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).view(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def through_folder(state: dict[Any, Any], root: Path) -> Any:
    write_checkpoint(root, state, 7)
    found = read_newest(root)
    assert found is not None
    assert found[1] == 7
    return found[0]


def through_file(state: dict[Any, Any], root: Path) -> Any:
    save_file(root / "model.tmln", state)
    return load_file(root / "model.tmln")


BASE = torch.arange(24.0).view(2, 3, 4)
VALUES: dict[str, Any] = {
    "none": None,
    "bools": [True, False],
    "integers": [0, -1, 2**53 + 1, -(2**64), 10**40],
    "floats": [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf],
    "strings": ["", "snow ☃ and \U0001f600", 'quote" \\ \n \x00', "\ud800 alone"],
    "tuples": ((), (1, (2.0, "x")), [(), []]),
    "integer keys": {0: "a", 1: {2: "b"}, "1": "c", -5: None},
    "a key that marks": {"$": "tensor", "name": "x"},
    "empty": {},
    "generator": torch.Generator().manual_seed(3).get_state(),
    "scalar": torch.tensor(1.5),
    "nothing": [torch.empty(0), torch.empty(0, 3, dtype=torch.int64), torch.empty(2, 0, 4)],
    "special": torch.tensor([math.nan, math.inf, -0.0, 1e-45]),
    "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "one channel, channels_last": torch.randn(2, 1, 4, 5).to(memory_format=torch.channels_last),
    "3d, channels_last": torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
    "transposed": BASE.permute(2, 0, 1),
    "sliced": BASE[:, 1:, ::2],
    "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
    "part": BASE[1],
    "one element, stride 2": torch.arange(2.0)[::2],
    "parameter": nn.Parameter(torch.ones(2)),
    "conjugate": torch.tensor([1 + 2j, 3 - 1j]).conj(),
    **{
        str(dtype): torch.arange(6).to(dtype).view(2, 3).t()
        for dtype in (
            *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint64),
            *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
            *(torch.float8_e4m3fn,),
        )
    },
}


@pytest.mark.parametrize("way", [through_folder, through_file])
@pytest.mark.parametrize("name", VALUES)
def test_each_kind_of_value_comes_back(name: str, way: Any, tmp_path: Path) -> None:
    value = VALUES[name]
    assert same({"value": value}, way({"value": value}, tmp_path))


def test_all_of_them_together(tmp_path: Path) -> None:
    assert same(VALUES, through_folder(VALUES, tmp_path))


def trees() -> st.SearchStrategy[Any]:
    shapes = st.lists(st.integers(0, 3), max_size=4)
    dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.uint8, torch.int64, torch.bool, torch.complex128])

    @st.composite
    def tensors(draw: st.DrawFn) -> Tensor:
        value = (torch.randn(draw(shapes)) * 4).to(torch.complex64).to(draw(dtypes)) if draw(st.booleans()) else BASE
        value = value.permute(draw(st.permutations(range(value.dim()))))
        return value[::2] if value.dim() and draw(st.booleans()) else value

    with_lists = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), tensors())
    keys = st.one_of(st.text(max_size=3), st.integers(-3, 3))
    return st.recursive(
        with_lists,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(keys, inner, max_size=3),
        ),
        max_leaves=12,
    )


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), trees(), max_size=4))
def test_any_state_comes_back(state: dict[Any, Any], tmp_path: Path) -> None:
    assert same(state, through_folder(state, tmp_path))
    assert same(state, through_file(state, tmp_path))


def test_what_is_shared_is_stored_once_and_shared_again(tmp_path: Path) -> None:
    weight = torch.randn(100, 100)
    path = write_checkpoint(tmp_path, {"a": weight, "tied": weight, "row": weight[3]}, 0)
    found = read_newest(tmp_path)
    assert found is not None
    state = found[0]
    assert state["a"] is state["tied"]
    state["a"].zero_()
    assert torch.equal(state["row"], weight[3]), "an overlapping part is its own"
    assert (path / "tensors.safetensors").stat().st_size < 45_000


def test_module_optimizer_and_part_states(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(2, 3, 5, 5)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    back = through_folder(state, tmp_path)
    assert same(json.loads(json.dumps(back["optimizer"]["param_groups"])), state["optimizer"]["param_groups"])
    assert all(same(state["optimizer"]["state"][i], back["optimizer"]["state"][i]) for i in range(4))
    assert back["model"]["0.weight"].is_contiguous(memory_format=torch.channels_last)
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])
    assert isinstance(state["model"], OrderedDict)
    assert type(back["model"]) is dict


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "parts.0.x, a object"),
        (torch.eye(2).to_sparse(), "parts.0.x, a sparse"),
        (torch.empty(2, device="meta"), "parts.0.x, a sparse, quantized or meta"),
        ({1.5: 2}, "the key 1.5 of parts.0.x"),
        ({True: 2}, "the key True of parts.0.x"),
    ],
)
def test_what_cannot_be_held_is_named_and_nothing_is_left(value: Any, named: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=named):
        write_checkpoint(tmp_path, {"parts": [{"x": value}]}, 0)
    assert list(tmp_path.iterdir()) == []


# -- which one is read -------------------------------------------------------------------------------------------------


def steps(root: Path) -> list[int]:
    return sorted(int(path.name.split("-")[-1]) for path in root.iterdir())


def test_the_newest_two_are_kept_whatever_their_steps(tmp_path: Path) -> None:
    assert read_newest(tmp_path / "none") is None
    assert read_newest(tmp_path) is None
    for step in (10, 20, 30, 5, 5):
        write_checkpoint(tmp_path, {"step": step}, step)
    assert steps(tmp_path) == [5, 5]
    assert read_newest(tmp_path) == ({"step": 5}, 5)


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
        return
    raw = bytearray(path.read_bytes())
    if how == "truncated":
        raw = raw[: len(raw) * 2 // 3]
    elif how == "empty":
        raw = bytearray()
    else:
        raw[int(len(raw) * float(how))] ^= 4
    path.write_bytes(raw)


FILES = ("tensors.safetensors", "state.json")
HOWS = ("missing", "truncated", "empty", "0.0", "0.3", "0.6", "0.999")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("how", HOWS)
def test_a_torn_one_is_passed_over(file: str, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 2):
        last = write_checkpoint(tmp_path, {"x": torch.full((50,), float(step)), "n": step}, step)
    damage(last / file, how)
    with caplog.at_level(logging.WARNING):
        found = read_newest(tmp_path)
    assert found is not None
    assert same(found[0], {"x": torch.full((50,), 1.0), "n": 1})
    assert found[1] == 1
    assert last.name in caplog.text
    assert "not whole" in caplog.text
    if how in ("missing", "truncated", "empty"):  # known without reading the tensors, so it makes room at once
        write_checkpoint(tmp_path, {"n": 3}, 3)
        assert steps(tmp_path) == [1, 3]


def test_no_flipped_bit_passes(tmp_path: Path) -> None:
    """Every byte of both files, one flipped bit at a time: what is read is the state, or nothing."""
    state = {"x": torch.arange(3.0), "n": 12345, "list": [1.5, "text"]}
    folder = write_checkpoint(tmp_path, state, 9)
    chance, unnoticed = random.Random(0), 0
    logging.disable()
    try:
        for file in FILES:
            sound = (folder / file).read_bytes()
            for place in range(len(sound)):
                raw = bytearray(sound)
                raw[place] ^= 1 << chance.randrange(8)
                (folder / file).write_bytes(raw)
                found = read_newest(tmp_path)
                unnoticed += found is not None
                assert found is None or (same(found[0], state) and found[1] == 9), (file, place, raw)
            (folder / file).write_bytes(sound)
    finally:
        logging.disable(logging.NOTSET)
    assert unnoticed < 20, "only spaces may change unnoticed"


def test_both_torn_is_none(tmp_path: Path) -> None:
    for step in (1, 2):
        damage(write_checkpoint(tmp_path, {"n": step}, step) / "state.json", "truncated")
    assert read_newest(tmp_path) is None


def resealed(text: str, **changed: Any) -> str:
    """With a checksum that is right: whoever writes a file can write that, too."""
    content = {**json.loads(text)["content"], **changed}
    return json.dumps({"checksum": zlib.crc32(json.dumps(content).encode()), "content": content})


@pytest.mark.parametrize("step", [math.inf, math.nan, None, "x", [1]])
def test_a_step_that_is_no_number_is_passed_over(step: Any, tmp_path: Path) -> None:
    for number in (1, 2):
        last = write_checkpoint(tmp_path, {"n": number}, number)
    (last / "state.json").write_text(resealed((last / "state.json").read_text(), step=step))
    assert read_newest(tmp_path) == ({"n": 1}, 1)


@pytest.mark.parametrize(
    "layout",
    [
        {"shape": [10**9], "stride": [0]},
        {"shape": [2, 10**9], "stride": [1, 0]},
        {"shape": [2], "stride": [10**9]},
        {"shape": [10**6, 10**6], "stride": [10**6, 1]},
        {"shape": [2**70], "stride": [1]},
        {"shape": [2], "stride": [-1]},
        {"shape": [2.0], "stride": [1]},
        {"shape": [2], "stride": [1], "dtype": "load"},
        {"shape": [4], "stride": [1], "dtype": "float64"},
        {"shape": [2], "stride": [1, 1]},
    ],
    ids=str,
)
def test_a_layout_of_another_size_than_its_bytes_takes_no_memory(layout: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"number": 1}, 1)
    path = write_checkpoint(tmp_path, {"x": torch.ones(2)}, 2) / "state.json"
    content = json.loads(path.read_text())["content"]
    content["state"]["x"].update(layout)
    path.write_text(resealed(path.read_text(), state=content["state"]))
    found = read_newest(tmp_path)
    assert found is not None
    assert found[1] == 1


def test_what_asks_for_too_much_memory_counts_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        write_checkpoint(tmp_path, {"x": torch.zeros(step * 1000)}, step)
    found = read_newest(tmp_path, most_bytes=6000)
    assert found is not None
    assert found[1] == 1
    state = tmp_path / "00000002-step-2" / "state.json"
    os.truncate(state, checkpoint.MOST_STATE_BYTES + 1)  # sparse: takes no room on the disk
    found = read_newest(tmp_path)
    assert found is not None
    assert found[1] == 1
    monkeypatch.setattr(checkpoint, "_read_tensors", raise_memory_error)
    assert read_newest(tmp_path) is None
    checkpoint._prune(tmp_path)
    assert steps(tmp_path) == [1]


def raise_memory_error(path: Path) -> Any:
    raise MemoryError


def test_what_could_not_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MOST_STATE_BYTES", 100)
    with pytest.raises(ValueError, match="more than the 100 that are read"):
        write_checkpoint(tmp_path, {"x": "x" * 100}, 1)
    assert steps(tmp_path) == []


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    for step in (1, 2):
        last = write_checkpoint(tmp_path, {"n": step}, step)
    (last / "state.json").write_text(resealed((last / "state.json").read_text(), format=99))
    with pytest.raises(NewerFormat, match=r"00000002-step-2: format 99, .* up to 1: upgrade tmln"):
        read_newest(tmp_path)


def test_a_failed_write_leaves_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, {"n": 1}, 1)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(tmp_path, {"n": 2}, 2)
    with pytest.raises(OSError, match="No space"):
        save_file(tmp_path / "model.tmln", {"n": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["00000001-step-1"]
    assert read_newest(tmp_path) == ({"n": 1}, 1)


def test_leftovers_of_a_killed_process_are_cleared(tmp_path: Path) -> None:
    (tmp_path / ".writing-00000001").mkdir()
    (tmp_path / ".writing-00000001" / "tensors.safetensors").write_bytes(b"half")
    (tmp_path / ".old-00000001-step-3").mkdir()
    assert read_newest(tmp_path) is None
    write_checkpoint(tmp_path, {"n": 1}, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["00000001-step-1"]


# -- the single file ---------------------------------------------------------------------------------------------------


def test_the_single_file_is_plain_safetensors(tmp_path: Path) -> None:
    save_file(tmp_path / "model.tmln", {"w": torch.ones(3)})
    assert torch.equal(safetensors.torch.load_file(tmp_path / "model.tmln")["0:w"], torch.ones(3))
    assert [path.name for path in tmp_path.iterdir()] == ["model.tmln"]
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "model.tmln").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("how", ["truncated", "empty", "0.3", "0.999"])
def test_a_torn_file_says_so(how: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tmln"
    save_file(path, {"w": torch.ones(300)})
    damage(path, how)
    with pytest.raises(Torn, match=r"model\.tmln cannot be loaded: .+; save it again"):
        load_file(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tmln"
    with pytest.raises(FileNotFoundError, match=r"no file .*model\.tmln"):
        load_file(path)
    safetensors.torch.save_file({"w": torch.ones(3)}, path)
    with pytest.raises(Torn, match="not saved by tmln"):
        load_file(path)
    header = {"tmln": resealed(checkpoint._seal({}, {}), format=99)}
    safetensors.torch.save_file({"w": torch.ones(3)}, path, metadata=header)
    with pytest.raises(NewerFormat, match=r"model\.tmln: format 99"):
        load_file(path)


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = tmp_path / "model.tmln"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(Torn):
        load_file(path)
    hostile = {"$": "tensor", "name": "0:x", "dtype": "load", "shape": [1], "stride": [1]}
    tensors = {"0:x": torch.ones(1)}
    safetensors.torch.save_file(tensors, path, metadata={"tmln": checkpoint._seal({"x": hostile}, tensors)})
    with pytest.raises(Torn):
        load_file(path)
    assert not (tmp_path / "sprung").exists()


# -- kill -9 -----------------------------------------------------------------------------------------------------------

# One process imports torch and forks those that are killed: at their nth call of the operating system, or, where n is
# negative, by the system when a file of theirs grows past -n bytes.
WRITERS = """
import itertools, os, resource, signal, sys, torch
from tmln.learner.checkpoint import write_checkpoint
torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for line in sys.stdin:
    root, fatal = line.split("\\t")
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    state = {"x": torch.full((20_000,), 3.0), "step": 3, "rng": {1: (3, "3")}}
    calls = itertools.count(1)
    def call(event, arguments):
        if event.startswith(("os.", "open", "shutil.")) and next(calls) == int(fatal):
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(call)
    if int(fatal) < 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (-int(fatal), -int(fatal)))
    write_checkpoint(root, state, 3)
    os._exit(0)
"""


def state_of(step: int) -> dict[str, Any]:
    return {"x": torch.full((20_000,), float(step)), "step": step, "rng": {1: (step, str(step))}}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.usefixtures("warm")
def test_killed_at_any_moment_the_newest_is_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = tmp_path / "before"
    for step in (1, 2):
        write_checkpoint(before, state_of(step), step)
    left: list[set[str]] = []  # by each of those that were killed
    newest: list[int] = []
    command = [sys.executable, "-c", WRITERS]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process,
        caplog.at_level(logging.WARNING),
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        for fatal in itertools.chain([-1, -40_000], itertools.count(1)):
            root = tmp_path / str(fatal)
            shutil.copytree(before, root)
            process.stdin.write(f"{root}\t{fatal}\n")
            code = int(process.stdout.readline())
            found = read_newest(root)
            assert found is not None
            assert same(found[0], state_of(found[1]))
            if code == 0:
                assert found[1] == 3
                break
            assert code == -(signal.SIGXFSZ if fatal < 0 else signal.SIGKILL)
            left.append({path.name.strip(".").partition("-")[0] for path in root.iterdir() if path.name[0] == "."})
            newest.append(found[1])
            write_checkpoint(root, state_of(4), 4)
            found = read_newest(root)
            assert found is not None
            assert same(found[0], state_of(4))
            assert len(list(root.iterdir())) == 2, "what the killed one left is cleared away"
            shutil.rmtree(root)
        process.stdin.close()
    assert left[:2] == [{"writing"}, {"writing"}], "killed while tensors were written"
    assert newest == sorted(newest)
    assert set(newest) == {2, 3}
    assert {"writing"} in left[2:]
    assert {"old"} in left, "some were killed while they cleared away"
    assert caplog.text == "", "no visible checkpoint was ever torn"
