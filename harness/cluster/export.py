"""A running local cluster as an inventory, for users who reach its hosts by SSH alone. Pure."""

from typing import Any

from harness.cluster import state
from harness.cluster.inventory import Inventory
from harness.cluster.sshd import PORT


def of_local(record: state.Record, python: str) -> Inventory:
    """Its addresses, keys and NICs; `python` runs the ranks."""
    layout, folder = record.layout, state.directory(record.tag)
    login = {
        "port": PORT,
        "user": record.user,
        "key": str(folder / "login"),
        "known_hosts": str(folder / "known_hosts"),
        "python": python,
    }
    hosts = [{"name": h["name"], "address": h["address"], **login, "nics": _nics(h)} for h in layout["hosts"]]
    switch = layout["switch_host"]
    switches = [{"name": switch["name"], "address": switch["address"], **login}]
    return Inventory.model_validate({"schema": 1, "rails": layout["rails"], "host": hosts, "switch": switches})


def _nics(host: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for nic in host["nics"]:
        rate = nic["rate_bit_s"]
        known = {"rate": f"{rate:.15g} bit/s"} if rate else {}
        known |= {"rdma": nic["rdma"]} if nic["rdma"] else {}
        plugged = {"switch": nic["switch"], "switch_port": nic["switch_port"]}
        found.append({"rail": nic["rail"], "name": nic["name"], "ipv4": f"{nic['address']}/24"} | known | plugged)
    return found
