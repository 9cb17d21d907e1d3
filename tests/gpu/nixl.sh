#!/bin/sh
# NIXL over this core and over UCX, on a machine that reaches no network (tests/native/nixl_compare.py).
#
#     sh tests/gpu/nixl.sh pack KIT [PYTHON]     where packages can be fetched; PYTHON: the version there (3.12)
#     sh tests/gpu/nixl.sh run KIT ...           as root, from a checkout; the rest is for nixl_compare.py
#
# `pack` adds NIXL's wheel, without its kernels for GPUs, to a kit of kit.sh, 34 MB in all. `run` changes the machine's
# Python and /usr: for one that is thrown away.
set -eu
[ $# -ge 2 ] || { echo "nixl: usage: nixl.sh pack|run KIT ..." >&2; exit 2; }
do=$1 kit=$2
shift 2
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $do in
pack)
    python=${1:-3.12}
    sh "$here/kit.sh" "$kit" "$python"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --implementation cp \
        --python-version "$python" --platform manylinux_2_28_x86_64 --dest "$work" nixl-cu12==1.5.1
    python3 -m zipfile -e "$work"/nixl_cu12-*.whl "$work/site"
    rm -r "$work"/site/nixl_ep_cu12
    tar -C "$work/site" -cJf "$kit/nixl.tar.xz" .
    du -sm "$kit" >&2
    ;;
run)
    sh "$here/prepare.sh" "$kit"
    python3 -m tarfile -e "$kit/nixl.tar.xz" "$work"  # which needs no xz
    export PYTHONPATH="$work${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
    python3 "$here/../native/nixl_compare.py" "$@"
    ;;
*)
    echo "nixl: '$do' is neither pack nor run" >&2
    exit 2
    ;;
esac
