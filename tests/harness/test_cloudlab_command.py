"""`harness cloudlab inventory` as a user meets it."""

import stat
import subprocess
import sys
import tomllib
from pathlib import Path

MANIFESTS = Path(__file__).parents[1] / "cloudlab" / "manifests"
ROOT = Path(__file__).parents[2]


def harness(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from harness.commands.cli import main; main()", "cloudlab", "inventory", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


def test_a_manifest_becomes_a_file_that_says_where_it_comes_from(tmp_path: Path) -> None:
    out = tmp_path / "hosts.toml"
    done = harness(str(MANIFESTS / "r7525_three_lans.xml"), "-o", str(out), "--user", "ada", "--key", "~/.ssh/lab")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{out}: 3 hosts, 3 rails"
    read = tomllib.loads(out.read_text())
    assert read["host"][0]["key"] == "~/.ssh/lab"
    assert read["provenance"]["command"].endswith("--user ada --key '~/.ssh/lab'")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_an_inventory_that_was_there_is_kept(tmp_path: Path) -> None:
    out, source = tmp_path / "hosts.toml", str(MANIFESTS / "r7525_three_lans.xml")
    out.write_text("# with a card")
    done = harness(source, "-o", str(out), "--user", "ada")
    assert done.returncode == 0 and "kept as" in done.stdout
    assert (tmp_path / "hosts.toml.bak").read_text() == "# with a card"


def test_what_a_manifest_does_not_say_is_told_on_the_command_line(tmp_path: Path) -> None:
    out, source = tmp_path / "hosts.toml", str(MANIFESTS / "r7525_three_lans.xml")
    more = ["--rate", "10 Gbit/s", "--no-sudo", "--python", "/opt/p/bin/python", "--known-hosts", "lab_hosts"]
    done = harness(source, "-o", str(out), "--user", "ada", *more)
    assert done.returncode == 0, done.stderr
    host = tomllib.loads(out.read_text())["host"][0]
    assert (host["python"], host.get("sudo", False)) == ("/opt/p/bin/python", False)
    assert host["known_hosts"] == str(ROOT / "lab_hosts"), "right wherever the inventory goes"
    assert {nic["rate"] for nic in host["nics"]} == {"10 Gbit/s"}
    for rate in ("quick", "0 Gbit/s"):
        done = harness(source, "-o", str(out), "--user", "ada", "--rate", rate)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and rate in done.stderr


def test_a_refusal_leaves_the_old_file_alone(tmp_path: Path) -> None:
    out = tmp_path / "hosts.toml"
    out.write_text("old")
    done = harness(str(MANIFESTS / "no_mac.xml"), "-o", str(out))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "has no MAC address" in done.stderr
    assert out.read_text() == "old"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    done = harness(str(MANIFESTS / "r7525_three_lans.xml"), "-o", str(tmp_path), "--user", "ada")
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path}: cannot be written: Is a directory; choose another place with -o\n"
    assert list(tmp_path.parent.glob(f".{tmp_path.name}*")) == []
