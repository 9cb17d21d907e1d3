"""Builds what takes the place of a GPU and of GDRCopy in tests of the net plugin, and the program that drives it."""

from __future__ import annotations

from pathlib import Path

from plugin_build import BUILDS, COMPILERS, SANITIZER, SOURCE, build_program, must, one_at_a_time

PROGRAM = ("plugin_gpu.c", "plugin_peer.c", "plugin_tables.c")


def build_stand_in(flavour: str = "plain") -> tuple[Path, dict[str, str]]:
    """The program, and the environment in which the plugin finds the stand-in and takes GPU memory."""
    program = build_program(flavour, *PROGRAM)
    library = BUILDS / flavour / "stand-in" / "libgdrapi.so.2"
    library.parent.mkdir(parents=True, exist_ok=True)
    sanitize = [f"-fsanitize={SANITIZER[flavour]}"] if SANITIZER[flavour] else []
    source = SOURCE / "tests" / "gdrapi_stand_in.c"
    flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-shared", "-fPIC", *sanitize)
    with one_at_a_time():
        must(COMPILERS[flavour][0], *flags, source, "-o", library)
    return program, {"LD_LIBRARY_PATH": str(library.parent), "R2CC_GDR": "1"}
