#!/bin/sh
# Makes this checkout ready to run: the Debian packages that are missing, a virtual environment in .venv, and
# this project in it. What is there already is left alone, so a second call takes a moment.
#
#     sh harness/setup.sh run ARGUMENTS...    then `harness ARGUMENTS...`
#     sh harness/setup.sh test ARGUMENTS...   then every check and test; ARGUMENTS go to pytest
set -eu
cd "$(dirname "$0")/.."
case "${1-}" in
run | test) ;;
*)
    echo "setup.sh: say run or test first, such as: sh harness/setup.sh run sweep experiments/smoke.toml" >&2
    exit 2
    ;;
esac
say() { echo "setup: $*" >&2; }

missing=""
only_tests="" # those of them that only tests use, which are installed beside the compiler
need() { # need PACKAGE CONDITION...: adds PACKAGE unless the condition holds
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
test_needs() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || only_tests="$only_tests $package"
}
python_header() { python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'; }
need python3 command -v python3
need python3-venv python3 -c 'import ensurepip, venv'
need python3-dev python_header
need g++ command -v g++
need git command -v git
need iproute2 command -v ip
need openssh-server test -x /usr/sbin/sshd
if [ "$1" = test ]; then
    need cmake command -v cmake
    need make command -v make
    test_needs clang command -v clang++
    test_needs libgtest-dev test -e /usr/include/gtest/gtest.h
    test_needs libgmock-dev test -e /usr/include/gmock/gmock.h
    test_needs chromium command -v chromium
    test_needs pypy3 command -v pypy3
    test_needs openmpi-bin command -v mpirun.openmpi
    test_needs libopenmpi-dev sh -c 'ls /usr/lib/*/openmpi/include/mpi.h'
    test_needs mpich command -v mpiexec.mpich
    test_needs libmpich-dev sh -c 'ls /usr/include/*/mpich/mpi.h'
fi
case " $* " in
*" vms "* | *=vms* | *kernels.toml* | *restarts.toml* | *verbs.toml* | *verbs_bandwidth.toml*) need qemu-system-x86 command -v qemu-system-x86_64 ;; # only where it is asked for
esac
case " $* " in
*" vms "* | *verbs_bandwidth.toml*) need perftest command -v ib_write_bw ;;
esac
case " $* " in
*" vms "*) need mmdebstrap command -v mmdebstrap ;;
esac
packages() {
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}
if [ -n "$missing$only_tests" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "these packages are missing and only root can install them: apt-get install$missing$only_tests" >&2
        exit 2
    fi
    apt-get update -qq
    # shellcheck disable=SC2086  # lists of words
    [ -z "$missing" ] || packages $missing
fi
installing=""
building=""
trap '[ -z "$building" ] || kill "$building" 2>/dev/null; wait' EXIT # no package is left half installed
if [ -n "$only_tests" ]; then # beside all that follows, since nothing before the tests uses them
    # shellcheck disable=SC2086  # a list of words
    packages $only_tests &
    installing=$!
fi

recent() { # recent PYTHON REMEDY: refuses one that is too old, before anything is made with it
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && return
    echo "setup.sh: $1 is $("$1" -V 2>&1), and this needs Python 3.11 or later; $2" >&2
    exit 2
}
if [ -x .venv/bin/python ]; then
    recent .venv/bin/python "remove .venv, which was made with it"
else
    recent python3 "put a later one first on the PATH"
    python3 -m venv .venv
fi
extras=""
[ "$1" = test ] && extras="[dev]"
# Python compiles the few files of PyTorch and of other tools that the tests import; all of them take 25 s.
later=$([ "$1" = run ] || echo "--no-compile")
stamp=".venv/.installed$extras"
torch=.venv/.asked-for-torch # only a build for processors, which is small; where there is none, its tests are skipped
install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-warn-conflicts $later "$@"; }
needed() { # needed EXTRA...: what this project and its extras need, one requirement a line
    .venv/bin/python - "$@" <<'END'
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
print(*project["dependencies"], *sum((project["optional-dependencies"][extra] for extra in sys.argv[1:]), []), sep="\n")
END
}
if [ ! -e "$stamp" ] || [ -n "$(find pyproject.toml r2ccl_core/native -newer "$stamp" -print -quit)" ]; then
    say "building and installing into .venv (about a minute)"
    # Where tests are asked for, a compiler's warning is an error; elsewhere the compiler may be newer than the code.
    strict=$([ "$1" = run ] || echo "--config-settings=cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON")
    # Beside the compiler, since unpacking packages keeps one processor busy for as long.
    # shellcheck disable=SC2086  # words or none
    install $strict --no-deps --editable . &
    building=$!
    # shellcheck disable=SC2046  # words or none
    needed $([ "$1" = run ] || echo dev) | install --requirement /dev/stdin
fi
if [ "$1" = test ] && [ ! -e "$torch" ]; then
    say "PyTorch for processors"
    install "torch==2.13.0+cpu" 2>/dev/null ||
        say "the package index has none: tests that need PyTorch are skipped"
    touch "$torch"
fi
if [ -n "$building" ]; then
    wait "$building"
    touch "$stamp"
fi
[ -z "$installing" ] || wait "$installing"
trap - EXIT

command=$1
shift
case $command in
run) exec .venv/bin/harness "$@" ;;
test) exec sh tests/run.sh "$@" ;;
esac
