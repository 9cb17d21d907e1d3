"""The catalogue: every system that an experiment can name with ``use``, as data.

NCCL's own variables are facts of its releases: a plugin by path since 2.20, IB port failover since 2.29.7 and port
recovery since 2.30.3, both only within one virtual NIC that combines several (NCCL_NET_MERGE_LEVEL).
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from harness.systems.base import NCCL_LOG, PATH, Expectation, Mode, System
from r2ccl_core.errors import R2cclError
from r2ccl_core.native import plugin_path
from r2ccl_core.planning.algorithms import AUTO, for_losses
from r2ccl_core.planning.selection import read_policy

CORE = ("perf", "simulate", "noop", "torch_r2ccl", "train_r2ccl", "serve_r2ccl")
CORE_ON_HOSTS = ("perf", "torch_r2ccl", "train_r2ccl", "serve_r2ccl")
GIVE_UP, GIVE_UP_MS = "R2CC_FAILOVER_GIVE_UP_MS", 10_000
"""How long our core looks for a path, and its default."""
REPLICA_ON_FAILURE, TRAINING_ON_FAILURE = "SERVE_ON_FAILURE", "TRAIN_ON_FAILURE"
"""Variables of the programs that serve and train (`harness.backends`)."""
NCCL = ("nccl_tests", "torch_nccl", "train_nccl", "train_mixed")

_CORE_NEEDS = "this project, installed"
_NCCL_NEEDS = "a GPU, NCCL"


def _core(name: str, what: str, mode: Mode, expect: Expectation = "ok", **env: str) -> System:
    return System(name, f"our core: {what}", _CORE_NEEDS, CORE, mode, expect, env)


def _scheduled() -> Iterator[System]:
    """A system for every schedule that responds to a loss; mode 3 is R2CC-AllReduce by another name."""
    for alias, algorithm in for_losses().items():
        after = f"Balance and {algorithm.title} after a loss"
        if alias == read_policy(3, {}).algo:
            yield _core(alias, after, 3)
        else:
            yield _core(alias, after, 2, R2CC_ALGO=alias)
    yield _core(AUTO, "Balance and what the planner chooses", 2, R2CC_ALGO=AUTO)


def _replica(name: str, what: str) -> System:
    """Serving over our core as fail-stop, by the reaction of the serving engine above it to a loss."""
    told = f"serving without failover, which stops at the first loss; then {what}"
    return System(name, told, _CORE_NEEDS, ("serve_r2ccl",), 0, "ok", {REPLICA_ON_FAILURE: name})


ENTRIES = (
    _core("failstop", "stripes over all NICs and stops at the first loss, as NCCL does", 0, "failed"),
    _core("hot_repair", "one back-up NIC takes over the lost one's share", 1),
    _core("balance", "every NIC left takes what it can carry", 2),
    *_scheduled(),
    _replica("transfer_again", "transfers start again over the rails that are left"),
    _replica("recompute", "prompts are computed again, and sent over the rails that are left"),
    _replica("reroute", "the host of prompts, a replica by itself, answers what is left alone"),
    _replica("restart", "the replica starts again, and every request from its beginning"),
    System(
        "torchft",
        "torchft over gloo, which drops the step that fails; after 3 in a row it ends",
        "PyTorch and torchft in the hosts' Python",
        ("train_torchft",),
        0,
        "failed",
        {"TORCHFT_TIMEOUT_SEC": "5"},
        network="gloo",
    ),
    System(
        "checkpoint_restart",
        "training that stops at the first loss; torchrun's agents start it again, from its last checkpoint",
        f"{_CORE_NEEDS}, with PyTorch",
        ("train_r2ccl",),
        0,
        "ok",
        {TRAINING_ON_FAILURE: "restart"},
    ),
    System(
        "nccl",
        "NCCL as it is",
        _NCCL_NEEDS,
        NCCL,
        0,
        "failed",
        {**NCCL_LOG, "NCCL_NET_PLUGIN": "none"},
    ),
    System(
        "nccl_ib_resiliency",
        "NCCL with its own IB port failover and recovery",
        f"{_NCCL_NEEDS} 2.30.3 or later, two RDMA ports or more that merge into one NIC",
        NCCL,
        1,
        "ok",
        {
            **NCCL_LOG,
            "NCCL_NET_PLUGIN": "none",
            "NCCL_IB_RESILIENCY_PORT_FAILOVER": "1",
            "NCCL_IB_RESILIENCY_PORT_RECOVERY": "1",
            "NCCL_IB_MERGE_NICS": "1",
            "NCCL_NET_MERGE_LEVEL": "SYS",
        },
        network="IB",
    ),
    System(
        "nccl_r2ccl_plugin",
        "NCCL over this project's net plugin",
        f"{_NCCL_NEEDS} 2.20.3 or later, the plugin (by default the one built here)",
        NCCL,
        2,
        "ok",
        {**NCCL_LOG, "NCCL_NET_PLUGIN": PATH},
        network="r2ccl",
        path="plugin",
    ),
    System(
        "nccl_plugin",
        "NCCL over a net plugin of your own: path",
        f"{_NCCL_NEEDS} 2.20.3 or later, the plugin",
        NCCL,
        2,
        "ok",
        {**NCCL_LOG, "NCCL_NET_PLUGIN": PATH},
        path="plugin",
    ),
    System(
        "nccl_fork",
        "a build of NCCL of your own: path of its libnccl.so",
        "a GPU, the library",
        NCCL,
        2,
        "ok",
        {**NCCL_LOG, "LD_PRELOAD": PATH},
        path="library",
    ),
    System(
        "nccl_ib",
        "NCCL over its own RDMA network (net_ib), which ends with an error when a port is lost",
        f"{_NCCL_NEEDS}, RDMA ports that NCCL_IB_HCA selects",
        NCCL,
        0,
        "failed",
        {**NCCL_LOG, "NCCL_NET_PLUGIN": "none", "NCCL_NET": "IB"},
        network="IB",
    ),
    System(
        "ib_write_bw",
        "perftest's RDMA writes over all rails at once: what verbs can carry there",
        "perftest (ib_write_bw), RDMA ports on the NICs",
        ("perftest",),
        0,
        "failed",
    ),
    System(
        "gloo",
        "torch.distributed with gloo in host memory, which waits for a lost NIC until it is given up",
        "PyTorch in the hosts' Python",
        ("torch_gloo", "train_gloo"),
        0,
        "failed",
        network="gloo",
        nics_in_turn=True,
    ),
)

CATALOGUE = {entry.name: entry for entry in ENTRIES}


def policies() -> dict[str, list[str]]:
    """The variables that choose how a program reacts to a failure of its transport, each with the values that it
    knows: those of the entries."""
    found: dict[str, list[str]] = {}
    for entry in ENTRIES:
        for name in {REPLICA_ON_FAILURE, TRAINING_ON_FAILURE} & entry.env.keys():
            found.setdefault(name, []).append(entry.env[name])
    return found


def needs_no_network(env: Mapping[str, str]) -> bool:
    """Whether a program with these variables answers without the network once its transport has failed."""
    return env.get(REPLICA_ON_FAILURE) == "reroute"


def sockets_carry_data(use: str | None, network: str | None) -> bool:
    """Whether NCCL's own sockets carry the collectives of a system, and not only the ranks' rendezvous: not with a net
    plugin, nor if it is to use another network. `use` and `network` are those of its table."""
    if use is not None and CATALOGUE[use].path == "plugin":
        return False
    return network is None or network.lower() == "socket"


def fill(values: Mapping[str, Any]) -> dict[str, Any]:
    """A ``[[system]]`` table completed from the entry named by its ``use``; the table's own values take precedence.

    Raises `ValueError`, one line, for an unknown entry or a path that is missing or superfluous.
    """
    entry = CATALOGUE.get(str(values["use"]))
    if entry is None:
        close = get_close_matches(str(values["use"]), CATALOGUE, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(CATALOGUE)}"
        raise ValueError(f"use: {values['use']!r} is not a system of the catalogue; {hint}")
    filled = {"name": entry.name, "mode": entry.mode, "expect_on_fault": entry.expect_on_fault} | dict(values)
    path = _path(entry, filled.get("path"))
    env = {name: value.replace(PATH, path or "") for name, value in entry.env.items()}
    filled |= {"env": env | dict(values.get("env") or {}), "path": path}
    if entry.network is not None:
        filled.setdefault("network", entry.network)
    return filled


def _path(entry: System, given: object) -> str | None:
    """The path that the entry's environment needs."""
    if entry.path == "none":
        if given is not None:
            raise ValueError(f"path: the system {entry.name} takes none")
        return None
    if given is None and entry.network == "r2ccl":
        try:
            return str(plugin_path())
        except R2cclError as error:
            raise ValueError(f"path: {error}") from None
    if given is None:
        raise ValueError(f"path: the system {entry.name} needs the path of its {entry.path}")
    return str(given)
