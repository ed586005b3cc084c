"""Describes the API as OpenAPI 3.1: what each address takes and gives."""

from __future__ import annotations

from typing import Any

from ..json_pairs.answers import MAX_SOFT_CELLS, OFFSETS, TOKENS
from ..json_pairs.projection import POLICIES
from ..json_pairs.requests import MAX_CHARS
from ..version import __version__
from .limits import Limits
from .models import METHODS

Schema = dict[str, Any]


def _list_of(items: Schema, text: str = "") -> Schema:
    return {"type": "array", "items": items, **({"description": text} if text else {})}


_SCORE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_PLACES: Schema = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
_SPANS = _list_of(_PLACES, "Start and end of each word in the text.")
_SENTENCE: Schema = {
    "oneOf": [
        {"type": "string", "maxLength": MAX_CHARS, "description": "A line, read as `tokens` says."},
        _list_of({"type": "string", "minLength": 1}, "Its words, which are taken as they are."),
    ]
}
_PAIR: Schema = {
    "type": "object",
    "required": ["src", "tgt"],
    "properties": {
        "id": {"description": "Any value; comes back."},
        "src": _SENTENCE,
        "tgt": _SENTENCE,
    },
}
_OPTIONS: Schema = {
    "langs": {
        "type": "string",
        "description": "Source and target, like de-en or German-English; else the first there is.",
    },
    "method": {
        "enum": list(METHODS),
        "default": METHODS[0],
        "description": "auto takes a model and statistics, as far as they are there.",
    },
    "tokens": {
        "enum": list(TOKENS),
        "default": TOKENS[0],
        "description": "What links count in lines: raw: our own words; others: what stands between "
        "spaces, written so.",
    },
    "offsets": {
        "enum": list(OFFSETS),
        "default": OFFSETS[0],
        "description": "What spans count: characters of Python, of JavaScript and Java, or bytes.",
    },
    "threshold": {**_SCORE, "description": "The lowest score of a link; else the model's own."},
    "soft": {
        "type": "boolean",
        "default": False,
        "description": f"All scores as well, of up to {MAX_SOFT_CELLS:,} pairs of words.",
    },
}
_MATRIX = _list_of(_list_of(_SCORE))
_ANSWER: Schema = {
    "type": "object",
    "required": ["src", "tgt", "links", "scores", "score", "src_null", "tgt_null"],
    "properties": {
        "id": {},
        "src": _list_of({"type": "string"}, "Source words, which links count from 0."),
        "tgt": _list_of({"type": "string"}),
        "links": _list_of(_PLACES, "The source and the target word of each."),
        "scores": _list_of(_SCORE, "Of each link."),
        "probabilities": _list_of(_SCORE, "How often links of such a score are right."),
        "score": _SCORE,
        "src_null": _list_of(_SCORE, "The probability that a word has no partner."),
        "tgt_null": _list_of(_SCORE),
        "src_text": {"type": "string"},
        "tgt_text": {"type": "string"},
        "src_spans": _SPANS,
        "tgt_spans": _SPANS,
        "soft": {
            "type": "object",
            "properties": {
                "src": _list_of({"type": "string"}),
                "tgt": _list_of({"type": "string"}),
                "scores": _MATRIX, "fwd": _MATRIX, "bwd": _MATRIX,
                "src_null": _list_of(_SCORE), "tgt_null": _list_of(_SCORE),
            },
        },
    },
}  # fmt: skip
_LABELS = _list_of({"type": "array", "minItems": 3, "maxItems": 3}, "[start, end, name] each.")
_LINE: Schema = {"type": "string", "maxLength": MAX_CHARS}
_PROJECTED: Schema = {
    "type": "object", "required": ["src", "tgt"],
    "properties": {"id": {}, "src": _LINE, "tgt": _LINE, "labels": _LABELS},
}  # fmt: skip
_CARRIED: Schema = {
    "type": "object", "required": ["tgt", "unplaced"],
    "properties": {
        "id": {}, "tgt": {"type": "string"}, "labels": _LABELS,
        "unplaced": _list_of({"type": "string"}, "What the links give no place."),
    },
}  # fmt: skip
_ERROR: Schema = {
    "type": "object", "required": ["error"],
    "properties": {"error": {"type": "string"}, "id": {}},
}  # fmt: skip
_ERRORS = {
    "400": "The request is not what it should be; `error` says what is wrong.",
    "401": "The token is missing or wrong.",
    "403": "Asked from a page of another site, or by another name than localhost.",
    "408": "The body came too slowly.",
    "413": "More than is answered at once.",
    "415": "Neither JSON nor JSON lines.",
    "503": "Too much is being asked; `Retry-After` says when to try again.",
}


def describe_api(limits: Limits) -> Schema:
    """Return the description, as /openapi.json gives it."""
    one_or_more: Schema = {
        "type": "object",
        "properties": {
            **_OPTIONS, **_PAIR["properties"],
            "pairs": {**_list_of({"$ref": "#/components/schemas/Pair"}), "maxItems": limits.pairs},
        },
        "anyOf": [{"required": ["src", "tgt"]}, {"required": ["pairs"]}],
    }  # fmt: skip
    found: Schema = {
        "type": "object",
        "required": ["langs", "model", "results"],
        "properties": {
            "langs": {"type": "string"}, "method": {"type": "string"},
            "model": {"type": "string"},
            "threshold": {"type": ["number", "null"]}, "signature": {"type": "string"},
            "results": _list_of({"$ref": "#/components/schemas/Answer"}),
        },
    }  # fmt: skip
    align = _describe_post(
        "Align one pair, several, or JSON lines.", {"application/json": one_or_more},
        {"application/json": found},
    )  # fmt: skip
    lines = {"schema": {"type": "string", "description": "A Pair on each line."}}
    answers = {"schema": {"type": "string", "description": "An Answer or Error on each line."}}
    align["requestBody"]["content"]["application/x-ndjson"] = lines
    align["responses"]["200"]["content"]["application/x-ndjson"] = answers
    align["parameters"] = [
        {"name": name, "in": "query", "schema": schema, "description": "For JSON lines."}
        for name, schema in _OPTIONS.items()
    ]
    texts: Schema = {
        "type": "object", "required": ["texts"],
        "properties": {"texts": _list_of({"type": "string"}), "lang": {"type": "string"},
                       "offsets": _OPTIONS["offsets"]},
    }  # fmt: skip
    words: Schema = {
        "type": "object",
        "properties": {
            "results": _list_of(
                {
                    "type": "object",
                    "properties": {"words": _list_of({"type": "string"}), "spans": _SPANS},
                }
            )
        },
    }
    marked: Schema = {
        "type": "object", "required": ["pairs"],
        "properties": {
            "langs": _OPTIONS["langs"], "method": _OPTIONS["method"],
            "threshold": _OPTIONS["threshold"],
            "policy": {"enum": list(POLICIES), "default": POLICIES[0]},
            "escape": {"type": "boolean", "default": True},
            "pairs": _list_of(_PROJECTED, "With tags or placeholders in `src`, or with `labels`."),
        },
    }  # fmt: skip
    carried: Schema = {
        "type": "object", "properties": {"results": _list_of(_CARRIED)},
    }  # fmt: skip
    project = _describe_post(
        "Carry markup or labels over to the target.", {"application/json": marked},
        {"application/json": carried},
    )  # fmt: skip
    tokenize = _describe_post(
        "Split texts into words.", {"application/json": texts}, {"application/json": words}
    )
    gets = {
        "/health": "Whether the server is up.", "/models": "The models and their languages.",
        "/metrics": "Counters for Prometheus.",
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "mx-serve", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": {
            "/align": {"post": align},
            "/project": {"post": project},
            "/tokenize": {"post": tokenize},
            **{path: {"get": _describe_get(text)} for path, text in gets.items()},
        },
        "components": {
            "schemas": {"Pair": _PAIR, "Answer": _ANSWER, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_post(summary: str, takes: dict[str, Schema], gives: dict[str, Schema]) -> Schema:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "summary": summary,
        "requestBody": {
            "required": True,
            "content": {kind: {"schema": schema} for kind, schema in takes.items()},
        },
        "responses": {
            "200": {
                "description": "Answers, in the order of what was asked.",
                "content": {kind: {"schema": schema} for kind, schema in gives.items()},
            },
            **{code: {"description": text, "content": error} for code, text in _ERRORS.items()},
        },
    }  # fmt: skip


def _describe_get(summary: str) -> Schema:
    return {"summary": summary, "responses": {"200": {"description": summary}}}
