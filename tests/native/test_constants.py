"""The copy of the transport that constants.py compiles: each constant is a variable, and nothing else changes."""

import re

from constants import DEFINITION, FOLDER, NO_CHOICE, adjustable, changes, constants, told
from mutants import NATIVE


def test_every_constant_of_the_transport_becomes_a_variable_of_its_own() -> None:
    keys = [constant.key for constant in constants()]
    assert len(keys) == len(set(keys)) > 50
    texts = {file.name: adjustable(file.read_text(), file.name) for file in sorted((NATIVE / FOLDER).glob("*.*"))}
    made = [key for text in texts.values() for key in re.findall(r'Tuned<\w+>\("([^"]+)"', text)]
    assert made == keys
    left = {match["name"] for text in texts.values() for match in DEFINITION.finditer(text)}
    assert left <= NO_CHOICE


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
