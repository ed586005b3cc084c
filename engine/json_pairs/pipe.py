"""Answer a stream of JSON lines, each as soon as it can be: `mx-align --input-format jsonl`.

Whatever has arrived is aligned together, so that one line is answered at once and a full pipe is
fast; the answers are the same. A line that cannot be read gets an answer that says why, and the
others keep their places.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import InputError
from .answers import AnswerOptions, answer_pairs
from .requests import PairRequest, parse_json, parse_pair

if TYPE_CHECKING:
    from ..aligner import Aligner

# Lines aligned together at most: enough to fill batches, few enough to share among threads.
MAX_LINES = 512
# Bytes of a line; a pair of the longest sentences fits, escaped.
MAX_LINE = 2_000_000
_END = None
_ERROR = '{"error": '


def answer_stream(
    aligner: Aligner, lines: BinaryIO, output: BinaryIO, options: AnswerOptions, threads: int
) -> tuple[int, int]:
    """Write an answer for each line, in order; return how many lines and errors there were."""
    writer = _AnswerWriter(output, 2 * threads)
    n_lines = 0
    with ThreadPoolExecutor(threads) as pool:
        for group in _group_lines(lines):
            writer.add(pool.submit(answer_lines, aligner, group, n_lines + 1, options))
            n_lines += len(group)
        n_errors = writer.finish()
    return n_lines, n_errors


class _AnswerWriter:
    """Writes answers in the order of their lines, in a thread: another one waits for lines."""

    def __init__(self, output: BinaryIO, size: int) -> None:
        self._output = output
        self._answers: queue.Queue[Future[list[str]] | None] = queue.Queue(size)
        self._errors = 0
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._write_answers, daemon=True)
        self._thread.start()

    def add(self, answers: Future[list[str]]) -> None:
        """Take the next answers, which may not be there yet; wait if there are too many."""
        self._answers.put(answers)
        self._check()

    def finish(self) -> int:
        """Wait until all is written; return how many answers are errors."""
        self._answers.put(_END)
        self._thread.join()
        self._check()
        return self._errors

    def _check(self) -> None:
        if self._problem is not None:
            raise self._problem

    def _write_answers(self) -> None:
        while (answers := self._answers.get()) is not _END:
            if self._problem is not None:
                continue  # nobody must wait for room in the queue
            try:
                found = answers.result()
                self._errors += sum(answer.startswith(_ERROR) for answer in found)
                text = "".join(f"{answer}\n" for answer in found)
                self._output.write(text.encode("utf-8", "backslashreplace"))
                self._output.flush()
            except BaseException as problem:
                self._problem = problem


def _group_lines(lines: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines that have come by now, as soon as there is one."""
    arrived: queue.Queue[bytes | None] = queue.Queue(2 * MAX_LINES)
    # A line may never come, while the command must end: its thread is not waited for.
    threading.Thread(target=_read_lines, args=(lines, arrived), daemon=True).start()
    while (line := arrived.get()) is not _END:
        group = [line]
        while len(group) < MAX_LINES and not arrived.empty():
            line = arrived.get()
            if line is _END:
                yield group
                return
            group.append(line)
        yield group


def _read_lines(lines: BinaryIO, arrived: queue.Queue[bytes | None]) -> None:
    """Read lines until there are none; of one that is too long only the start is kept."""
    try:
        while line := lines.readline(MAX_LINE + 1):
            end = line
            while len(end) >= MAX_LINE and not end.endswith(b"\n"):
                end = lines.readline(MAX_LINE)
            arrived.put(line)
    finally:
        arrived.put(_END)


def answer_lines(
    aligner: Aligner, lines: list[bytes], first: int, options: AnswerOptions
) -> list[str]:
    """Return an answer for each line; `first` is the number of the first one."""
    answers: list[str] = [""] * len(lines)
    requests: list[tuple[int, PairRequest]] = []
    for k, line in enumerate(lines):
        value: Any = None
        try:
            if len(line) > MAX_LINE:
                raise InputError(f"a line of more than {MAX_LINE:,} bytes; split it")
            value = parse_json(line)
            requests.append((k, parse_pair(value)))
        except InputError as error:
            answers[k] = describe_error(f"line {first + k}: {error}", value)
    try:
        found = answer_pairs(aligner, [request for _, request in requests], options)
        for (k, _), answer in zip(requests, found, strict=True):
            answers[k] = answer
    except InputError:
        for k, request in requests:  # one of them is at fault, the others are not
            try:
                (answers[k],) = answer_pairs(aligner, [request], options)
            except InputError as error:
                value = {"id": request.id} if request.has_id else None
                answers[k] = describe_error(f"line {first + k}: {error}", value)
    return answers


def describe_error(message: str, value: Any = None) -> str:
    """Return the answer to what cannot be answered, with the id if there is one."""
    found = {"error": message}
    if isinstance(value, dict) and "id" in value:
        found["id"] = value["id"]
    return json.dumps(found, ensure_ascii=False)
