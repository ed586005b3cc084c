"""mx-serve in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ...engine.serve.app import Service
from ...engine.serve.limits import Limits
from ...engine.serve.models import ServedModels
from ...engine.serve.server import make_server

LIMITS = Limits(body_bytes=200_000, pairs=5, seconds=1.0, waiting=1)


@contextmanager
def served(limits: Limits = LIMITS, token: str | None = None, **more) -> Iterator[int]:
    """Serve in a thread; give the port."""
    service = Service(ServedModels((), (), 2, "cpu", **more), 2, limits, token, token is None)
    found: list[int] = []
    started = threading.Event()

    def tell(port: int) -> None:
        found.append(port)
        started.set()

    running = make_server(service, "127.0.0.1", 0, tell)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        assert started.wait(20)
        yield found[0]
    finally:
        running.stop()
        thread.join(40)
        assert not thread.is_alive()
