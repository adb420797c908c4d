"""Whether something is a JSON schema: every keyword of draft 2020-12 that is known here has a value of its kind.

Unknown keywords are left alone, as the specification says (https://json-schema.org/draft/2020-12); `items` and
`definitions` may be as earlier drafts have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}
MOST_NESTED = 32
"""Deepest schema that is read; templates write it recursively."""

ONE_SCHEMA = {
    *("items", "contains", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "propertyNames"),
    *("additionalItems", "not", "if", "then", "else", "contentSchema"),
}
SCHEMAS_IN_ORDER = {"anyOf", "oneOf", "allOf", "prefixItems"}
SCHEMAS_BY_NAME = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}


def schema_fault(schema: object, depth: int = 0) -> str:
    """Say why something is no JSON schema, or nothing."""
    if isinstance(schema, bool) and depth:
        return ""
    if not isinstance(schema, Mapping):
        return f"{type(schema).__name__} where a schema should be"
    if depth > MOST_NESTED:
        return f"more than {MOST_NESTED} schemas inside each other"
    for name, (kind, good) in KINDS.items():
        if name in schema and not good(schema[name]):
            return f"{name} is {schema[name]!r:.60}, not {kind}"
    return next((reason for part in _inner(schema) if (reason := schema_fault(part, depth + 1))), "")


def _inner(schema: Mapping[str, Any]) -> Iterator[object]:
    """Yield the schemas directly inside one."""
    for name, value in schema.items():
        if name in SCHEMAS_BY_NAME:
            yield from value.values()
        elif name in SCHEMAS_IN_ORDER or (name == "items" and isinstance(value, list)):
            yield from value
        elif name in ONE_SCHEMA:
            yield value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_type(value: Any) -> bool:
    kinds = [value] if isinstance(value, str) else value
    return _are_names(kinds) and bool(kinds) and set(kinds) <= TYPES


Kind = tuple[str, Callable[[Any], bool]]
_TEXT: Kind = ("a text", lambda value: isinstance(value, str))
_COUNT: Kind = ("a whole number >= 0", _is_count)
_NUMBER: Kind = ("a number", _is_number)
_FLAG: Kind = ("true or false", lambda value: isinstance(value, bool))
_LIST: Kind = ("a list", lambda value: isinstance(value, list))

KINDS: dict[str, Kind] = {
    "type": (f"one or some of {', '.join(sorted(TYPES))}", _is_type),
    "required": ("a list of names", _are_names),
    "dependentRequired": (
        "an object of lists of names",
        lambda value: isinstance(value, Mapping) and all(map(_are_names, value.values())),
    ),
    "multipleOf": ("a number > 0", lambda value: _is_number(value) and value > 0),
    **dict.fromkeys(("enum", "examples"), _LIST),
    **dict.fromkeys(("title", "description", "format", "pattern", "$ref", "$id", "$schema", "$comment"), _TEXT),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(("minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _FLAG),
    **dict.fromkeys(SCHEMAS_BY_NAME, ("an object of schemas", lambda value: isinstance(value, Mapping))),
    **dict.fromkeys(SCHEMAS_IN_ORDER, ("a list of schemas", lambda value: isinstance(value, list) and bool(value))),
}
"""What each keyword's own value must be; schemas inside it are looked at in turn."""
