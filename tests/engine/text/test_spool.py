"""Lines of a pipe that are read twice."""

from itertools import islice

import pytest

from ....engine.errors import InputError
from ....engine.text.corpus import ChunkReader
from ....engine.text.spool import SpooledLines

PAIRS = [("a \u2028 b", "x\ty"), ("", "1"), ("ü", ""), ("d", "4"), ("e", "5")]


class Pipe:
    """Lines that can be read once; may end with an error."""

    def __init__(self, error=None):
        self.given, self.error = 0, error

    def open_sample(self):
        return None

    def open_lines(self, multiple):
        return 0, None, self.give()

    def give(self):
        for pair in PAIRS:
            self.given += 1
            yield pair
        if self.error:
            raise self.error


def test_the_first_lines_come_again_and_the_rest_once():
    pipe = Pipe()
    spooled = SpooledLines(pipe, 3)
    assert pipe.given == 3 and not spooled.complete
    assert list(spooled.open_sample()) == list(spooled.open_sample()) == PAIRS[:3]
    assert list(spooled.open_lines(1)[2]) == PAIRS


def test_a_reader_that_was_opened_before_the_sample_was_read_gets_all_lines():
    spooled = SpooledLines(Pipe(), 100)
    assert spooled.complete
    reader = ChunkReader(spooled, 2, tokens="auto")
    list(islice(spooled.open_sample(), 2))
    assert [len(chunk.src) for chunk in reader.read_chunks()] == [2, 2, 1]


def test_an_error_waits_for_its_turn():
    spooled = SpooledLines(Pipe(InputError("bad byte")), 100)
    assert list(spooled.open_sample()) == PAIRS
    lines = spooled.open_lines(1)[2]
    assert list(islice(lines, 5)) == PAIRS
    with pytest.raises(InputError, match="bad byte"):
        next(lines)
