"""mx-align --input-format jsonl: an answer for each line, in order, as soon as it can be."""

from __future__ import annotations

import io
import json
import os
import threading

import pytest

from ....engine.aligner import Aligner
from ....engine.json_pairs import pipe
from ....engine.json_pairs.answers import AnswerOptions
from ....engine.json_pairs.pipe import answer_stream

WORDS = AnswerOptions("words")


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return Aligner.load(langs="de-en", threads=1)


def run(aligner, text: bytes, threads: int = 2) -> tuple[list[dict], tuple[int, int]]:
    output = io.BytesIO()
    counts = answer_stream(aligner, io.BytesIO(text), output, WORDS, threads)
    return [json.loads(line) for line in output.getvalue().splitlines()], counts


def test_each_line_has_an_answer_in_its_place(aligner):
    lines = [{"id": f"n{k}", "src": f"das Haus {k}", "tgt": f"the house {k}"} for k in range(40)]
    text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    answers, counts = run(aligner, text)
    assert [answer["id"] for answer in answers] == [line["id"] for line in lines]
    assert counts == (40, 0) and all(len(answer["links"]) == 3 for answer in answers)
    assert run(aligner, text.rstrip(b"\n"), threads=1)[0] == answers


def test_a_tab_belongs_to_its_sentence(aligner):
    (answer,), _ = run(aligner, b'{"src": "das\\tHaus", "tgt": "the\\thouse"}\n')
    assert answer["links"] == [[0, 0], [1, 1]] and answer["src"] == ["das", "Haus"]


def test_what_cannot_be_read_is_answered_too(aligner, monkeypatch):
    monkeypatch.setattr(pipe, "MAX_LINE", 50)
    text = (
        b'{"id": 7, "src": 1}\n\xff\n\n'
        + b"x" * 240
        + b'\n{"src": "das", "tgt": "the"}\n'
        + b"y" * 60
    )
    answers, counts = run(aligner, text)
    assert counts == (6, 5) and answers[0]["id"] == 7
    wrong = [answer.get("error", "") for answer in answers]
    assert wrong[0].startswith('line 1: a pair must have "tgt"') or '"src" must be' in wrong[0]
    assert wrong[1] == "line 2: not UTF-8 at byte 1; send JSON as UTF-8"
    assert wrong[2].startswith("line 3: not JSON") and "more than 50 bytes" in wrong[3]
    assert wrong[4] == "" and answers[4]["links"] == [[0, 0]] and "line 6" in wrong[5]


def test_a_line_is_answered_before_the_next_one_comes(aligner):
    ask_read, ask_write = os.pipe()
    answer_read, answer_write = os.pipe()
    with (
        open(ask_read, "rb") as asked, open(ask_write, "wb", buffering=0) as asks,
        open(answer_read, "rb") as answers, open(answer_write, "wb") as output,
    ):  # fmt: skip
        counts: list[tuple[int, int]] = []
        thread = threading.Thread(
            target=lambda: counts.append(answer_stream(aligner, asked, output, WORDS, 1))
        )
        thread.start()
        for number in range(3):
            asks.write(f'{{"id": {number}, "src": "das", "tgt": "the"}}\n'.encode())
            assert json.loads(answers.readline())["id"] == number
        asks.close()
        thread.join(20)
    assert counts == [(3, 0)]


def test_an_output_that_is_gone_ends_it(aligner):
    class Gone(io.BytesIO):
        def write(self, data):
            raise BrokenPipeError

    lines = b'{"src": "das", "tgt": "the"}\n' * 5000
    with pytest.raises(BrokenPipeError):
        answer_stream(aligner, io.BytesIO(lines), Gone(), WORDS, 1)
