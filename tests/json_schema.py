"""JSON checked against a schema, with the words of draft 2020-12 that the package's schemas use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = frozenset(
    "$schema $defs $ref title description type const enum anyOf minimum maximum properties required"
    " additionalProperties items minItems maxItems".split()
)


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "") -> list[str]:
    """Return what of a value is not as the schema says, each with its path.

    Raises ``ValueError`` for a word of the schema that is not known here.
    """
    if unknown := schema.keys() - _KNOWN:
        raise ValueError(f"{at}: {sorted(unknown)}")
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    if "anyOf" in schema:
        found = [problems(value, each, root, at) for each in schema["anyOf"]]
        return min(found, key=len)
    if not _has_type(value, schema.get("type", list(_TYPES))):
        return [f"{at}: {value!r} is no {schema['type']}"]
    return [*_of_value(value, schema, at), *_of_parts(value, schema, root, at)]


def _has_type(value: Any, named: str | list[str]) -> bool:
    names = [named] if isinstance(named, str) else named
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)


def _of_value(value: Any, schema: dict[str, Any], at: str) -> Iterator[str]:
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    size = len(value) if isinstance(value, list) else value
    least = schema.get("minItems" if isinstance(value, list) else "minimum")
    most = schema.get("maxItems" if isinstance(value, list) else "maximum")
    if value is not None and least is not None and size < least:
        yield f"{at}: {value!r} is below {least}"
    if value is not None and most is not None and size > most:
        yield f"{at}: {value!r} is above {most}"


def _of_parts(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> Iterator[str]:
    if isinstance(value, list) and "items" in schema:
        for number, each in enumerate(value):
            yield from problems(each, schema["items"], root, f"{at}[{number}]")
    if isinstance(value, dict):
        named, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        yield from (f"{at}: no {name}" for name in schema.get("required", ()) if name not in value)
        for name, each in value.items():
            known = named.get(name, others)
            if known is False:
                yield f"{at}: {name} is not in the schema"
            else:
                yield from problems(each, known, root, f"{at}.{name}")
