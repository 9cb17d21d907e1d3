"""The copy of the transport that constants.py compiles: each constant is a variable, and nothing else changes."""

import re
from pathlib import Path

from constants import (
    DEFINITION,
    FOLDER,
    NO_CHOICE,
    TABLE,
    Constant,
    adjustable,
    changes,
    constants,
    known_rows,
    table,
    told,
)
from mutants import NATIVE


def test_every_constant_of_the_transport_becomes_a_variable_of_its_own() -> None:
    keys = [constant.key for constant in constants()]
    assert len(keys) == len(set(keys)) > 50
    texts = {file.name: adjustable(file.read_text(), file.name) for file in sorted((NATIVE / FOLDER).glob("*.*"))}
    made = [key for text in texts.values() for key in re.findall(r'Tuned<\w+>\("([^"]+)"', text)]
    assert made == keys
    left = {match["name"] for text in texts.values() for match in DEFINITION.finditer(text)}
    assert left <= NO_CHOICE


def test_no_constant_is_written_so_that_it_is_not_found() -> None:
    texts = [file.read_text() for file in sorted((NATIVE / FOLDER).glob("*.*"))]
    written = {name for text in texts for name in re.findall(r"\bconstexpr\b[^;()]*?\b(k[A-Z]\w*) *[={]", text)}
    assert written == {constant.name for constant in constants()} | NO_CHOICE


def test_the_table_has_each_constant_with_the_value_that_it_has() -> None:
    """If this fails: python tests/native/constants.py --repeats 1 --only NAME --write."""
    assert list(known_rows(TABLE)) == [(constant.key, constant.value) for constant in constants()]


def test_rows_of_constants_that_were_not_tried_stay_unless_their_value_changed(tmp_path: Path) -> None:
    one, two, three = Constant("kOne", "a.h", "1"), Constant("kTwo", "a.h", "2"), Constant("kOne", "b.h", "3")
    rows = {(c.key, c.value): f"| `{c.name}` | {c.value} | {c.file} | nothing | b +2 % |" for c in (one, two, three)}
    file = tmp_path / "TABLE.md"
    assert known_rows(file) == {}
    file.write_text(table([three, two, one], rows, {"b": 1.0}, 4, 1))
    assert known_rows(file) == rows
    assert [*known_rows(file)] == [("b.h:kOne", "3"), ("a.h:kTwo", "2"), ("a.h:kOne", "1")]
    changed = table([Constant("kTwo", "a.h", "7"), one], known_rows(file), {"b": 1.0}, 4, 1)
    assert rows["a.h:kOne", "1"] in changed
    assert "kTwo" not in changed
    assert rows["b.h:kOne", "3"] not in changed


def test_a_constant_keeps_its_scope_and_functions_are_no_constants_any_more() -> None:
    text = (
        "#ifndef A\n#define A\n#include <vector>\n"
        "constexpr int64_t kOut = 20 * kMillisecond;  // why\n"
        "class A {\n  static constexpr double kIn =\n      1.0 / 8;\n};\n"
        "constexpr int64_t Late(int64_t usual_ns) {\n  constexpr int64_t kHere = 3;\n  return kHere + usual_ns;\n}\n"
    )
    assert adjustable(text, "a.h") == (
        '#ifndef A\n#define A\n#include "failover/tuned.h"\n#include <vector>\n'
        'inline const int64_t kOut = r2ccl::Tuned<int64_t>("a.h:kOut", 20 * kMillisecond);  // why\n'
        'class A {\n  static inline const double kIn = r2ccl::Tuned<double>("a.h:kIn", 1.0 / 8);\n};\n'
        "inline int64_t Late(int64_t usual_ns) {\n"
        '  static const int64_t kHere = r2ccl::Tuned<int64_t>("a.h:kHere", 3);\n  return kHere + usual_ns;\n}\n'
    )
    assert adjustable("#include <vector>\nint a;\n", "b.h") == "#include <vector>\nint a;\n"


def test_changes_are_those_above_noise_and_what_does_not_end_comes_first() -> None:
    found = changes({"a": 100, "b": 100, "c": 100, "d": 100}, {"a": 100.9, "b": 90, "c": 104})
    assert told(found) == "d **did not end**, b -10 %, c +4 %"
    assert told([]) == "nothing"
