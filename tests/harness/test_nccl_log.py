"""NCCL's lines as events: the forms of several versions as data, and what no line may do."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.backends.nccl_log import network_of, parse

CASES = json.loads((Path(__file__).parent / "nccl_lines.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("line", "kind", "fields"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_a_line_says(line: str, kind: str | None, fields: dict[str, Any]) -> None:
    event = parse(line + "\n")
    assert (event and event.kind) == kind
    if event is not None:
        assert {k: list(v) if isinstance(v, tuple) else v for k, v in event.fields.items()} == fields
        if kind != "version":
            assert (event.host, event.pid) == ("n7", 41)
            assert line.endswith(event.text)


def test_trouble_is_told_from_news() -> None:
    kinds = {kind for line, kind, _ in CASES if (event := parse(line)) and event.is_trouble}
    assert {"warning", "connection_error", "ib_async_event", "comm_abort", "error_trace"} <= kinds
    assert not kinds & {"network", "ring", "channel", "comm_init", "comm_destroy", "retry", "ib_recovery"}


def test_the_network_is_that_of_the_last_communicator() -> None:
    told = {
        0: ["h:1:1 [0] NCCL INFO Using network Socket", "h:1:1 [0] NCCL INFO Using network r2ccl"],
        1: ["h:2:2 [0] NCCL INFO Connected all trees"],
    }
    events = {rank: [e for line in lines if (e := parse(line))] for rank, lines in told.items()}
    assert network_of(events) == {0: "r2ccl"}


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_a_warning_is_never_lost_and_no_text_breaks_it(text: str) -> None:
    parse(text)
    event = parse(f"h:1:2 [0] a.cc:3 NCCL WARN {' '.join(text.split())}")
    assert event is not None
    assert event.level == "WARN"
