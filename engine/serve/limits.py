"""What a client may ask for at once, and who must wait: bodies, time, threads.

Does not know what is computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

Result = TypeVar("Result")


@dataclass(frozen=True)
class Limits:
    """How much, how long, how many."""

    body_bytes: int = 8 << 20
    pairs: int = 1000  # of one JSON body; JSON lines are limited by their bytes
    seconds: float = 30.0  # to send a body, and to wait for a thread
    waiting: int = 64  # requests that wait for a thread
    connections: int = 512


class RefusedError(Exception):
    """A request that is not answered as asked: an HTTP status, and one line about it."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the whole body, unless it is too large or comes too slowly."""
    size = request.headers.get("content-length", "0")
    too_large = RefusedError(
        413, f"the body is larger than {limits.body_bytes:,} bytes; send it in parts",
        connection="close",
    )  # fmt: skip
    if size.isdigit() and int(size) > limits.body_bytes:
        raise too_large
    parts: list[bytes] = []
    total = 0

    async def read_parts() -> None:
        nonlocal total
        async for part in request.stream():
            total += len(part)
            if total > limits.body_bytes:
                raise too_large
            parts.append(part)

    try:
        await asyncio.wait_for(read_parts(), limits.seconds)
    except asyncio.TimeoutError:
        raise RefusedError(
            408, f"the body did not come within {limits.seconds:g} s", connection="close"
        ) from None
    except ClientDisconnect:
        raise RefusedError(400, "the client went away before the end of the body") from None
    return b"".join(parts)


class WorkQueue:
    """The threads that compute; beyond so many waiting requests the next are sent away."""

    def __init__(self, threads: int, limits: Limits) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="align")
        self._threads, self._limits = threads, limits
        self.running = self.waiting = 0
        self._free = asyncio.Semaphore(threads)

    async def run(
        self, work: Callable[..., Result], *arguments: Any, patient: bool = False
    ) -> Result:
        """Return the result of work that is done in one of the threads.

        What was begun is `patient`: it waits as long as it must.
        """
        if self._free.locked() and not patient:
            if self.waiting >= self._limits.waiting:
                raise RefusedError(
                    503, "too many requests are waiting; try again", **{"retry-after": "1"}
                )
            self.waiting += 1
            try:
                await asyncio.wait_for(self._free.acquire(), self._limits.seconds)
            except asyncio.TimeoutError:
                raise RefusedError(
                    503, f"no thread was free within {self._limits.seconds:g} s; try again",
                    **{"retry-after": "5"},
                ) from None  # fmt: skip
            finally:
                self.waiting -= 1
        else:
            await self._free.acquire()
        self.running += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        # The client may go away, which ends the wait, but the thread is busy until it is done.
        future.add_done_callback(self._leave)
        return await asyncio.shield(future)

    def _leave(self, future: asyncio.Future[Any]) -> None:
        self.running -= 1
        self._free.release()
        if not future.cancelled():
            future.exception()  # which nobody may be there to hear of

    def close(self) -> None:
        """Wait for the threads."""
        self._pool.shutdown()
