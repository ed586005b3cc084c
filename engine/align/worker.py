"""A worker process: gets a function, then values, and answers with what it makes of each.

Started by `processes`. It ends when its input does, that is with its parent, however that ended.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from typing import IO, Any

from .processes import read_message, write_message


def serve_values(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Read a function and values; write a result, or an error, for each value."""
    # Read beside the computing: the parent must never wait until we are done before it can write.
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read_values() -> None:
        try:
            while True:
                waiting.put((read_message(requests),))
        except (EOFError, OSError):
            waiting.put(None)

    try:
        function, problem = read_message(requests), None
    except EOFError:
        return
    except Exception as error:  # as when the model has gone meanwhile
        function, problem = None, error
    threading.Thread(target=read_values, daemon=True).start()
    while (given := waiting.get()) is not None:
        try:
            answer = (None, problem) if problem else (function(*given), None)
        except Exception as error:
            answer = None, error
        write_message(answers, answer)


def main() -> None:
    """Talk through the standard streams; whatever else is printed goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(BrokenPipeError):  # the parent has gone
        serve_values(requests, answers)
    sys.stdout.flush()
    os._exit(0)  # a thread may still wait for input


if __name__ == "__main__":
    main()
