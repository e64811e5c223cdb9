"""The JSON schema of a watched run's summary and its table for the reference, made from summary_record.py."""
import json
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from pymillrace.watcher import summary_record

TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema():
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "summary.json of a watched run",
            **schema_of(summary_record.Summary)}


def schema_of(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is Annotated:
        kind, about = get_args(kind)
        unit = {"unit": about.unit} if about.unit else {}
        return {"description": about.meaning, **unit, **schema_of(kind)}
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [schema_of(one) for one in get_args(kind) if one is not type(None)]
        nullable = ["null"] * (type(None) in get_args(kind))
        return {**kinds[0], "type": [*(one["type"] for one in kinds), *nullable]}
    if is_typeddict(kind):
        hints = get_type_hints(kind, vars(summary_record), include_extras=True)
        return {"type": "object", "required": [key for key in hints if key in kind.__required_keys__],
                "additionalProperties": False, "properties": {key: schema_of(one) for key, one in hints.items()}}
    if get_origin(kind) is list:
        return {"type": "array", "items": schema_of(get_args(kind)[0])}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": schema_of(get_args(kind)[1])}
    return {"type": TYPES[kind]}


def schema_text():
    """Returns the schema with a line per key."""
    whole = schema()
    properties = ",\n    ".join(f"{json.dumps(key)}: {json.dumps(one, ensure_ascii=False)}"
                                for key, one in whole.pop("properties").items())
    return f'{json.dumps(whole, indent=2)[:-2]},\n  "properties": {{\n    {properties}\n  }}\n}}\n'


def table():
    """Returns the table of the reference. Keys of an object that another row has already listed are left out."""
    listed = {}
    return "| key | unit | content |\n| --- | --- | --- |\n" + "".join(_rows(schema(), "", listed))


def _rows(one, path, listed):
    for key, of in one.get("properties", {}).items():
        if path == "loaders[]." and listed[""].get(key) == of:
            continue
        inner = of.get("items", of)
        inner = inner["additionalProperties"] if type(inner.get("additionalProperties")) is dict else inner
        properties = inner.get("properties")
        where = next((name for name, known in listed.items() if properties and known == properties), None)
        as_in = f" (keys as in `{where[:-1]}`)" if where else ""
        yield f"| `{path}{key}` | {of.get('unit', '')} | {of['description']}{as_in} |\n"
        if properties and where is None:
            name = f"{path}{key}" + "[]" * ("items" in of) + ".*" * (inner is not of.get("items", of)) + "."
            listed.setdefault(path, one["properties"])
            listed[name] = properties
            yield from _rows(inner, name, listed)


def problem(value, of, where="summary"):
    """Returns what contradicts the schema; None if nothing does."""
    kinds = of["type"] if isinstance(of["type"], list) else [of["type"]]
    is_kind = {"null": value is None, "boolean": type(value) is bool, "integer": type(value) is int,
               "number": type(value) in (int, float), "string": type(value) is str, "array": type(value) is list,
               "object": type(value) is dict}
    if not any(is_kind[kind] for kind in kinds):
        return f"{where} is not of type {kinds}"
    if type(value) is list:
        return next(filter(None, (problem(one, of["items"], f"{where}[]") for one in value)), None)
    if type(value) is not dict:
        return None
    missing = [key for key in of.get("required", ()) if key not in value]
    if missing:
        return f"{where} lacks {missing[0]}"
    for key, one in value.items():
        rule = of.get("properties", {}).get(key) or of["additionalProperties"]
        if rule is False:
            return f"{where}.{key} is not in the schema"
        if found := problem(one, rule, f"{where}.{key}"):
            return found
    return None
