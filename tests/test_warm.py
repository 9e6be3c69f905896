"""Programs that begin warm are like any others: what they are given, what they give, and how they end."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiments.killing import gone
from tests.warm import Warm

SAYS = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['SAID'], 'torch' in sys.modules, sys.stdin.read())"
NESTED = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"


def run(*words: str, cold: bool = False, **options: object) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patched:
        if not cold:
            patched.setattr(subprocess, "Popen", Warm)
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_what_it_is_given_and_what_it_gives(cold: bool, tmp_path: Path) -> None:
    environment = {**os.environ, "SAID": "yes"}
    done = run("-c", SAYS, "a", "b c", cold=cold, cwd=tmp_path, env=environment, input="read")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"['a', 'b c'] {tmp_path} yes {not cold} read\n"


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize(
    ("code", "ended", "said"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("raise KeyError('k')", 1, "KeyError: 'k'\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import atexit, sys; atexit.register(print, 'last', file=sys.stderr)", 0, "last\n"),
        ("import tests.nowhere_at_all", 1, "ModuleNotFoundError: No module named 'tests.nowhere_at_all'\n"),
    ],
)
def test_how_it_ends(code: str, ended: int, said: str, cold: bool) -> None:
    done = run("-c", code, cold=cold)
    assert done.returncode == ended
    assert done.stderr.endswith(said)


def test_what_it_starts_is_warm_too_and_has_its_limits() -> None:
    done = run("-c", NESTED, "import sys; sys.exit(7 if 'torch' in sys.modules else 8)")
    assert done.returncode == 7
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, {resource.RLIM_INFINITY})); "
    asks = "import resource, sys; sys.exit(resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4000)"
    assert run("-c", limit + NESTED, asks).returncode == 0


def test_a_module_is_run_as_main() -> None:
    done = run("-m", "tmln", "list", "models")
    assert (done.returncode, done.stderr) == (0, "")
    assert "resnet18" in done.stdout
    assert "python -m tmln" in run("-m", "tmln", "lst").stderr


def test_it_is_waited_for_and_killed_and_has_a_session_of_its_own() -> None:
    words = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(1e6)"]
    with Warm(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert os.getsid(process.pid) == process.pid
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.kill()
        assert process.wait() == process.poll() == -signal.SIGKILL
    assert gone(process.pid)
