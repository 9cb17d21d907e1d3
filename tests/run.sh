#!/bin/sh
# Every check and every test that this machine can run; what cannot run here is named at the end with the reason.
# Called by harness/setup.sh, which makes the environment.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export PATH
ruff check --quiet .
ruff format --quiet --check .
find r2ccl_core/native -name '*.cc' -o -name '*.h' | xargs clang-format --dry-run --Werror
mypy
lint-imports --no-cache
# Half of the tests wait for timers and networks, so there are more workers than processors. `-n 0` in ARGUMENTS runs
# all in this one process.
workers=$((2 * $(nproc)))
exec pytest --numprocesses "$((workers < 12 ? workers : 12))" "$@"
