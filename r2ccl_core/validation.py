"""Translates pydantic's findings about a value into the words of the person who wrote it."""

from pydantic_core import ErrorDetails

_WORDS = {
    "missing": "is missing; add it",
    "string_pattern_mismatch": "use lower-case letters, digits and '_' only",
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number without quotes",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number without quotes",
    "int_parsing_size": "is too large",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "mapping_type": "must be a table",
    "union_tag_not_found": "must be a table",
    "tuple_type": "must be a list in brackets",
    "list_type": "must be a list in brackets",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "too_short": "needs at least {min_length} entry",
    "string_too_long": "must have at most {max_length} characters",
}


LIMITS = ("greater_than", "greater_than_equal", "less_than_equal", "less_than")
"""The types of findings that name a limit, in the unit of the value that was read."""


def in_our_words(detail: ErrorDetails) -> str:
    """What is wrong, without the value itself: ``must be at least 1``. A validator's own message stays unchanged."""
    limits = {name: f"{v:.15g}" if isinstance(v, float) else v for name, v in detail.get("ctx", {}).items()}
    ours = _WORDS.get(detail["type"], "").format(**limits)
    return ours or detail["msg"].removeprefix("Value error, ")
