"""Runs commands unless a marker says that they have run. A stand-alone file that runs on the host.

Hosts may share the file system that the commands write to, so everything happens under a lock beside the marker. The
one argument is JSON: {"marker", "value", "runs": [{"argv": [...], "limit_s": 60}]}. Prints `made`, or `there`.
"""

import fcntl
import json
import subprocess
import sys
from pathlib import Path

UNFINISHED = "unfinished"
"""Content of the marker while the commands run, and after they have failed."""


def main() -> int:
    """The exit status: 0, or that of the first failed command, whose last output goes to stderr."""
    asked = json.loads(sys.argv[1])
    marker = Path(asked["marker"])
    lock = marker.parent.with_name(marker.parent.name + ".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if marker.exists() and marker.read_text(encoding="utf-8").strip() == asked["value"]:
            print("there")
            return 0
        # Whatever ends the commands, the marker identifies their files as ours, and the next run continues from there.
        marker.parent.mkdir(exist_ok=True)
        marker.write_text(UNFINISHED + "\n", encoding="utf-8")
        for run in asked["runs"]:
            done = subprocess.run(
                run["argv"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=run["limit_s"], cwd="/"
            )
            if done.returncode:
                lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
                wrong = [line for line in lines if line.lower().startswith(("error", "fatal"))] or lines[-1:]
                print(f"{' '.join(run['argv'][:4])}: {' '.join(wrong)[:500]}", file=sys.stderr)
                return done.returncode if 0 < done.returncode < 128 else 1
        marker.write_text(asked["value"] + "\n", encoding="utf-8")
    print("made")
    return 0


if __name__ == "__main__":
    sys.exit(main())
