"""The API: what each address does. Links are found by `json_pairs`, limits are kept by `limits`."""

from __future__ import annotations

import hmac
import json
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ..bundle.languages import parse_language
from ..errors import InputError, MxError
from ..json_pairs.answers import OFFSETS, TOKENS, AnswerOptions, answer_pairs, split_sentences
from ..json_pairs.pipe import answer_lines
from ..json_pairs.projection import EXAMPLE, POLICIES, project_pairs
from ..json_pairs.requests import PairRequest, parse_json, parse_number, parse_pair
from ..version import __version__
from .limits import Limits, RefusedError, WorkQueue, read_body
from .metrics import Metrics
from .models import METHODS, FoundAligner, ServedModels, set_threshold
from .openapi import describe_api
from .web_app import build_app_page

if TYPE_CHECKING:
    from ..aligner import Aligner

# Names by which a browser on the same machine reaches a server on loopback. Another name in `Host`
# means that a foreign page had its own name lead here (DNS rebinding).
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_LINES = 64  # JSON lines that are aligned together: what others wait for at most
_KEYS = ("langs", "method", "tokens", "offsets", "soft", "threshold")
_OPEN = ("/", "/health", "/openapi.json")  # need no token: they tell nothing of anybody's text

Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class Service:
    """What all requests share."""

    models: ServedModels
    threads: int
    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    local: bool = True  # only this machine may reach it
    metrics: Metrics = field(default_factory=Metrics)
    work: WorkQueue = field(init=False)
    started: float = field(default_factory=time.time)


@dataclass(frozen=True)
class Question:
    """How pairs are to be aligned: the options of a request, checked."""

    found: FoundAligner
    options: AnswerOptions

    @property
    def aligner(self) -> Aligner:
        """What aligns."""
        return self.found.aligner

    @property
    def threshold(self) -> float | None:
        """The lowest score of a link."""
        combination = self.aligner.combination
        return self.aligner.rule.threshold if combination is None else combination.threshold

    def describe(self) -> dict[str, Any]:
        """Return what the answer says about all pairs."""
        return {
            "langs": self.found.langs,
            "method": self.found.method,
            "model": self.found.name,
            "threshold": self.threshold,
            "signature": self.aligner.signature(),
        }


def make_app(service: Service) -> Starlette:
    """Return the ASGI application."""

    @asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        service.work = WorkQueue(service.threads, service.limits)
        yield
        service.work.close()

    page = build_app_page(service.models.shown_pairs, TOKENS, service.models.methods)

    async def show_page(request: Request) -> Response:
        return HTMLResponse(page, headers={"x-frame-options": "DENY"})

    async def tell_health(request: Request) -> Response:
        seconds = round(time.time() - service.started, 1)
        return JSONResponse({"status": "ok", "version": __version__, "uptime_seconds": seconds})

    async def list_models(request: Request) -> Response:
        return JSONResponse({"models": service.models.describe()})

    async def show_metrics(request: Request) -> Response:
        work = service.work
        text = service.metrics.render(running=work.running, waiting=work.waiting)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def show_openapi(request: Request) -> Response:
        return JSONResponse(describe_api(service.limits))

    async def align(request: Request) -> Response:
        kind = _content_type(request)
        body = await read_body(request, service.limits)
        if kind == "application/x-ndjson":
            return await _answer_lines(service, dict(request.query_params), body)
        return _json_response(await service.work.run(_answer_body, service, body))

    async def project(request: Request) -> Response:
        _content_type(request)
        body = await read_body(request, service.limits)
        return _json_response(await service.work.run(_project_body, service, body))

    async def tokenize(request: Request) -> Response:
        _content_type(request)
        body = await read_body(request, service.limits)
        return _json_response(await service.work.run(_split_texts, body, service.limits))

    routes: list[tuple[str, str, Handler]] = [
        ("GET", "/", show_page), ("GET", "/health", tell_health), ("GET", "/models", list_models),
        ("GET", "/metrics", show_metrics), ("GET", "/openapi.json", show_openapi),
        ("POST", "/align", align), ("POST", "/tokenize", tokenize),
        ("POST", "/project", project),
    ]  # fmt: skip
    return Starlette(
        routes=[
            Route(path, _guard(service, path, handler), methods=[method])
            for method, path, handler in routes
        ],
        lifespan=live,
        exception_handlers={404: _tell_missing, 405: _tell_missing},
    )


# ---- who may ask ----


def _guard(service: Service, path: str, handler: Handler) -> Handler:
    """Return the handler with checks before it, errors told as JSON, and counted."""

    async def answer(request: Request) -> Response:
        start = time.perf_counter()
        try:
            _check_sender(service, request, path)
            response = await handler(request)
        except RefusedError as error:
            response = _tell_error(error.status, str(error), error.headers)
        except MxError as error:
            response = _tell_error(400, str(error))
        except Exception as error:
            traceback.print_exc()  # for whoever runs the server
            response = _tell_error(500, f"internal error, {type(error).__name__}")
        service.metrics.count_request(path, response.status_code, time.perf_counter() - start)
        return response

    return answer


def _check_sender(service: Service, request: Request, path: str) -> None:
    """Refuse pages of other sites, and who has not the token."""
    host = request.headers.get("host", "")
    if service.local and host.rpartition(":")[0] not in _LOCAL_NAMES and host not in _LOCAL_NAMES:
        raise RefusedError(403, f"this server answers to localhost only, not to {host!r}")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise RefusedError(403, "pages of other sites may not use this server")
    if service.token is None or path in _OPEN:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    same = hmac.compare_digest(given.strip().encode(), service.token.encode())
    if scheme.lower() != "bearer" or not same:
        raise RefusedError(
            401, "give the token: `Authorization: Bearer TOKEN`", **{"www-authenticate": "Bearer"}
        )


def _content_type(request: Request) -> str:
    """Return what the body is; forms of other sites can only send other things."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", "application/x-ndjson"):
        raise RefusedError(
            415,
            "send JSON with `Content-Type: application/json`, or JSON lines with "
            f"`application/x-ndjson`; found {kind!r}",
        )
    return kind


def _tell_error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)


async def _tell_missing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return _tell_error(
        status, f"there is no {request.method} {request.url.path}; /openapi.json has all addresses"
    )


def _json_response(text: str) -> Response:
    return Response(_encode_json(text), media_type="application/json")


def _encode_json(text: str) -> bytes:
    # Half of a surrogate pair in an id, which JSON may have and UTF-8 may not: written as \\ud800.
    return text.encode("utf-8", "backslashreplace")


# ---- what is asked ----


def _parse_align(service: Service, value: Any) -> tuple[Question, list[PairRequest]]:
    """Return how to align, and the pairs: one in the object itself, or several under `pairs`."""
    if not isinstance(value, dict):
        raise InputError('the body must be an object like {"src": "...", "tgt": "..."}')
    rows = value.get("pairs")
    known = {*_KEYS, *(("pairs",) if rows is not None else ("src", "tgt", "id"))}
    unknown = sorted(set(value) - known)
    if unknown:
        raise InputError(f"there is no {unknown[0]!r} here; there are {', '.join(sorted(known))}")
    if rows is None:
        rows = [{name: value[name] for name in ("src", "tgt", "id") if name in value}]
    if not isinstance(rows, list):
        raise InputError('"pairs" must be a list of objects')
    _check_count(service, rows)
    return _parse_question(service, value), [parse_pair(row) for row in rows]


def _parse_question(service: Service, value: dict[str, Any]) -> Question:
    """Check the options of a request."""
    langs = value.get("langs")
    if langs is not None and not isinstance(langs, str):
        raise InputError('"langs" must be a string like "de-en"')
    allowed: dict[str, Sequence[Any]] = {
        "method": METHODS, "tokens": TOKENS, "offsets": OFFSETS, "soft": (True, False),
    }  # fmt: skip
    for name, choices in allowed.items():
        if value.get(name, choices[0]) not in choices:
            shown = ", ".join(map(json.dumps, choices))
            raise InputError(f'"{name}" must be one of {shown}, not {value[name]!r}')
    found = service.models.get_aligner(langs, value.get("method", METHODS[0]))
    if value.get("threshold") is not None:
        threshold = parse_number(value["threshold"], "threshold", 0, 1)
        found = replace(found, aligner=set_threshold(found.aligner, threshold))
    if value.get("soft") and found.method == "statistics":
        raise InputError('"soft" is what a model says; leave it out with statistics')
    src, tgt = found.langs.split("-")
    options = AnswerOptions(
        tokens=value.get("tokens", "raw"), offsets=value.get("offsets", "codepoints"),
        soft=value.get("soft", False), languages=(src, tgt),
    )  # fmt: skip
    return Question(found, options)


async def _answer_lines(service: Service, query: dict[str, str], body: bytes) -> Response:
    """Answer JSON lines while they are aligned; options are in the query."""
    unknown = sorted(set(query) - set(_KEYS))
    if unknown:
        raise InputError(f"there is no {unknown[0]!r} here; there are {', '.join(_KEYS)}")
    values: dict[str, Any] = dict(query)
    if "soft" in query:
        values["soft"] = {"true": True, "false": False}.get(query["soft"], query["soft"])
    if "threshold" in query:
        try:
            values["threshold"] = float(query["threshold"])
        except ValueError:
            raise InputError(f'"threshold" must be a number, not {query["threshold"]!r}') from None
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    question = await service.work.run(_parse_question, service, values)

    async def answer_group(first: int, patient: bool) -> bytes:
        group = lines[first : first + _LINES]
        answers = await service.work.run(
            answer_lines, question.aligner, group, first + 1, question.options, patient=patient
        )
        service.metrics.count_pairs(len(group))
        return _encode_json("".join(f"{answer}\n" for answer in answers))

    # Only the first lines can be refused: after them the status has gone out.
    begin = await answer_group(0, patient=False)

    async def write_answers() -> AsyncIterator[bytes]:
        yield begin
        for first in range(_LINES, len(lines), _LINES):
            yield await answer_group(first, patient=True)

    return StreamingResponse(write_answers(), media_type="application/x-ndjson")


def _answer_body(service: Service, body: bytes) -> str:
    """Return the answer to a JSON body."""
    question, pairs = _parse_align(service, parse_json(body))
    answers = answer_pairs(question.aligner, pairs, question.options)
    service.metrics.count_pairs(len(pairs))
    about = json.dumps(question.describe())
    return f'{about[:-1]}, "results": [{", ".join(answers)}]}}'


def _project_body(service: Service, body: bytes) -> str:
    """Return labels or markup carried over."""
    value = parse_json(body)
    rows = value.get("pairs") if isinstance(value, dict) else None
    if not isinstance(rows, list):
        raise InputError(
            f'the body must be an object like {{"langs": "de-en", "pairs": [{EXAMPLE}]}}'
        )
    known = ("langs", "method", "pairs", "policy", "escape", "threshold")
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise InputError(f"there is no {unknown[0]!r} here; there are {', '.join(known)}")
    _check_count(service, rows)
    policy, escape = value.get("policy", POLICIES[0]), value.get("escape", True)
    if policy not in POLICIES or not isinstance(escape, bool):
        raise InputError(f'"policy" must be one of {", ".join(POLICIES)}, "escape" true or false')
    options = {name: value[name] for name in ("langs", "method", "threshold") if name in value}
    question = _parse_question(service, options)
    answers = project_pairs(question.aligner, rows, policy, escape)
    service.metrics.count_pairs(len(rows))
    return json.dumps({**question.describe(), "results": answers}, ensure_ascii=False)


def _check_count(service: Service, rows: Sequence[Any]) -> None:
    if len(rows) > service.limits.pairs:
        raise RefusedError(
            413,
            f"{len(rows):,} pairs, more than {service.limits.pairs:,} in one body; send JSON lines",
        )


def _split_texts(body: bytes, limits: Limits) -> str:
    """Return words and spans of texts."""
    value = parse_json(body)
    texts: Sequence[str] = value.get("texts", ()) if isinstance(value, dict) else ()
    if not texts or not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
        raise InputError('the body must be an object like {"texts": ["das Haus."], "lang": "de"}')
    if len(texts) > limits.pairs:
        raise RefusedError(413, f"{len(texts):,} texts, more than {limits.pairs:,}; send fewer")
    offsets, lang = value.get("offsets", OFFSETS[0]), value.get("lang")
    if offsets not in OFFSETS:
        raise InputError(f'"offsets" must be one of {", ".join(OFFSETS)}, not {offsets!r}')
    language = parse_language(str(lang)) if lang is not None else None
    rows = split_sentences(texts, language, offsets)
    return json.dumps({"results": rows}, ensure_ascii=False)
