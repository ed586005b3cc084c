"""mx-serve: keep models in memory and answer over HTTP. Has flags and messages only."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from ..commands.flags import CommonFlags, FlagCommand, flag
from ..errors import MxError

model_flag = partial(flag, group="Model")
network_flag = partial(flag, group="Network")
limit_flag = partial(flag, group="Limits")

HELP = """Keep models in memory and align what is asked over HTTP, and serve a web app to try them
and to correct links by hand. Without -m and --langs, all installed models are served.

\b
Examples:
  mx-serve                                          # then open http://127.0.0.1:8017
  mx-serve --langs de-en -m run/fi-hu.mx
  curl -d '{"src": "das Haus", "tgt": "the house", "langs": "de-en"}' \\
    -H 'Content-Type: application/json' http://127.0.0.1:8017/align
"""
TOKEN_VARIABLE = "MX_SERVE_TOKEN"
INSTALL = 'pip install "mx-align[serve]"'


@dataclass(frozen=True)
class ServeFlags(CommonFlags):
    """The flags of mx-serve."""

    model: tuple[str, ...] = model_flag(
        (), "Serve this model instead of the installed ones; several times: each.", short="-m",
        metavar="BUNDLE",
    )  # fmt: skip
    langs: tuple[str, ...] = model_flag(
        (), "Only for these languages, like de-en; several times: each.", metavar="SRC-TGT"
    )
    statistics: tuple[str, ...] = model_flag(
        (), "Also statistics of these languages that mx-seed --save kept; several times: each.",
        metavar="SRC-TGT=FILE",
    )  # fmt: skip
    backend: str = model_flag("auto", "What runs the models: cpu, cuda, trt, trt-rtx or auto.")
    host: str = network_flag(
        "127.0.0.1", "Listen here; other than this machine only with a token.", metavar="ADDRESS"
    )
    port: int = network_flag(8017, "Port; 0 for any free one.", minimum=0, maximum=65535)
    token_file: str | None = network_flag(
        None, f"Who asks must send the token in this file [default: that in {TOKEN_VARIABLE}].",
        metavar="FILE",
    )  # fmt: skip
    threads: int | None = limit_flag(
        None, "Requests that are computed at once [default: all cores].", minimum=1
    )
    max_body: int = limit_flag(8, "Megabytes of a request.", minimum=1, maximum=1024)
    max_pairs: int = limit_flag(1000, "Pairs of a JSON body.", minimum=1)
    max_waiting: int = limit_flag(64, "Requests that wait for a thread.", minimum=0)
    timeout: int = limit_flag(30, "Seconds to send a body and to wait for a thread.", minimum=1)


def run_serve(flags: ServeFlags) -> None:
    """Load the server and run it until it is told to stop."""
    token = read_token(flags.token_file)
    local = is_loopback(flags.host)
    if not local and token is None:
        raise MxError(
            f"{flags.host} can be reached from other machines: set {TOKEN_VARIABLE} or give "
            "--token-file, so that only those who know the token may ask"
        )
    try:
        from .server import make_server
    except ModuleNotFoundError as error:
        if error.name not in ("uvicorn", "starlette"):
            raise
        raise MxError(f"mx-serve needs {error.name}, which is not installed: {INSTALL}") from None
    from ..runtime.backends import count_cores
    from .app import Service
    from .limits import Limits
    from .models import ServedModels

    threads = flags.threads or count_cores()
    # Each request is computed by one thread; so all that are answered at once keep all cores busy.
    models = ServedModels(flags.model, flags.langs, threads, flags.backend, flags.statistics)
    limits = Limits(
        body_bytes=flags.max_body << 20, pairs=flags.max_pairs, seconds=flags.timeout,
        waiting=flags.max_waiting,
    )  # fmt: skip
    service = Service(models, threads, limits, token, local and token is None)

    def say_where(port: int) -> None:
        if not flags.quiet:
            shown = f"[{flags.host}]" if ":" in flags.host else flags.host
            click.echo(f"mx-serve: http://{shown}:{port} aligns {models.tell_pairs()}", err=True)

    try:
        make_server(service, flags.host, flags.port, say_where).run()
    except SystemExit:  # uvicorn has found the port taken
        raise MxError(
            f"cannot listen on {flags.host} port {flags.port}: it is taken, or not this machine's; "
            "give another --port, or 0 for any free one"
        ) from None


def read_token(path: str | None) -> str | None:
    """Return the token of a file or of the environment, None if there is none."""
    if path is None:
        token = os.environ.get(TOKEN_VARIABLE)
        where = TOKEN_VARIABLE
    else:
        where = path
        try:
            token = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MxError(f"cannot read the token in {path}: {error}") from None
    if token is None:
        return None
    token = token.strip()
    if len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token:
        raise MxError(
            f"the token in {where} must be 8 or more ASCII characters without spaces; make one "
            'with `python -c "import secrets; print(secrets.token_urlsafe())"`'
        )
    return token


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


main = FlagCommand("mx-serve", ServeFlags, run_serve, help=HELP)

if __name__ == "__main__":
    main(prog_name="mx-serve")
