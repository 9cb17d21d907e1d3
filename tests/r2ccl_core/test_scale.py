"""The commands that print what simulations at scale cost, on small cases."""

import re
import sys

import pytest

from r2ccl_core.jobs import scale as jobs_scale
from r2ccl_core.perf import scale


def test_every_schedule_has_a_line_with_its_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("CHUNKS_OF_A_TREE", 32), ("CHUNKS", 64), ("DENSE", (8,)), ("MOST_HOSTS", 8)):
        monkeypatch.setattr(scale, name, value)
    monkeypatch.setattr(sys, "argv", ["scale", "--hosts", "8", "9"])
    scale.main()
    lines = capsys.readouterr().out.splitlines()
    small, large = ([line for line in lines if f" {hosts} hosts" in line] for hosts in (8, 9))
    assert len(small) + len(large) == len(lines)
    named = [line.split("  ")[0] for line in small]
    assert named[:4] == ["plan", "ring", "forest", "forest, 8 trees"] and "r2cc_all_reduce" in named
    assert "(at most  1)" in small[0] and all(f"(at most {10:2})" in line for line in small if "trees" in line)
    assert [line.split()[0] for line in large] == ["plan", *2 * ["ring", "forest"]]
    errors = [float(found) for line in small for found in re.findall(r"in truth (-?[\d.]+)%", line)]
    assert errors and max(map(abs, errors)) <= 2


def test_a_monte_carlo_tells_its_seconds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["scale", "--patterns", "10", "--processes", "1"])
    jobs_scale.main()
    assert re.fullmatch(
        r"512 GPUs, 10 patterns, \d+ systems, 1 processes: .* s of processors\n", capsys.readouterr().out
    )
