"""Numbers and truth in the models of files that people write: true is not a number, nor is 1 or "yes" true, although
Python and pydantic would accept them."""

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ValidationInfo, field_validator

_TRUTH = (bool, bool | None)


class Strict(BaseModel):
    """A model whose number fields refuse true and false, except fields with their own parser, and whose fields of truth
    refuse everything else."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[info.field_name or ""]
        if value is not None and not isinstance(value, bool) and field.annotation in _TRUTH:
            raise ValueError("must be true or false")
        if not isinstance(value, bool | list | tuple | dict):
            return value
        own = any(isinstance(one, BeforeValidator) for one in field.metadata)
        if not own and _is_truth_for_number(field.annotation, value):
            raise ValueError("must be a number, not true or false")
        return value


def _is_truth_for_number(annotation: Any, value: Any) -> bool:
    """Whether true or false is given where `annotation` has a number, including inside a list or a table."""
    if isinstance(value, bool):
        kinds = set(_kinds(annotation))
        return bool(kinds & {int, float}) and bool not in kinds
    origin, inner = get_origin(annotation), get_args(annotation)
    if isinstance(value, dict) and origin is dict:
        return any(_is_truth_for_number(inner[1], one) for one in value.values())
    if isinstance(value, list | tuple) and origin is tuple:
        return any(_is_truth_for_number(inner[0], one) for one in value)
    return False


def _kinds(annotation: Any) -> list[Any]:
    """Plain types that a value may have, through unions and choices; none if the field has its own parser."""
    if isinstance(annotation, type):
        return [annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return [] if any(isinstance(one, BeforeValidator) for one in inner[1:]) else _kinds(inner[0])
    if origin is Literal:
        return [type(one) for one in inner]
    return [kind for part in inner for kind in _kinds(part)] if origin in (Union, UnionType) else []
