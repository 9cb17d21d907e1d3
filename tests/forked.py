"""Starts the ranks of jobs as forks of one process that has imported what they need, which takes them longer than a
test.

    python forked.py MODULE...

imports the modules and then reads jobs, one a line: JSON, a list of ranks at the same time. Of a rank `argv` is what a
Python is given (a file or `-m` a module, then arguments), `env` what its environment has besides, `out` and `err` the
files of what it says; without `err`, to standard error, it says that here. Its standard input is open and empty. Each
job is answered by a line, the exit statuses of its ranks.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """Of a rank its exit status, and what it said on standard output and standard error."""

    status: int
    out: str
    err: str


class Forks:
    """Such a process, which starts with the first job; use `close()`."""

    def __init__(self, *modules: str, options: Sequence[str] = (), env: Mapping[str, str] | None = None) -> None:
        self._argv = [sys.executable, *options, __file__, *modules]
        self._env = dict(env or {})
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, folder: Path, job: Sequence[tuple[Sequence[str], Mapping[str, str]]], *, errors: bool = True
    ) -> list[Ended]:
        """A rank is what its Python is given and its environment besides ours; `folder` is for what they say, with
        `errors` on standard error, too."""
        files = [[folder / f"{rank}.{name}" for name in ("out", "err")[: 1 + errors]] for rank in range(len(job))]
        ranks = [
            {"argv": argv, "env": {**os.environ, **self._env, **env}, **{file.suffix[1:]: str(file) for file in of}}
            for (argv, env), of in zip(job, files, strict=True)
        ]
        try:
            statuses = json.loads(self._asked(json.dumps(ranks)))
        except BaseException:  # such as a test's time limit
            self.close(kill=True)
            raise
        said = ([file.read_text() for file in of] for of in files)
        return [Ended(status, *(*words, "")[:2]) for status, words in zip(statuses, said, strict=True)]

    def _asked(self, line: str) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                self._argv,
                env={**os.environ, **self._env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        return self._process.stdout.readline()

    def close(self, *, kill: bool = False) -> None:
        """It ends, with `kill` at once and with all ranks."""
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            assert process.stdin is not None
            process.stdin.close()
        assert kill or process.returncode == 0


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    empty, ours = os.pipe()
    while line := sys.stdin.readline():
        ranks = []
        for rank in json.loads(line):
            process = os.fork()
            if process == 0:
                os.close(ours)
                become(rank, empty)
                return
            ranks.append(process)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in ranks]), flush=True)


def become(rank: dict[str, Any], empty: int) -> None:
    """Returns as the program ends, so that the interpreter comes to its end as that of a process of its own."""
    os.dup2(empty, 0)
    for number, name in enumerate(("out", "err"), 1):
        if name in rank:
            os.dup2(os.open(rank[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
    os.environ.clear()
    os.environ.update(rank["env"])
    program, *words = rank["argv"]
    if program == "-m":
        program, *words = words
        sys.argv = [program, *words]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *words]
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
