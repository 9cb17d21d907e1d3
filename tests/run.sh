#!/bin/sh
# Every check and every test that this machine can run; what cannot run here is named at the end with the reason.
# Called by harness/setup.sh, which makes the environment.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export PATH
# Python starts some thousand times in here, and must not compile the same files each time.
unset PYTHONDONTWRITEBYTECODE

mypy & # for half a minute on one processor; what it finds is told at once, and counts at the end
types=$!
trap 'kill "$types" 2>/dev/null || true' EXIT
ruff check --quiet .
ruff format --quiet --check .
find r2ccl_core/native -name '*.cc' -o -name '*.h' | xargs clang-format --dry-run --Werror
lint-imports --no-cache
# Workers: tests/conftest.py says how many; `-n 0` in ARGUMENTS runs all in one process.
status=0
pytest -n auto "$@" || status=$?
if [ "$status" = 1 ]; then
    # Tests of real networks and processes can be wronged by those beside them. What failed is judged alone, and counts.
    echo "tests: what failed beside others runs once more, alone" >&2
    status=0
    pytest "$@" -n 0 --last-failed --last-failed-no-failures none || status=$?
fi
if ! wait "$types"; then
    echo "tests: mypy found mistakes, see above" >&2
    exit 1
fi
trap - EXIT
exit "$status"
