"""Everything that needs several GPUs and NCCL, measured in one run on one machine: python tests/gpu/campaign.py OUT.

Ranks are hosts: each has a network namespace with four shaped rails, and a GPU. With ``--ranks 2`` a host has two that
share its rails. Where there are fewer GPUs than ranks, several share one, by the Multi-Process Service if it is there:
without it, kernels that wait for each other take turns by milliseconds. Sections can be chosen (``--only sizes,ddp``);
each has a part of the time, its results are written as they come, and one that fails does not stop the others. OUT gets
results.jsonl, results.md and campaign.tar.gz with every log. Needs root, pyroute2, CMake, a C++ compiler, nvcc and
PyTorch. ``--stand-in`` runs the same without a GPU: our Communicator on host memory in the place of NCCL.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from gpus import Service, gpus_here  # noqa: E402
from network import Network, network  # noqa: E402
from ranks import Group, GroupError, has_gpu_each  # noqa: E402
from results import Results, bus_gbs, latency_ratios, lost_ms, percentile, return_ms, switch_cost  # noqa: E402

from r2ccl_core.gpu.segments import MOST_SEGMENTS  # noqa: E402
from r2ccl_core.gpu.table import from_bytes  # noqa: E402
from r2ccl_core.model.token_bucket import BURST_S  # noqa: E402

MIB = 1 << 20
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "sendrecv")
BLOCKED = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter")
"""With a block for every rank."""
COMMON = {
    "NCCL_NVLS_ENABLE": "0",  # multicast between GPUs may harm the machine
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_IB_DISABLE": "1",
    "NCCL_RAS_ENABLE": "0",
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
CONNECTIONS = 32
"""A process' queues to its GPU, so that its streams do not wait for each other. Processes that share a GPU have twice
as many together: with more the last one finds no memory."""
MOST_SHARING = 4
CROWDED = {
    "NCCL_MAX_NCHANNELS": "4",
    "NCCL_MAX_P2P_NCHANNELS": "2",
    "NCCL_NCHANNELS_PER_NET_PEER": "1",
    "R2CC_IO_THREADS": "2",
}
"""Of more ranks on one GPU, or kernels at once: those that wait for each other must all have a place on it."""
INNER_GBIT_S, NVLINK_GBIT_S = 16, 1200
"""What ranks of one host send each other, about: over veths in NVLink's place where they share a GPU, and by NVLink."""
SOCKET = {"NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "eth"}
TUNED = {**SOCKET, "NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"}
GRID = "alpha=50,alpha=200,channels=8"
"""What is tried beside the defaults: microseconds that a round is taken to cost, connections of two ranks."""
MOST_ABORT_MS = 10_000


class Campaign:
    """The machine, its groups of ranks, and the time that is left."""

    def __init__(self, args: argparse.Namespace, net: Network, results: Results) -> None:
        self.args, self.net, self.results = args, net, results
        # Not in OUT, which gets one archive instead of hundreds of logs.
        self.folder = Path(tempfile.mkdtemp(prefix="r2ccl-campaign-"))
        self.deadline = time.monotonic() + args.seconds
        self.groups: dict[str, Group] = {}
        self.tables: dict[str, subprocess.Popen[bytes]] = {}
        self.build: subprocess.Popen[bytes] | None = None
        self.build_told = False
        self.gpus = args.gpus or gpus_here() or net.ranks
        self.service = Service(self.folder)
        self.healthy_s: dict[str, float] = {}
        self.until = self.deadline
        self.shape()

    def left_s(self) -> float:
        """Until the end of the section, or of everything."""
        return float(min(self.until, self.deadline)) - time.monotonic()

    def shape(self) -> None:
        """Every NIC at its rate."""
        self.net.shape(self.args.rate * 1e9)

    # ---- what is built and started

    def begin_sharing(self) -> None:
        """Of GPUs, where there are fewer than hosts."""
        if not self.args.stand_in:
            how = self.service.start() if self.net.ranks > self.gpus else "no"
            facts = {"hosts": self.net.hosts, "ranks": self.net.ranks, "gpus": self.gpus}
            self.results.add("facts", **facts, **{"several ranks on one GPU": how})

    def begin_build(self) -> None:
        """Plugin and preloaded library, in the background."""
        if self.args.stand_in or self.args.libraries:
            return
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        made = self.folder / "build"
        configure = ["cmake", *generator, "-S", ROOT / "r2ccl_core/native", "-B", made, "-DR2CCL_PYTHON=OFF"]
        configure += ["-DCMAKE_CUDA_ARCHITECTURES=90"]
        compile_it = ["cmake", "--build", made, "-j", os.cpu_count(), "--target"]
        commands = (configure, [*compile_it, "nccl-net-r2ccl"], [*compile_it, "r2ccl-preload"])
        words = " && ".join(" ".join(f"'{word}'" for word in command) for command in commands)
        env = {"CUDACXX": "/usr/local/cuda/bin/nvcc", **os.environ} if shutil.which("nvcc") is None else None
        with (self.folder / "build.log").open("wb") as log:
            self.build = subprocess.Popen(["sh", "-c", words], stdout=log, stderr=log, env=env, start_new_session=True)
        self.args.libraries = made

    def library(self, name: str) -> str:
        """The path of a library: the one built now, else the spare one; `GroupError` where there is neither."""
        if self.build is not None and self.build.wait(timeout=240) != 0 and not self.build_told:
            self.build_told = True
            self.results.add("build", error=(self.folder / "build.log").read_text(errors="replace")[-1500:])
        for folder in (self.args.libraries, self.args.spare):
            for found in sorted(folder.rglob(name)) if folder is not None else ():
                return str(found.resolve())
        raise GroupError(f"{name} was not built")

    def environment(self, system: str) -> dict[str, str]:
        """Of the ranks of a system, such as ``plugin``, ``plugin:R2CC_CHUNK_BYTES=524288`` or ``rounds:alpha=50``."""
        if self.args.stand_in:
            return {"CAMPAIGN_STAND_IN": "1", "R2CC_SOCKET_IFNAME": "eth"}
        sharing = -(-self.net.ranks // self.gpus)
        common = {**COMMON, "CUDA_DEVICE_MAX_CONNECTIONS": str(min(CONNECTIONS, 2 * CONNECTIONS // sharing))}
        if sharing * (2 if self.net.gpus > 1 else 1) > MOST_SHARING:  # of hosts of several, one inside and one outside
            common |= CROWDED
        if system.startswith("socket"):
            return {**common, **self.service.env, **(TUNED if "tuned" in system else SOCKET)}
        env = {
            **common,
            **self.service.env,
            "NCCL_NET_PLUGIN": self.library("libnccl-net-r2ccl.so"),
            "NCCL_NET": "r2ccl",
        }
        env |= {"NCCL_SOCKET_IFNAME": "mgmt", "R2CC_SOCKET_IFNAME": "eth"}
        env["R2CC_STATUS_DIR"] = str(self.folder / f"status-{system.replace(':', '-')}")
        env |= dict(part.split("=") for part in system.split(":")[1:] if part.startswith(("R2CC_", "NCCL_")))
        if "undamped" in system:  # hundreds of losses in a minute: no NIC is to be held back
            env["R2CC_FLAP_HALF_LIFE_MS"] = "0"
        if system.startswith("rounds"):
            preload = self.library("libr2ccl-preload.so")
            env |= {"LD_PRELOAD": preload, "R2CC_AGREE_EVERY": "1", "R2CCL_CORE_LIB": str(Path(preload).parent)}
            env |= {"R2CC_SCHEDULES": str(self.table(system)), "R2CC_AR_MIN_BYTES": str(MIB)}
            if "channels=" in system:
                env["NCCL_NCHANNELS_PER_NET_PEER"] = system.split("channels=")[1].split(":")[0]
        return env

    def table(self, system: str) -> Path:
        """The table of rounds for a system, made when it is first needed."""
        path = self.begin_table(system)
        # Hosts of two GPUs take 40 s of a processor that does nothing else.
        if self.tables[system].wait(timeout=240) != 0:
            raise GroupError(f"{system}: no table")
        return path

    def begin_table(self, system: str) -> Path:
        """Makes it in the background."""
        options = dict(part.split("=") for part in system.split(":")[1:] if "=" in part)
        path = self.folder / f"{system.replace(':', '-')}.r2g"
        if system not in self.tables:
            argv = [sys.executable, "-m", "r2ccl_core.gpu", "--hosts", self.net.hosts, "--nics", self.net.rails]
            argv += ["--rate", f"{self.args.rate} Gbit/s", "-o", path]
            argv += ["--lost", "2" if "algorithm" not in options else "1"]
            argv += ["--algorithm", options.get("algorithm", "auto"), "--alpha", options.get("alpha", "100")]
            inner = NVLINK_GBIT_S if has_gpu_each(self.gpus, self.net.gpus) else INNER_GBIT_S
            argv += ["--gpus", options.get("gpus", self.net.gpus), "--inner-rate"]
            argv += [f"{options.get('inner', inner)} Gbit/s", "--segments", options.get("segments", MOST_SEGMENTS)]
            words = [str(word) for word in argv]
            self.tables[system] = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
        return path

    def start(self, *systems: str, program: str = "worker.py", net: Network | None = None) -> list[Group]:
        """The groups of these systems; those that are not there yet start side by side."""
        if self.crowded:
            self.stop(*(set(self.groups) - set(systems)))
        fresh = [system for system in systems if system not in self.groups]
        places = [(net or self.net).place(rank) for rank in range(self.net.ranks)]
        for system in fresh:
            env = self.environment(system)
            name = system.replace(":", "-")
            self.groups[system] = Group(name, places, env, self.folder, program, self.gpus, self.net.gpus)
        for system in fresh:
            try:
                hello = self.groups[system].start(max(10, min(60, self.left_s())))[0]
            except GroupError:
                self.stop(system)
                raise
            hello["network"] = self.groups[system].network() or "?"
            self.results.add("groups", system=system, **hello)
            wanted = "Socket" if system.startswith("socket") else "r2ccl"
            if not self.args.stand_in and program != "types_rank.py" and wanted not in hello["network"]:
                raise GroupError(f"{system}: NCCL uses {hello['network']}, not {wanted}")
        return [self.groups[system] for system in systems]

    @property
    def crowded(self) -> bool:
        """Whether ranks share GPUs: there is room for few processes then, and systems start one after another."""
        return bool(self.service.env)

    def stop(self, *systems: str) -> None:
        """Ends groups."""
        for system in systems:
            if system in self.groups:
                self.groups.pop(system).close()

    def close(self) -> None:
        """Ends everything."""
        self.stop(*list(self.groups))
        for process in (self.build, *self.tables.values()):
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.service.stop()

    # ---- sections

    def measure(self, section: str, system: str, collective: str, nbytes: int, **more: Any) -> dict[str, Any]:
        """One cell: the slowest rank's median."""
        nbytes = self.whole(collective, nbytes)
        small = nbytes < MIB
        iterations = 3 if nbytes > 64 * MIB else 5
        request = {"do": "measure", "collective": collective, "nbytes": nbytes, "iterations": more.pop("n", iterations)}
        request |= {"batch": 20 if small else 1, "warm": more.pop("warm", 5 if small else 1)}
        answers = self.start(system)[0].ask(request, 60)
        median_s = max(statistics.median(answer["times"]) for answer in answers)
        cpu_s = sum(answer["cpu_s"] for answer in answers)
        return self.results.add(
            section,
            system=system,
            collective=collective,
            bytes=nbytes,
            median_s=median_s,
            issued_s=max(statistics.median(answer["issued"]) for answer in answers),  # of it, until all was issued
            iterations=request["iterations"],
            batch=request["batch"],
            bus_gbs=bus_gbs(collective, nbytes, self.net.ranks, median_s),
            cpu_s_per_gb=cpu_s / nbytes * 1e9,
            wrong=sum(answer["wrong"] for answer in answers),
            choice=answers[0]["choice"],
            **more,
        )

    def whole(self, collective: str, nbytes: int) -> int:
        """So many bytes of float32, at least one for every block of a collective whose ranks have one each."""
        least = 4 * self.net.ranks if collective in BLOCKED else 4
        return max(least, nbytes - nbytes % least)

    def sizes(self, section: str = "sizes") -> None:
        """Collectives by size."""
        largest = int(self.args.largest * MIB)
        sizes = sorted({16, 1024, 65536, MIB, 16 * MIB, largest} if section == "sizes" else {1024, MIB, largest})
        if self.args.sizes:
            sizes = [int(float(size) * MIB) for size in self.args.sizes.split(",")]
        sizes = [size for size in sizes if size <= largest]
        systems = self.args.systems.split(",")
        if not self.crowded:
            self.start(*systems)
        for system in systems:
            for collective in self.args.collectives.split(","):
                for nbytes in sizes:
                    if self.left_s() < 5:
                        self.results.add(section, error="out of time")
                        return
                    # What is told to a percent needs more than the few that do elsewhere.
                    self.measure(section, system, collective, nbytes, n=9 if nbytes > 4 * MIB else 15)

    def unshaped(self) -> None:
        """The same without rate limits."""
        self.net.shape(None)
        try:
            self.sizes("unshaped")
        finally:
            self.shape()

    def all_reduce(self, section: str, system: str, state: str, bound: float = 1.0, warm: int = 1) -> float:
        """The largest AllReduce in a state of the network, against the healthy one of the same network: T/T0."""
        nbytes = int(self.args.largest * MIB)
        before = self.sent()
        record = self.measure(section, system, "all_reduce", nbytes, state=state, bound=bound, warm=warm)
        sent = [[b - a for a, b in zip(*pair, strict=True)] for pair in zip(before, self.sent(), strict=True)]
        if state == "healthy":
            self.healthy_s[section] = record["median_s"]
        base = self.healthy_s.get(section)
        record["ratio"] = record["median_s"] / base if base else None
        shares = [[round(nic / max(1, sum(nics)), 3) for nic in nics] for nics in sent]
        self.results.add(section + "_ratio", system=system, state=state, ratio=record["ratio"], shares=shares)
        return float(record["ratio"] or 1)

    def sent(self) -> list[list[int]]:
        """The bytes that each NIC of each host has sent."""
        return [self.net.bytes_sent(host) for host in range(self.net.hosts)]

    def bound(self, lost: int) -> float:
        """The least T/T0 of any schedule when one host has lost so many NICs."""
        share, hosts, ranks = 1 - lost / self.net.rails, self.net.hosts, self.net.ranks
        return max(1 / share, 2 * (hosts - 1) / (hosts - 1 + share)) / (2 * (ranks - 1) / ranks)

    def degraded(self) -> None:
        """The plugin under NCCL's own ring: a rail lost, slowed to a tenth, back."""
        self.all_reduce("degraded", "plugin", "healthy")
        for state, change in (
            ("one rail lost", partial(self.net.carrier, 1, 1, False)),
            ("back", partial(self.net.carrier, 1, 1, True)),
            ("one rail at a tenth", partial(self.net.shape, self.args.rate * 1e8, 1, 1)),
            ("full rate again", partial(self.net.shape, self.args.rate * 1e9, 1, 1)),
        ):
            change()
            time.sleep(0.2 if self.args.stand_in else 1.0)
            self.all_reduce("degraded", "plugin", state, self.bound(1) if "lost" in state else 1.0, warm=2)
        for rail, failure in ((2, "carrier loss"), (3, "black hole")):
            self._return(failure, rail % self.net.rails)

    def _return(self, failure: str, rail: int) -> None:
        """How long after the repair until AllReduces take what they took before the failure."""
        group = self.start("plugin")[0]
        before_s, broken_s, after_s = (0.3, 0.3, 0.5) if self.args.stand_in else (1.5, 1.5, 3.0)
        nbytes = int(min(16, self.args.largest) * MIB)
        group.tell({"do": "loop", "nbytes": nbytes, "seconds": before_s + broken_s + after_s})
        time.sleep(before_s)
        lost_ns = time.monotonic_ns()
        self.break_it(self.net, failure, 1, rail, True)
        time.sleep(broken_s)
        self.break_it(self.net, failure, 1, rail, False)
        repaired_ns = time.monotonic_ns()
        answers = group.answers(60)
        ends, lengths = answers[0]["ends"], answers[0]["lengths"]
        found_ms = return_ms(lost_ns, repaired_ns, ends, lengths)
        wrong = sum(answer["wrong"] for answer in answers)
        self.results.add("return", system="plugin", failure=failure, return_ms=found_ms, wrong=wrong)

    def schedules(self) -> None:
        """Our schedules on GPUs: one rail lost on a host, two lost; the planner's choice and its variants."""
        systems = self.grid()
        if not self.crowded:
            self.start(*systems)
        self.all_reduce("schedules", "rounds", "healthy", warm=3)
        losses = range(1, min(3, self.net.rails))
        for lost in losses:
            self.net.carrier(1, lost, False)
            bound = self.bound(lost)
            time.sleep(1.0)
            for system in systems:
                if lost == 1 or "alpha" not in system:
                    self._try(partial(self.all_reduce, "schedules", system, f"{lost} lost", bound, 4))
        for lost in losses:
            self.net.carrier(1, lost, True)
        begin = time.monotonic()
        time.sleep(1.0)
        for _ in range(4):
            state = f"back, {time.monotonic() - begin:.1f} s after"
            if self.all_reduce("schedules", "rounds", state, 1.0, 1) < 1.1:
                break
        self.stop(*systems[1:])

    def switch(self) -> None:
        """What the change from NCCL's ring to a schedule costs when a rail is lost, in AllReduces without a pause."""
        system = "rounds"
        [group] = self.start(system)
        nbytes = int(float((self.args.sizes or "16").split(",")[0]) * MIB)
        for _ in range(min(8, self.args.trials)):
            if self.left_s() < 12:
                raise GroupError("out of time")
            group.tell({"do": "loop", "nbytes": nbytes, "seconds": 2.0, "check_every": 8})
            time.sleep(0.9)
            lost_ns = time.monotonic_ns()
            self.net.carrier(1, 1, False)
            answers = group.answers(30)
            self.net.carrier(1, 1, True)
            wrong = sum(answer["wrong"] for answer in answers)
            lengths = [max(one) for one in zip(*(answer["lengths"] for answer in answers), strict=True)]
            cost = switch_cost(lost_ns, answers[0]["ends"], lengths, answers[0]["choices"])
            self.results.add("switch", system=system, bytes=nbytes, wrong=wrong, **cost)
            time.sleep(1.5)  # until every rank has the rail again
        self.stop(system)

    def several(self) -> None:
        """Hosts of several ranks: the schedules, and NCCL's ring in the same network, when one host has lost a rail and
        when two have lost different ones."""
        if not self.args.stand_in:
            self.library("libr2ccl-preload.so")  # the section's time begins when it is built
            self.until = time.monotonic() + SECTIONS["several"]
        mistakes = [mistake for system in self.args.tables.split(",") for mistake in self._several_states(system)]
        if mistakes:
            raise GroupError("; ".join(mistakes))

    def _several_states(self, system: str) -> list[str]:
        """The cells of one table, and what is wrong with them."""
        [group] = self.start(system)
        sizes = [int(float(size) * MIB) for size in (self.args.sizes or "64,8,16,256").split(",")]
        healthy: dict[int, float] = {}
        mistakes: list[str] = []
        states: list[tuple[str, list[tuple[int, int]]]] = [("healthy", []), ("one rail lost", [(1, 1)])]
        states += [("two hosts without different rails", [(1, 1), (2, 2)]), ("back", [])]
        for state, lost in states:
            for host, rail in itertools.product(range(self.net.hosts), range(self.net.rails)):
                self.net.carrier(host, rail, (host, rail) not in lost)
            time.sleep(0.3 if self.args.stand_in else 1.5)
            for nbytes in sizes if state != "back" else sizes[:1]:
                for by in ("schedules", "ring") if lost else ("ring",):
                    if self.left_s() < 12 and not self.args.stand_in:
                        raise GroupError("out of time")
                    mistakes.append(self._several(group, system, state, lost, by, nbytes, healthy))
        self.stop(system)
        return list(filter(None, mistakes))

    def _several(
        self,
        group: Group,
        system: str,
        state: str,
        lost: list[tuple[int, int]],
        by: str,
        nbytes: int,
        healthy: dict[int, float],
    ) -> str:
        """One cell, and what is wrong with it. Ranks that are told that they have all NICs stay with NCCL's ring."""
        total = self.net.rails if by == "ring" and lost else -1
        group.ask({"do": "set_nics", "total": total, "left": total}, 20)
        before = self.sent()
        # What the ranks have left is agreed on in one operation and acted on in the next.
        times = {"n": 3, "warm": 2} if nbytes > 64 * MIB else {"n": 5, "warm": 3}
        record = self.measure("several", system, "all_reduce", nbytes, state=state, by=by, **times)
        sent = [[b - a for a, b in zip(*pair, strict=True)] for pair in zip(before, self.sent(), strict=True)]
        if not lost and nbytes not in healthy:
            healthy[nbytes] = record["median_s"]
        ratio = record["median_s"] / healthy[nbytes] if nbytes in healthy else None
        shares = [[round(nic / max(1, sum(nics)), 3) for nic in nics] for nics in sent]
        values = {"state": state, "by": by, "choice": record["choice"], "bytes": nbytes, "ratio": ratio}
        self.results.add("several_ratio", system=system, **values, bound=self._bound_of(lost), shares=shares)
        if self.args.stand_in:
            return ""
        expected = self._in_table(system, lost, nbytes) if by == "schedules" else "nccl"
        if record["choice"] == expected and not record["wrong"]:
            return ""
        return f"{state}, {nbytes} bytes by {by}: {record['choice']} ran, {record['wrong']} wrong elements"

    def _in_table(self, system: str, lost: list[tuple[int, int]], nbytes: int) -> str:
        """The schedule that a table has for what hosts have lost; NCCL's own where none is predicted to be faster."""
        left = tuple(self.net.rails - sum(one == host for one, _ in lost) for host in range(self.net.hosts))
        for entry in from_bytes(self.table(system).read_bytes()):
            if entry.left == left and entry.least_bytes <= nbytes < entry.most_bytes:
                return entry.rounds.name
        return "nccl"

    def _bound_of(self, lost: list[tuple[int, int]]) -> float:
        """The least T/T0 of any schedule over hosts, against NCCL's ring of all ranks."""
        hosts, ranks = self.net.hosts, self.net.ranks
        shares = [1 - sum(one == host for one, _ in lost) / self.net.rails for host in range(hosts)]
        return max(1 / min(shares), 2 * (hosts - 1) / sum(shares)) / (2 * (ranks - 1) / ranks)

    def graphs(self) -> None:
        """AllReduces in CUDA graphs and in NCCL's groups. A graph that was captured before a loss goes on with what it
        has; one that is captured after it has the schedule, and so do groups; all of them are right in every state."""
        system = "rounds:kind=graphs"
        [group] = self.start(system, program="graphs_rank.py")
        sizes = [int(float(size) * MIB) for size in (self.args.sizes or "64,16").split(",")]
        group.ask({"do": "arrays", "sizes": sizes}, 60)
        captured: dict[str, str] = {}
        mistakes = []
        for state, lost in (("healthy", False), ("one rail lost", True), ("back", False)):
            self.net.carrier(1, 1, not lost)
            time.sleep(0.3 if self.args.stand_in else 1.5)
            expected = "forest" if lost else "nccl"
            for how in ("outside", "group"):
                group.ask({"do": how, "times": 2}, 60)  # what the ranks learn in one operation counts from the next on
                mistakes.append(self._graphs(group, system, {"do": how, "times": 5}, state, how, expected))
            for grouped in (False, True):
                name = f"captured {state}" + (" in a group" if grouped else "")
                captured[name] = group.ask({"do": "capture", "name": name, "grouped": grouped}, 60)[0]["choice"]
                if captured[name] != expected:
                    mistakes.append(f"{name}: {captured[name]}")
            for name, choice in captured.items():
                request = {"do": "launch", "name": name, "times": 5}
                mistakes.append(self._graphs(group, system, request, state, name, "", captured=choice))
        self.stop(system)
        if any(mistakes):
            raise GroupError("; ".join(filter(None, mistakes)))

    def _graphs(
        self, group: Group, system: str, request: dict[str, Any], state: str, how: str, expected: str, **more: Any
    ) -> str:
        """One cell, and what is wrong with it."""
        answers = group.ask(request, 60)
        wrong = sum(answer["wrong"] for answer in answers)
        median_s = max(answer["median_s"] for answer in answers)
        choice = answers[0]["choice"]
        values = {"state": state, "how": how, "median_s": median_s, "wrong": wrong, "choice": choice}
        self.results.add("graphs", system=system, **values, **more)
        if wrong or (expected and choice != expected):
            return f"{state}, {how}: {choice} ran, {wrong} wrong elements"
        return ""

    def refusals(self) -> None:
        """A table for other hosts, and no Multi-Process Service: NCCL's own AllReduce runs, and one line says why."""
        cases = [("rounds:gpus=1:kind=table", False, "the table is for")]
        if self.crowded and not has_gpu_each(self.gpus, self.net.gpus):
            cases.append(("rounds:kind=turns", True, "without the Multi-Process Service"))
        for system, without, words in cases:
            service, self.service.env = self.service.env, {} if without else self.service.env
            try:
                [group] = self.start(system)
                answers = group.ask(
                    {"do": "measure", "collective": "all_reduce", "nbytes": 4 * MIB, "iterations": 1, "warm": 1}, 60
                )
            finally:
                self.service.env = service
            lines = [line for log in group.logs for line in log.read_text(errors="replace").splitlines()]
            # Rank 0 says it as a mistake; with NCCL_DEBUG, as here, the others name their reason, too.
            ended = [line for line in lines if line.endswith("; NCCL runs every AllReduce")]
            told = [line for line in ended if line.startswith("r2ccl-preload:") and words in line]
            wrong = sum(answer["wrong"] for answer in answers)
            self.results.add(
                "refusals", system=system, told=told[:2], lines=len(told), wrong=wrong, choice=answers[0]["choice"]
            )
            self.stop(system)
            if not self.args.stand_in and (len(told) != 1 or wrong or answers[0]["choice"] != "nccl"):
                raise GroupError(f"{system}: {len(told)} lines, {wrong} wrong elements, {answers[0]['choice']} ran")

    def grid(self) -> list[str]:
        """The systems of `schedules`."""
        variants = [] if self.args.stand_in else filter(None, self.args.grid.split(","))
        return ["rounds", *(f"rounds:{variant}" for variant in variants)]

    def types(self) -> None:
        """The Communicator for CUDA tensors: every type and operation, out of place and in place, by our schedules."""
        system = "rounds:algorithm=forest:kind=types"
        [group] = self.start(system, program="types_rank.py")
        answers = group.ask({"do": "types"}, 60)
        values = {"wrong": sum(answer["wrong"] for answer in answers), "choices": answers[0]["choices"]}
        self.results.add("types", system=system, cases=answers[0]["cases"], **values)
        self.stop(system)

    def contract(self) -> None:
        """NCCL's rules for several communicators of one process: side by side, split, destroyed, aborted."""
        system = "plugin:contract"
        sizes = [nbytes for nbytes in (1024, MIB, 16 * MIB) if nbytes <= self.args.largest * MIB]
        [group] = self.start(system, program="contract_rank.py")
        answers = group.ask({"do": "contract", "sizes": sizes, "rounds": 3}, max(10, self.left_s()))
        cases, wrong = (sum(answer[key] for answer in answers) for key in ("cases", "wrong"))
        abort_ms = max(answer["abort_ms"] for answer in answers)
        self.results.add(
            "contract", system=system, ranks=len(answers), cases=cases, wrong=wrong, abort_ms=abort_ms, bytes=sizes
        )
        self.stop(system)
        if wrong or abort_ms > MOST_ABORT_MS:
            raise GroupError(f"{wrong} wrong elements, an abort of {abort_ms:.0f} ms")

    def lives(self) -> None:
        """The last communicator of every process ends, and another one is made: NCCL unloads the plugin in between.
        Rails come and go meanwhile, but not under NCCL's sockets, which show what NCCL itself keeps of each."""
        for system in ("plugin:lives", *(["socket:lives"] if not self.args.stand_in else [])):
            self._lives(system, MIB // 4, self.args.lives, fail=system.startswith("plugin") and self.net.rails > 1)

    def _lives(self, system: str, nbytes: int, most: int, fail: bool) -> None:
        [group] = self.start(system, program="lives_rank.py")
        lives: list[list[dict[str, Any]]] = []
        while len(lives) < most and (len(lives) < 2 or self.left_s() > 10):
            number = len(lives)
            rail = number // 2 % self.net.rails
            if fail:
                self.net.carrier(0, rail, number % 2 == 1)  # lost for one life, back for the next
            lives.append(group.ask({"do": "use", "nbytes": nbytes}, 60))
            key = "" if len(lives) == most else group.ask({"do": "key"}, 20)[0]["key"]
            group.ask({"do": "end", "abort": number % 3 == 2, "key": key}, 60)
        self.stop(system)
        for rail in range(self.net.rails):
            self.net.carrier(0, rail, True)
        wrong = sum(answer["wrong"] for life in lives for answer in life)
        at = min(5, len(lives) // 2)
        grown = {
            what: max(late[what] - first[what] for first, late in zip(lives[at], lives[-1], strict=True))
            for what in ("descriptors", "threads", "resident")
        }
        grown["bytes_a_life"] = round(grown.pop("resident") / (len(lives) - 1 - at))
        self.results.add("lives", system=system, lives=len(lives), ranks=len(lives[0]), wrong=wrong, grown=grown)
        if wrong:
            raise GroupError(f"{wrong} wrong elements")

    def killed(self) -> None:
        """A rank is killed in the middle of AllReduces: how long until every other rank has an error, and which."""
        for system in ("plugin:killed",) if self.args.stand_in else ("plugin:killed", "socket:killed"):
            for nbytes, number in itertools.product((1024, MIB), range(self.args.kills)):
                self._killed(system, nbytes, number)

    def _killed(self, system: str, nbytes: int, number: int) -> None:
        if self.left_s() < 20:
            raise GroupError("out of time")
        [group] = self.start(system, program="killed_rank.py")
        group.tell({"do": "loop", "nbytes": nbytes})
        time.sleep(0.7 + 0.013 * number)
        victim = 1 + number % (self.net.ranks - 1)
        begin = group.kill(victim)
        answers = group.answers(20)
        self.stop(system)
        heard_ms = [round((answer["failed_ns"] - begin) / 1e6, 1) for answer in answers]
        failures = sorted({answer["failure"] for answer in answers})
        succeeded = min(answer["succeeded"] for answer in answers)
        values = {"bytes": nbytes, "victim": victim, "heard_ms": heard_ms, "failures": failures}
        self.results.add("killed", system=system, **values, succeeded=succeeded)
        if min(heard_ms) < 0:
            raise GroupError(f"a rank had failed before another was killed: {failures}")

    def latency(self) -> None:
        """Messages of all sizes, the systems by turns: ABBA, so that a machine that drifts favours neither."""
        systems = tuple(self.args.pair.split(","))
        if not self.crowded:
            self.start(*systems)
        counted, longest_s = 0, 0.0
        try:
            # At least one round, however little time is left; another only if one like the longest has its time.
            while counted < self.args.rounds and (counted == 0 or self.left_s() > 1.2 * longest_s + 5):
                begin = time.monotonic()
                self._latency_round(counted, systems if counted % 2 == 0 else systems[::-1])
                longest_s = max(longest_s, time.monotonic() - begin)
                counted += 1
        finally:
            self.results.add("facts", **{"rounds of latency": f"{counted} of {self.args.rounds}"})
            for system in systems[1:]:
                for ratio in latency_ratios(self.results.records, systems[0], system):
                    self.results.add("latency_ratio", **ratio)

    def _latency_round(self, number: int, systems: tuple[str, ...]) -> None:
        sizes = [int(size) for size in self.args.latency_bytes.split(",")]
        most = 5 if self.args.stand_in else 50
        # Half a second: a group that has just begun was 14 us slower in its first 25 ms.
        request = {"do": "measure", "collective": "all_reduce", "nbytes": 4096, "iterations": 5 * most, "batch": 20}
        for system in systems:
            self.start(system)[0].ask(request, 60)
            for collective in self.args.collectives.split(","):
                for nbytes in dict.fromkeys(self.whole(collective, size) for size in sizes):
                    # 64 MiB of iterations are enough of a large message.
                    n = max(3, min(most, 64 * MIB // nbytes))
                    self.measure(
                        "latency",
                        system,
                        collective,
                        nbytes,
                        n=n,
                        warm=min(n, 5 if nbytes >= MIB else most),
                        round=number,
                    )

    def _try(self, work: Callable[[], float]) -> None:
        """A part of a section whose failure is told and does not end the section."""
        if self.left_s() < 5:
            raise GroupError("out of time")
        try:
            work()
        except GroupError as error:
            self.results.add("schedules", error=str(error))

    def failures(self) -> None:
        """Time lost per failure, in AllReduces of 1 MiB without end."""
        self.stop("plugin")  # it would hold NICs back that are lost so often, also in what comes next
        for failure, trials, hold_s, rest_s in (
            # The kernel tells changes of links about once a second: sooner ones would be seen late, by time-outs.
            ("carrier loss", self.args.trials, 0.3, max(0.9, self.args.rest)),
            ("black hole", self.args.trials // 2, 0.2, max(0.35, self.args.rest)),
        ):
            if failure in self.args.kinds:
                for system in self.args.failing.split(","):
                    self._failures(f"{system}:undamped", failure, trials, hold_s, rest_s)
        self.stop(*(f"{system}:undamped" for system in self.args.failing.split(",")))

    def _failures(self, system: str, failure: str, trials: int, hold_s: float, rest_s: float) -> None:
        group = self.start(system)[0]
        wanted_s = trials * (hold_s + rest_s + 0.05) + 2
        seconds = min(wanted_s, self.left_s() - 10)
        group.tell({"do": "loop", "nbytes": int(self.args.loop * MIB), "seconds": seconds})
        end = time.monotonic() + seconds
        received = [self.net.bytes_received(host) for host in range(self.net.hosts)]
        time.sleep(1.0)
        faults, carried, leaked = [], [], []
        for trial in range(trials):
            if time.monotonic() + hold_s + rest_s > end or group.answered():
                break
            rail, host = trial % self.net.rails, trial // self.net.rails % self.net.hosts
            begin = time.monotonic_ns()
            self.break_it(self.net, failure, host, rail, True)
            at_once = self.net.bytes_received(host)[rail]
            time.sleep(hold_s)
            leaked.append(self.net.bytes_received(host)[rail] - at_once)
            self.break_it(self.net, failure, host, rail, False)
            carried.append(at_once - received[host][rail])
            time.sleep(rest_s)
            faults.append((begin, time.monotonic_ns()))
        answers = group.answers(seconds + 60)
        ends, lengths = answers[0]["ends"], answers[0]["lengths"]
        timed = [(fault, cost) for fault in faults if (cost := lost_ms(fault, ends, lengths)) is not None]
        costs = [cost for _, cost in timed]
        wall_ns = time.time_ns() - time.monotonic_ns()
        self.results.add(
            "failures",
            system=system,
            failure=failure,
            trials=len(costs),
            outcome="survived",
            median_ms=statistics.median(costs),
            p99_ms=percentile(costs, 0.99),
            worst_ms=max(costs),
            iterations=len(lengths),
            healthy_iteration_ms=statistics.median(lengths) / 1e6,
            wrong=sum(answer["wrong"] for answer in answers),
            checked_iterations=sum(answer["checked"] for answer in answers),
            costs_ms=[round(cost, 2) for cost in costs],
            # By the struck NIC's own counters: what came since the loop began, and while the failure lasted.
            carried_bytes=carried,
            leaked_bytes=leaked,
            begun_ms=[(begin + wall_ns) // 1_000_000 for (begin, _), _ in timed],
        )

    @staticmethod
    def break_it(net: Network, failure: str, host: int, rail: int, on: bool) -> None:
        """Begins or ends a failure."""
        if failure == "carrier loss":
            net.carrier(host, rail, not on)
        else:
            net.black_hole(host, rail, on)

    def nccl_failures(self) -> None:
        """NCCL's own sockets in the same failures, each in a network of its own, side by side: does the job go on?"""
        with network(self.net.hosts, self.net.rails, self.net.congestion_control) as second:
            second.shape(self.args.rate * 1e9)
            cases = [("carrier loss", "socket:carrier", self.net), ("black hole", "socket:hole", second)]
            for side_by_side in [[case] for case in cases] if self.crowded else [cases]:
                self._nccl_failures(side_by_side)

    def _nccl_failures(self, cases: list[tuple[str, str, Network]]) -> None:
        wait_s = self.args.patience
        for _, system, where in cases:
            self.start(system, net=where)
        request = {"do": "loop", "nbytes": int(self.args.loop * MIB), "seconds": wait_s + 120}
        for _, system, _ in cases:
            self.groups[system].tell(request)
        time.sleep(2)
        for failure, _, where in cases:
            self.break_it(where, failure, 1, 1, True)
        time.sleep(wait_s - 3)
        before = {system: sum(where.bytes_sent(0)) for _, system, where in cases}
        time.sleep(3)
        moved = {system: sum(where.bytes_sent(0)) - before[system] for _, system, where in cases}
        for failure, _, where in cases:
            self.break_it(where, failure, 1, 1, False)
        repaired = time.monotonic()
        sent = {system: before[system] + moved[system] for _, system, _ in cases}
        goes_on: dict[str, float] = {}
        # The kernel's pauses between retransmissions have grown to as long as the failure was.
        while len(goes_on) < len(cases) and time.monotonic() - repaired < min(wait_s + 5, self.left_s() - 5):
            time.sleep(0.5)
            for _, system, where in cases:
                if system not in goes_on and sum(where.bytes_sent(0)) - sent[system] > MIB:
                    goes_on[system] = time.monotonic() - repaired
        for failure, system, _ in cases:
            self._verdict(failure, system, moved[system], goes_on.get(system))
        self.stop(*(system for _, system, _ in cases))

    def _verdict(self, failure: str, system: str, moved: int, after_s: float | None) -> None:
        """By the bytes that host 0 sent in the last 3 s of the failure, and when it sent again after the repair."""
        try:
            ended = self.groups[system].answered()
            outcome = "went on" if moved > MIB else f"hung for {self.args.patience:.0f} s"
            outcome = "ended" if ended else outcome
        except GroupError as error:
            outcome = f"aborted: {str(error)[:80]}"
        if moved <= MIB:
            outcome += "; still hangs after the repair" if after_s is None else f"; goes on {after_s:.1f} s after it"
        self.results.add("nccl_failures", system="socket", failure=failure, trials=1, outcome=outcome)

    def ddp(self) -> None:
        """Training without and with a failure: the same losses, bit by bit."""
        steps = 120
        [group] = self.start("plugin:ddp", program="train.py")
        group.ask({"do": "train", "steps": 3}, 60)
        for state, failure in (("healthy", ""), ("rail lost and back", "carrier loss"), ("hole", "black hole")):
            if self.left_s() < 15:
                raise GroupError("out of time")
            group.tell({"do": "train", "steps": steps})
            time.sleep(1.5)
            begin = time.monotonic_ns()
            if failure:
                self.break_it(self.net, failure, self.net.hosts - 1, 1, True)
                time.sleep(1.5)
                self.break_it(self.net, failure, self.net.hosts - 1, 1, False)
            answer = group.answers(90)[0]
            within = answer["begin"] < begin < answer["end"]
            seconds = (answer["end"] - answer["begin"]) / 1e9
            values = {"system": "plugin", "state": state, "seconds": seconds, "fault_within": within}
            self.results.add("ddp", losses=answer["losses"], **values)
        self.stop("plugin:ddp")


SECTIONS: Mapping[str, float] = {
    "sizes": 120,
    "failures": 180,
    "nccl_failures": 120,
    "degraded": 50,
    "ddp": 60,
    "schedules": 130,
    "switch": 60,
    "unshaped": 60,
    "several": 180,
    "graphs": 90,
    "types": 60,
    "refusals": 120,
    "contract": 60,
    "lives": 120,
    "killed": 120,
    "latency": 330,
}
"""In the order of their worth, with the most seconds that each may take."""


def main() -> int:
    """Runs the sections; 0 when none failed."""
    args = _parser().parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = args.only.split(",") if args.only else list(SECTIONS)
    if unknown := set(wanted) - set(SECTIONS):
        print(f"campaign: no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    results = Results(args.out)
    failed = False
    with network(args.hosts, args.rails, args.congestion_control, args.ranks) as net:
        net.burst_s = args.burst / 1e3
        results.add("facts", **{"congestion control": net.congestion_control})
        campaign = Campaign(args, net, results)
        try:
            campaign.begin_build()
            campaign.begin_sharing()
            for system in args.tables.split(",") if "several" in wanted and not args.stand_in else ():
                campaign.begin_table(system)
            for system in campaign.grid() if "schedules" in wanted and not args.stand_in else ():
                campaign.begin_table(system)
            for section in wanted:
                failed |= not _section(campaign, section, results)
        finally:
            campaign.close()
            print(results.write_tables(), flush=True)
            with tarfile.open(args.out / "campaign.tar.gz", "w:gz") as tar:
                tar.add(campaign.folder, "logs", filter=_but_the_build)
            shutil.rmtree(campaign.folder)
    return 1 if failed else 0


def _but_the_build(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Logs and tables; of the build only what it said."""
    return None if member.name == "logs/build" else member


def _section(campaign: Campaign, section: str, results: Results) -> bool:
    begin = time.monotonic()
    campaign.until = begin + SECTIONS[section]
    if campaign.left_s() < 15:
        results.add(section, error="no time was left")
        return False
    try:
        getattr(campaign, section)()
        results.add("facts", **{f"{section} took": f"{time.monotonic() - begin:.1f} s"})
        return True
    except Exception as error:
        traceback.print_exc()
        results.add(section, error=f"{type(error).__name__}: {error}")
        # Who failed may wait for ever; the next section begins with groups, links and rates of its own.
        campaign.stop(*list(campaign.groups))
        for host in range(campaign.net.hosts):
            for rail in range(campaign.net.rails):
                campaign.net.carrier(host, rail, True)
                campaign.net.black_hole(host, rail, False)
        campaign.shape()
        return False
    finally:
        results.write_tables()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder for results")
    parser.add_argument("--only", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--seconds", type=float, default=650, help="for everything (650)")
    parser.add_argument("--hosts", type=int, default=4, help="hosts (4)")
    parser.add_argument("--ranks", type=int, default=1, help="ranks of each host, which share its NICs (1)")
    parser.add_argument("--gpus", type=int, help="GPUs that the ranks share (as many as there are)")
    parser.add_argument("--rails", type=int, default=4, help="NICs of each host (4)")
    parser.add_argument("--rate", type=float, default=4, help="Gbit/s of a NIC (4)")
    parser.add_argument("--burst", type=float, default=BURST_S * 1e3, help="ms of its rate at once after a pause (2)")
    parser.add_argument("--congestion-control", help="of TCP, such as reno (the machine's own)")
    parser.add_argument("--largest", type=float, default=256, help="MiB of the largest message (256)")
    parser.add_argument("--loop", type=float, default=1, help="MiB of the AllReduces that failures hit (1)")
    parser.add_argument("--trials", type=int, default=100, help="carrier losses; half as many black holes (100)")
    parser.add_argument("--rest", type=float, default=0, help="seconds at least between two failures (0.35, 0.9)")
    parser.add_argument("--kinds", default="carrier loss,black hole", help="the failures that are timed")
    parser.add_argument("--patience", type=float, default=20, help="seconds that NCCL's sockets get in a failure (20)")
    parser.add_argument("--systems", default="socket,socket_tuned,plugin", help="whose sizes are measured")
    parser.add_argument("--pair", default="socket,plugin", help="the first's latency and others' (socket,plugin)")
    parser.add_argument("--failing", default="plugin", help="the plugins whose failures are timed (plugin)")
    parser.add_argument(
        "--collectives",
        default=",".join(COLLECTIVES),
        help="whose are measured; others: alltoall, reduce, gather, scatter",
    )
    parser.add_argument("--sizes", help="MiB of the messages, such as 0.0625,1,256, instead of the usual ones")
    parser.add_argument("--rounds", type=int, default=4, help="of latency, each with both systems (4)")
    parser.add_argument("--lives", type=int, default=50, help="communicators that come and go in a process (50)")
    parser.add_argument("--kills", type=int, default=3, help="of each size and system (3)")
    parser.add_argument("--latency-bytes", default="8,256,1024,4096", help="of its messages (8,256,1024,4096)")
    parser.add_argument("--grid", default=GRID, help=f"schedules beside the usual ones ({GRID})")
    parser.add_argument("--tables", default="rounds", help="of `several`, such as rounds,rounds:segments=1 (rounds)")
    parser.add_argument("--libraries", type=Path, help="where the libraries lie, instead of building them")
    parser.add_argument("--spare", type=Path, help="libraries built elsewhere, for those that cannot be built here")
    parser.add_argument("--stand-in", action="store_true", help="without GPUs: our Communicator in the place of NCCL")
    return parser


if __name__ == "__main__":
    sys.exit(main())
