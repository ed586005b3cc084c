"""Keep the first lines of a pipe on disk, so that they can be read twice: to learn, and to align.

Knows lines alone. Files need no spool: they are read as often as one likes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import chain, islice
from typing import BinaryIO

from ..errors import InputError
from .corpus import LineSource


class SpooledLines:
    """A source whose first pairs of lines can be read again; the others come once, after them.

    An error of the input is raised where it stands, when the pairs before it were given.
    """

    def __init__(self, source: LineSource, max_pairs: int) -> None:
        self.n_pairs = 0  # on disk
        self._error: InputError | None = None
        _, _, self._rest = source.open_lines(1)
        # Has no name in its folder, so that nothing stays there however the process ends.
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="mx-align-")  # noqa: SIM115
        try:
            for sides in islice(self._rest, max_pairs):
                # A line has no line end in it; surrogates may come from Python.
                text = "".join(f"{side}\n" for side in sides)
                self._file.write(text.encode("utf-8", "surrogatepass"))
                self.n_pairs += 1
        except InputError as error:
            self._error = error
        self.complete = self.n_pairs < max_pairs

    def open_lines(self, multiple: int) -> tuple[int, int | None, Iterator[tuple[str, str]]]:
        """Return all lines; those that come once must not have been read before."""
        rest = self._rest if self._error is None else self._raise_error(self._error)
        return 0, None, chain(self.open_sample(), rest)

    def open_sample(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs on disk. Only one reader may be under way, from its first pair on."""
        self._file.seek(0)
        lines = (line[:-1].decode("utf-8", "surrogatepass") for line in self._file)
        yield from zip(lines, lines, strict=True)

    def _raise_error(self, error: InputError) -> Iterator[tuple[str, str]]:
        raise error
        yield  # which makes it an iterator
