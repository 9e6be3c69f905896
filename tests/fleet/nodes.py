"""Machines of a cluster on one: network namespaces with addresses of their own, joined by a bridge, Ray in each."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab.killing import PATIENCE

PORT = 6379
AGENTS = [
    *("--metrics-export-port", "8090", "--dashboard-agent-grpc-port", "8091"),
    *("--dashboard-agent-listen-port", "8092", "--runtime-env-agent-port", "8093"),
]
# What Ray takes for a lost machine or head, in less than its usual minute; starting takes as long as it takes.
QUICK = {
    "health_check_initial_delay_ms": 5000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 3000,
    "health_check_failure_threshold": 4,
    "gcs_rpc_server_reconnect_timeout_s": 5,
    "agent_register_timeout_ms": 600_000,
}


class NoRight(RuntimeError):
    """This user may not make networks, or there is no program for it."""


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise NoRight(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Nodes:
    """``count`` machines; number 1 is the head."""

    def __init__(self, count: int = 3) -> None:
        if shutil.which("ip") is None:
            raise NoRight("no program `ip`: apt-get install iproute2")
        self.count, self.mark = count, f"t{os.getpid() % 100_000:05d}"
        self.net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.folder = Path(tempfile.mkdtemp(prefix="tmln-ray-", dir="/tmp"))  # short: sockets are in it
        (self.folder / "ray").mkdir()
        self.address = f"{self.at(1)}:{PORT}"
        self.env = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",  # one of its own: others of this machine do not get in
            "RAY_AUTH_TOKEN": secrets.token_hex(16),
            "RAY_raylet_start_wait_time_s": "60",
            "OMP_NUM_THREADS": "1",
        }
        try:
            ip("link", "add", self.mark, "type", "bridge")
            ip("link", "set", self.mark, "up")
            for number in range(1, count + 1):
                name = self.name(number)
                ip("netns", "add", name)
                ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("link", "set", name, "master", self.mark, "up")
                ip("-n", name, "addr", "add", f"{self.at(number)}/24", "dev", "eth0")
                for link in ("eth0", "lo"):
                    ip("-n", name, "link", "set", link, "up")
        except NoRight:
            self.remove()
            raise

    def name(self, number: int) -> str:
        return f"{self.mark}n{number}"

    def at(self, number: int) -> str:
        return f"{self.net}.{number}"

    def within(self, number: int, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name(number), *words]

    def start(self, *numbers: int, tries: int = 6) -> None:
        """Ray on these machines, all at the same time; each but the head has a disk of its own for what Ray keeps.

        Ray gives its own processes seconds to begin, which a busy machine does not keep: hence the tries.
        """
        ray, place = str(Path(sys.executable).parent / "ray"), str(self.folder / "ray")
        common = ["--num-cpus", "1", "--object-store-memory", "80000000", "--disable-usage-stats", *AGENTS]
        begun = []
        for number in numbers:
            here = [*common, "--node-ip-address", self.at(number)]
            if number == 1:
                head = ["--head", "--port", str(PORT), "--include-dashboard", "false", "--temp-dir", place]
                words = [ray, "start", *head, "--system-config", json.dumps(QUICK), *here]
            else:
                own = f'mount --make-rprivate / && mount -t tmpfs none {place} && exec "$@"'
                words = ["sh", "-c", own, "sh", ray, "start", "--address", self.address, *here]
            env = {**self.env, "TMLN_SCRATCH": str(self.folder / f"scratch-{number}")}
            log = (self.folder / f"start-{number}.log").open("w")
            begun.append(subprocess.Popen(self.within(number, *words), env=env, stdout=log, stderr=log))
            log.close()
        codes = {number: process.wait(PATIENCE) for number, process in zip(numbers, begun, strict=True)}
        failed = [number for number, code in codes.items() if code]
        for number in failed:
            self.kill(number)
        assert tries > 1 or not failed, (self.folder / f"start-{failed[0]}.log").read_text()
        if failed:
            self.start(*failed, tries=tries - 1)

    def processes(self, number: int) -> list[int]:
        """Those of Ray on this machine, workers included, not the command that uses it."""
        found = []
        for pid in map(int, ip("netns", "pids", self.name(number)).split()):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            ours = b"/ray/" in words or b"ray.util.client" in words or words.startswith(b"ray::")
            if ours and b"-m\0tmln" not in words and b"tmln.fleet.liaison" not in words:
                found.append(pid)
        return found

    def kill(self, number: int) -> None:
        """As when the power goes."""
        while found := self.processes(number):
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.1)

    def cut(self, number: int) -> None:
        ip("link", "set", self.name(number), "down")

    def mend(self, number: int) -> None:
        ip("link", "set", self.name(number), "up")

    def remove(self) -> None:
        for number in range(1, self.count + 1):
            name = self.name(number)
            listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
            for pid in listed.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    continue
            subprocess.run(["ip", "link", "del", name], capture_output=True)  # else it stays as long as a process does
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.mark], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
