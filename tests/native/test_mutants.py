"""The mistakes that mutants.py plants: each can still be planted in the code, and the table says what found it."""

import re

from mutants import NATIVE, TABLE, known_rows
from planted import MUTANTS


def test_each_mutant_changes_one_place_of_the_code() -> None:
    counts = {mutant.name: (NATIVE / mutant.file).read_text().count(mutant.old) for mutant in MUTANTS}
    assert {name: count for name, count in counts.items() if count != 1} == {}
    assert len(counts) == len(MUTANTS)


def test_the_table_says_for_each_mutant_what_found_it() -> None:
    """If this fails: python tests/native/mutants.py --only NAME --write."""
    rows = known_rows(TABLE)
    assert list(rows) == [mutant.name for mutant in MUTANTS]
    for mutant in MUTANTS:
        _, name, what, file, found, *_ = (cell.strip() for cell in rows[mutant.name].split("|"))
        assert (name, what, file) == (f"`{mutant.name}`", mutant.what, mutant.file)
        assert re.match(r"\*\*survived|does not (apply|compile|link)", found) is None
