"""Parsing of queries and bodies, strictly by model and within limits."""

from __future__ import annotations

import json
import types
import typing
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from tidemill.rest.models import BodyModel, NoQuery
from tidemill.web.parsers import receive_body
from tidemill.web.problems import NO_NUL, Problem, of_validation
from tidemill.web.settings import ApiSettings


def read_query(model: type[NoQuery], request: Request) -> NoQuery:
    """Validate the query. Unknown parameters and repeated single values are refused."""
    if not request.scope["query_string"]:
        return _empty(model)
    given: dict[str, Any] = {}
    several = _lists(model)
    for name, value in request.query_params.multi_items():
        if name in several:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Problem(422, None, f"the query is invalid: {name[:100]}: given twice")
        else:
            given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise of_validation(error, "query") from None


@lru_cache(maxsize=256)
def _empty(model: type[NoQuery]) -> NoQuery:
    try:
        return model.model_validate({})
    except ValidationError as error:
        raise of_validation(error, "query") from None


@lru_cache(maxsize=256)
def _lists(model: type[NoQuery]) -> frozenset[str]:
    """Return the parameters that may be repeated."""
    return frozenset(name for name, field in model.model_fields.items() if _is_list(field.annotation))


def _is_list(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(_is_list(part) for part in typing.get_args(annotation))
    return annotation is list or typing.get_origin(annotation) is list


async def read_body(
    model: type[BodyModel], request: Request, settings: ApiSettings, *, optional: bool
) -> BodyModel:
    """Validate the JSON body."""
    raw = await receive_body(request, settings.max_body)
    if not raw:
        if not optional:
            raise Problem(422, None, "the body is missing; send a JSON object")
        raw = b"{}"
    else:
        _check_media(request.scope["tidemill.headers"])
    # Both checks parse the body a second time, so they run only for bodies that can fail them.
    if raw.count(b"[") + raw.count(b"{") > settings.max_depth:
        _check_depth(raw, settings.max_depth)
    if b"\\u0000" in raw:
        _check_text(raw)
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise of_validation(error, "body") from None


def refuse_body(request: Request) -> None:
    """Refuse a body on a route that takes none."""
    headers = request.scope["tidemill.headers"]
    if headers.get("content-length", "0").strip("0") or "transfer-encoding" in headers:
        raise Problem(422, None, "this route does not accept a body", headers={"connection": "close"})


def _check_media(headers: dict[str, str]) -> None:
    """Accept only JSON, which a page of another site cannot send without a CORS preflight."""
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise Problem(415, None, "send the body as application/json")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem(415, None, "send the body without a content-encoding")


def _check_text(raw: bytes) -> None:
    """Refuse NUL characters, which some stores cannot hold in text."""
    try:
        text = json.dumps(from_json(raw), ensure_ascii=False)
    except ValueError:
        # Invalid JSON: model validation reports it.
        return
    # An escaped backslash is written twice, so any remaining escape is a NUL.
    if "\\u0000" in text.replace("\\\\", ""):
        raise Problem(422, "bad_text", NO_NUL)


def _check_depth(raw: bytes, most: int) -> None:
    """Refuse deeply nested lists and objects before validating them."""
    too_deep = Problem(422, "too_deep", f"the body is nested deeper than {most} levels")
    try:
        level: list[Any] = [from_json(raw)]
    except ValueError as error:
        if "recursion" in str(error):
            raise too_deep from None
        # Invalid JSON: model validation reports it.
        return
    for _ in range(most + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(item for item in value.values() if isinstance(item, dict | list))
            elif isinstance(value, list):
                below.extend(item for item in value if isinstance(item, dict | list))
        if not below:
            return
        level = below
    raise too_deep
