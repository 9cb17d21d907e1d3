"""Records logs of a real nccl-tests build, as test data for its parsers: python record_nccl_tests.py BUILD OUT.

Every case is one run of one program with an environment of its own and leaves ``<label>-<case>.log`` (both streams,
as a launcher mixes them), ``.json`` where the version writes one, and a line in ``runs.json``: arguments and exit
status. What belongs to the machine (its name, its paths, the environment in the JSON) is taken out.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

PROGRAMS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "sendrecv", "alltoall")
SIZES = ("-b", "1K", "-e", "1M", "-f", "32", "-n", "3")
ONE_BY_ONE = ("-b", "1M", "-e", "1M", "-n", "1", "-w", "1", "-N", "4")
INFO = {"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}
QUIET = {"NCCL_NVLS_ENABLE": "0"}
KEPT = ("PATH", "LD_LIBRARY_PATH")
TIMEOUT_S = 60


def cases(usage: str, gpus: int) -> dict[str, tuple[str, list[str], dict[str, str]]]:
    """Program, arguments and environment of every case that a program with this `usage` text can run."""
    every = ["-g", str(gpus)]
    found: dict[str, tuple[str, list[str], dict[str, str]]] = {name: (name, [*SIZES, *every], {}) for name in PROGRAMS}
    found["unchecked"] = ("all_reduce", [*SIZES, "-c", "0", *every], {})
    found["info"] = ("all_reduce", [*ONE_BY_ONE, *every], INFO)
    found["too_many_gpus"] = ("all_reduce", [*SIZES, "-g", "99"], {})
    if "--run_cycles" in usage:
        found["cycles"] = ("all_reduce", [*ONE_BY_ONE, *every], {})
    if "--report_timestamps" in usage:
        found["timestamps"] = ("all_reduce", [*ONE_BY_ONE, "-S", "1", *every], {})
    if "--output_file" in usage:
        found["document"] = ("all_reduce", [*SIZES, "-J", "OUT.json", *every], {})
        found["document_unchecked"] = ("sendrecv", [*SIZES, "-c", "0", "-J", "OUT.json", *every], {})
    if "--per_iter_timing" in usage:
        found["per_iteration"] = ("all_reduce", [*SIZES, "-I", "1", "-J", "OUT.json", *every], {})
        found["per_iteration_text"] = ("all_reduce", [*SIZES, "-I", "1", "-S", "1", *every], {})
    return found


def main() -> None:
    """Records every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="the folder that holds all_reduce_perf")
    parser.add_argument("out", type=Path, help="where the logs go")
    parser.add_argument("--label", required=True, help="the version, first part of every file's name")
    parser.add_argument("--gpus", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    usage = run(args.build / "all_reduce_perf", ["--help"], {})[1]
    index = args.out / "runs.json"
    runs: dict[str, Any] = json.loads(index.read_text()) if index.exists() else {}
    for case, (program, argv, env) in cases(usage, args.gpus).items():
        path = args.build / f"{program}_perf"
        if path.exists():
            runs[f"{args.label}-{case}"] = record(path, argv, env, args.out / f"{args.label}-{case}")
    index.write_text(json.dumps(runs, indent=1, sort_keys=True) + "\n")


def record(path: Path, argv: list[str], env: dict[str, str], target: Path) -> dict[str, Any]:
    """One case into its files; what ``runs.json`` says of it."""
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "OUT.json"
        status, text = run(path, [str(document) if word == "OUT.json" else word for word in argv], env)
        target.with_name(f"{target.name}.log").write_text(scrubbed(text, path, folder))
        if document.exists():
            target.with_name(f"{target.name}.json").write_text(
                without_environment(scrubbed(document.read_text(), path, folder))
            )
    return {"program": path.name, "argv": argv, "status": status}


def run(path: Path, argv: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Exit status (124: took too long) and both streams in the order in which they came."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith("NCCL_")}
    try:
        done = subprocess.run(
            [path, *argv],
            env=QUIET | kept | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as late:
        return 124, (late.output or b"").decode(errors="replace")
    return done.returncode, done.stdout


def scrubbed(text: str, path: Path, folder: str) -> str:
    """Without what names the machine."""
    text = text.replace(folder, "/tmp").replace(str(path.parent), "/opt/nccl-tests/build")
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host0", text)
    text = re.sub(r"/\S*?/(lib[^/\s]*\.so[.\d]*)", r"/usr/lib/\1", text)
    return re.sub(r"\b(?!127\.)\d+\.\d+\.\d+\.\d+<", "192.0.2.1<", text)


def without_environment(text: str) -> str:
    """The document with an empty list where the program wrote its environment."""
    return re.sub(r'"env":\[.*?\](?=,"nccl_version")', '"env":[]', text, flags=re.DOTALL)


if __name__ == "__main__":
    main()
