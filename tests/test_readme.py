"""README.md stays true: its program runs as it stands there, but for the port."""

import os
import subprocess
import sys
from pathlib import Path

from r2ccl_core.control.rendezvous import free_root, parse_root

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_program_of_two_ranks_says_what_it_should(tmp_path: Path) -> None:
    program = README.read_text().partition("```python\n")[2].partition("```")[0]
    assert program.startswith("# sum.py") and ":7000" in program
    port = parse_root(free_root())[1]
    (tmp_path / "sum.py").write_text(program.replace(":7000", f":{port}"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("R2CC_", "NCCL_"))}
    ranks = [
        subprocess.Popen(
            [sys.executable, "sum.py", str(rank), "2"], cwd=tmp_path, env=clean, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        told = [rank.communicate(timeout=240)[0].strip() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert told == ["0 [3 3 3 3] (2, 4)", "1 [3 3 3 3] (2, 4)"]
    assert [rank.returncode for rank in ranks] == [0, 0]
