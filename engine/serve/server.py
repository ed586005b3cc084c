"""Runs the application on a port, and guards its connections against clients that hang.

The server library is uvicorn (with h11, in pure Python): 2 MB with all it needs, released every few
weeks, and it stops gracefully. It waits forever for a head that does not end and for an answer that
is not read; `GuardedProtocol` does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .app import Service, make_app

_HEAD_BYTES = 16 << 10  # of the head of a request
_KEEP_ALIVE = 15  # seconds between two requests
_CHECK = 10.0  # seconds in which a connection must get on
_STOP = 30  # seconds for what is being answered when the server stops


class GuardedProtocol(H11Protocol):
    """A connection that is closed if it does not get on."""

    check_seconds = _CHECK

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._seen: tuple[int, int] = (-1, 0)
        self._watch = self.loop.call_later(self.check_seconds, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Let a client that has said all get its answer; one that stops in between is gone."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _check(self) -> None:
        """Close the connection if nothing has changed: no new request, nothing more was read."""
        idle = self.cycle is None or self.cycle.response_complete
        left = self.transport.get_write_buffer_size()
        stuck = left > 0 and self._seen[1] == left
        if stuck or (idle and left == 0 and self._seen == (id(self.cycle), 0)):
            self.transport.abort()
            return
        self._seen = (id(self.cycle) if idle else -1, left)
        self._watch = self.loop.call_later(self.check_seconds, self._check)


@dataclass
class RunningServer:
    """The server, as others than its own thread see it."""

    server: uvicorn.Server
    on_start: Callable[[int], None]

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM, or until `stop`; then answer what has been asked."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        task = asyncio.create_task(self.server.serve())
        while not self.server.started and not task.done():
            await asyncio.sleep(0.01)
        if self.server.started:
            port = self.server.servers[0].sockets[0].getsockname()[1]
            self.on_start(port)
        await task

    def stop(self) -> None:
        """Take no more connections and end when all is answered."""
        self.server.should_exit = True


def make_server(
    service: Service, host: str, port: int, on_start: Callable[[int], None] = lambda port: None
) -> RunningServer:
    """Return a server that is ready to run; port 0 takes any free one."""
    # Of hostile requests there are many lines to write and nothing to do.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        make_app(service), host=host, port=port, http=GuardedProtocol, ws="none", lifespan="on",
        log_config=None, access_log=False, server_header=False, date_header=True,
        proxy_headers=False, timeout_keep_alive=_KEEP_ALIVE, timeout_graceful_shutdown=_STOP,
        h11_max_incomplete_event_size=_HEAD_BYTES, limit_concurrency=service.limits.connections,
        backlog=256,
    )  # fmt: skip
    return RunningServer(uvicorn.Server(config), on_start)
