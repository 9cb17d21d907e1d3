"""Many hosts at once, and what an SSH connection that fails says."""

import re
import threading

import paramiko
import pytest

from harness.cluster.factory import make_cluster
from harness.cluster.spec import NoopSpec
from harness.errors import HostError
from harness.hosts.base import Host
from harness.hosts.each import all_results, for_each
from harness.hosts.noop import NoopHost
from harness.hosts.ssh import explain


def test_every_host_has_a_result_or_an_error() -> None:
    def work(host: Host) -> str:
        if host.name == "b":
            raise HostError("b", "broken")
        return host.name.upper()

    results = for_each([NoopHost(n) for n in "abc"], work)
    assert list(results) == ["a", "b", "c"]
    assert (results["a"], results["c"]) == ("A", "C")
    with pytest.raises(HostError, match=r"^b: broken$"):
        all_results(results)


def test_several_errors_are_counted() -> None:
    results: dict[str, int | HostError] = {n: HostError(n, "broken") for n in "abcd"}
    with pytest.raises(HostError, match=r"^4 of 4 hosts: a: broken; b: broken; c: broken; \.\.\.$"):
        all_results(results)


def test_hosts_are_worked_on_at_the_same_time() -> None:
    meeting = threading.Barrier(16, timeout=20)
    results = for_each([NoopHost(str(n)) for n in range(16)], lambda host: meeting.wait())
    assert sorted(all_results(results).values()) == list(range(16))


def test_a_bug_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        for_each([NoopHost()], lambda host: 1 // 0)
    assert for_each([], lambda host: 1) == {}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (paramiko.AuthenticationException("Authentication failed."), "check the user and the key"),
        (paramiko.SSHException("Server '10.0.0.1' not found in known_hosts"), "host key is not known"),
        (TimeoutError(), "no answer within"),
        (ConnectionRefusedError(111, "Connection refused"), "cannot connect: .*Connection refused"),
    ],
)
def test_a_failed_connection_is_explained(error: Exception, words: str) -> None:
    assert re.search(words, explain(error))


def test_the_noop_cluster_lives() -> None:
    with make_cluster(NoopSpec(hosts=3)) as cluster:
        names = for_each(cluster.hosts, lambda host: host.run(["echo", host.name]).stdout.strip())
        assert names == {f"host{h}": f"host{h}" for h in range(3)}
        assert cluster.describe()["kind"] == "noop"
    cluster.down()
