"""An interrupt that comes during an import takes effect after it, and never after what it was to interrupt."""

import signal
import sys
from pathlib import Path

import pytest

from harness.sweep.interrupt import stoppable


def test_an_import_ends_before_the_interrupt_takes_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupts_its_import.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nX = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt, match="SIGINT"), stoppable():
        import interrupts_its_import  # type: ignore[import-not-found]

        while True:
            signal.pause()
    assert sys.modules["interrupts_its_import"] is interrupts_its_import
    assert interrupts_its_import.X == 1


def test_an_interrupt_that_still_waits_at_the_end_is_not_raised_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "interrupted_at_the_end.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("harness.sweep.interrupt.AGAIN_S", 0.0)
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        for _ in range(50):
            sys.modules.pop("interrupted_at_the_end", None)
            try:
                with stoppable():
                    __import__("interrupted_at_the_end")
            except KeyboardInterrupt:
                pass
        assert seen == []
    finally:
        signal.signal(signal.SIGTERM, before)
