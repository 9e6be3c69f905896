"""Machines of a cluster on one: network namespaces with addresses of their own, joined by a bridge, Ray in each."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.experiments.killing import PATIENCE

PORT = 6379
NETNS = Path("/run/netns")  # where `ip` keeps their names
MARK = re.compile(r"tm([0-9]+)(?:n[0-9]|-ray)?")  # of all that is made here: names of links have 15 letters at most
# What Ray takes for a lost machine or head, in less than its usual minute; starting takes as long as it takes.
QUICK = {
    "health_check_initial_delay_ms": 5000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 4000,
    "health_check_failure_threshold": 3,
    "gcs_rpc_server_reconnect_timeout_s": 5,
    "agent_register_timeout_ms": 600_000,
}
OURS = b"\0-m\0tmln\0"  # the command, which is no process of Ray's


class NoRight(RuntimeError):
    """This user, or this machine, may not make networks."""


def ip(*words: str, fails: type[Exception] = RuntimeError) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise fails(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def probe() -> None:
    """:class:`NoRight` unless a namespace, a pair of links into it and a bridge can be made."""
    mark = f"tm{os.getpid()}"
    try:
        ip("netns", "add", f"{mark}n0", fails=NoRight)
        ip("link", "add", f"{mark}n0", "type", "veth", "peer", "name", "eth0", "netns", f"{mark}n0", fails=NoRight)
        ip("link", "add", mark, "type", "bridge", fails=NoRight)
    finally:
        clear(mark)


def clear(mark: str) -> None:
    """End and remove all that has this mark, whether all of it is there or not."""
    for name in [path.name for path in NETNS.glob(f"{mark}n*")]:
        while pids := subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
            for pid in pids:
                end(int(pid))
            time.sleep(0.05)
        subprocess.run(["ip", "link", "del", name], capture_output=True)  # with its other end, which is in there
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    subprocess.run(["ip", "link", "del", mark], capture_output=True)
    shutil.rmtree(f"/tmp/{mark}-ray", ignore_errors=True)


def clear_old() -> None:
    """What tests left that were killed themselves."""
    for path in [*NETNS.glob("tm*"), *Path("/tmp").glob("tm*-ray")]:
        found = MARK.fullmatch(path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            clear(f"tm{found[1]}")


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Nodes:
    """``count`` machines; number 1 is the head."""

    def __init__(self, count: int = 3) -> None:
        self.count, self.mark = count, f"tm{os.getpid()}"
        self.net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.folder = Path(f"/tmp/{self.mark}-ray")  # short: sockets are in it
        self.address = f"{self.at(1)}:{PORT}"
        self.env = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",  # one of its own: others of this machine do not get in
            "RAY_AUTH_TOKEN": secrets.token_hex(16),
            "RAY_raylet_start_wait_time_s": "600",
            "OMP_NUM_THREADS": "1",
        }

    def build(self) -> None:
        """A network, without Ray; all that is here is for :meth:`remove` to remove, also where this fails."""
        (self.folder / "ray").mkdir(parents=True)
        ip("link", "add", self.mark, "type", "bridge")
        ip("link", "set", self.mark, "up")
        for number in range(1, self.count + 1):
            name = self.name(number)
            ip("netns", "add", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", self.mark, "up")
            ip("-n", name, "addr", "add", f"{self.at(number)}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                ip("-n", name, "link", "set", link, "up")

    def remove(self) -> None:
        clear(self.mark)

    def name(self, number: int) -> str:
        return f"{self.mark}n{number}"

    def at(self, number: int) -> str:
        return f"{self.net}.{number}"

    def within(self, number: int, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name(number), *words]

    def start(self, *numbers: int) -> None:
        """Ray on these machines, all at the same time; each but the head has a disk of its own for what Ray keeps."""
        from ray.scripts.scripts import start as ray_start

        ray, place = str(Path(sys.executable).parent / "ray"), str(self.folder / "ray")
        common = ["--num-cpus", "1", "--object-store-memory", "80000000", "--disable-usage-stats"]
        if any("--include-log-monitor" in option.opts for option in ray_start.params):  # the lowest ray has none
            common += ["--include-log-monitor", "false"]
        begun = []
        for number in numbers:
            here = [*common, "--node-ip-address", self.at(number)]
            if number == 1:
                head = ["--head", "--port", str(PORT), "--include-dashboard", "false", "--no-monitor"]
                words = [ray, "start", *head, "--temp-dir", place, "--system-config", json.dumps(QUICK), *here]
            else:
                own = f'mount --make-rprivate / && mount -t tmpfs none {place} && exec "$@"'
                words = ["sh", "-c", own, "sh", ray, "start", "--address", self.address, *here]
            env = {**self.env, "TMLN_SCRATCH": str(self.folder / f"scratch-{number}")}
            with (self.folder / f"start-{number}.log").open("w") as log:
                begun.append(subprocess.Popen(self.within(number, *words), env=env, stdout=log, stderr=log))
        for number, process in zip(numbers, begun, strict=True):
            code = process.wait(PATIENCE)
            assert code == 0, (self.folder / f"start-{number}.log").read_text()

    def processes(self, number: int) -> list[int]:
        """Those of Ray on this machine, workers included, not the command that uses it."""
        found = []
        for pid in map(int, ip("netns", "pids", self.name(number)).split()):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if OURS not in words:
                found.append(pid)
        return found

    def kill(self, number: int) -> None:
        """As when the power goes."""
        while found := self.processes(number):
            for pid in found:
                end(pid)
            time.sleep(0.05)

    def cut(self, number: int) -> None:
        ip("link", "set", self.name(number), "down")

    def mend(self, number: int) -> None:
        ip("link", "set", self.name(number), "up")
