"""mx-serve over HTTP: what is asked, what is answered, who is sent away, and what never hangs."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("uvicorn")
jsonschema = pytest.importorskip("jsonschema")

from click.testing import CliRunner  # noqa: E402

from ....engine.aligner import Aligner  # noqa: E402
from ....engine.serve.app import Service  # noqa: E402
from ....engine.serve.command import main  # noqa: E402
from ....engine.serve.limits import Limits  # noqa: E402
from ....engine.serve.models import ServedModels  # noqa: E402
from ....engine.serve.server import GuardedProtocol  # noqa: E402
from ....engine.statistical.aligner import StatisticalAligner  # noqa: E402
from ...support.served import served  # noqa: E402


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served() as number:
        yield number


def ask(port: int, path: str, value=None, method: str = "POST", **headers) -> tuple[int, object]:
    """Send JSON; return the status, and the answer as JSON or text."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    if method == "GET":
        body = None
    headers = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}  # fmt: skip # noqa: E501
    link.request(method, path, body, headers)
    response = link.getresponse()
    text = response.read().decode()
    link.close()
    try:
        return response.status, json.loads(text)
    except ValueError:
        return response.status, text


def align(port: int, value, **headers) -> object:
    status, answer = ask(port, "/align", value, **headers)
    assert status == 200, answer
    return answer


def check_answer(port: int, path: str, name: str, value) -> None:
    """Check an answer by the schema that the server itself gives."""
    described = ask(port, "/openapi.json", method="GET")[1]
    schema = described["components"]["schemas"][name] | {"components": described["components"]}
    jsonschema.validate(value, schema)


# ---- answers ----


def test_one_pair(port):
    answer = align(port, {"id": "x", "src": "Das Haus.", "tgt": "The house.", "langs": "de-en"})
    (row,) = answer["results"]
    assert row["id"] == "x" and row["links"] == [[0, 0], [1, 1], [2, 2]]
    assert row["src_spans"] == [[0, 3], [4, 8], [8, 9]]
    assert answer["langs"] == "de-en" and answer["threshold"] > 0
    check_answer(port, "/align", "Answer", row)


def test_it_answers_what_the_library_answers(port):
    pairs = [("das kleine Haus ist rot", "the small house is red"), ("ja", "yes"), ("", "no")]
    rows = align(port, {"langs": "German-English", "tokens": "words",
                        "pairs": [{"src": s, "tgt": t} for s, t in pairs]})["results"]  # fmt: skip
    found = Aligner.load(langs="de-en", threads=1).align_batch(*zip(*pairs, strict=True))
    assert [[tuple(link) for link in row["links"]] for row in rows] == [a.links for a in found]
    assert [row["scores"] for row in rows] == [[round(s, 4) for s in a.scores] for a in found]
    turned = align(port, {"langs": "en-de", "src": "the house", "tgt": "das Haus"})["results"][0]
    assert turned["links"] == [[0, 0], [1, 1]]


def test_json_lines(port):
    lines = b'{"id": 1, "src": "das", "tgt": "the"}\n[]\n\xff\n{"src": "ja\\tso", "tgt": "yes"}'
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    kind = {"Content-Type": "application/x-ndjson"}
    link.request("POST", "/align?langs=de-en&tokens=words&soft=true", lines, kind)
    rows = [json.loads(line) for line in link.getresponse().read().splitlines()]
    assert len(rows) == 4 and rows[0]["id"] == 1 and rows[0]["links"] == [[0, 0]]
    assert "line 2" in rows[1]["error"] and "line 3: not UTF-8" in rows[2]["error"]
    assert rows[3]["src"] == ["ja", "so"] and "soft" in rows[3]
    check_answer(port, "/align", "Error", rows[1])
    status, answer = ask(port, "/align?lang=de", b"{}", Content_Type="application/x-ndjson")
    assert status == 400 and "there is no 'lang' here; there are langs" in answer["error"]


def test_matrices_and_threshold(port):
    question = {"src": "das Haus am See", "tgt": "the lake house", "langs": "de-en"}
    (row,) = align(port, question | {"soft": True, "threshold": 0.999999})["results"]
    few = len(row["links"])
    assert len(row["soft"]["scores"]) == 4 and len(row["soft"]["scores"][0]) == 3
    check_answer(port, "/align", "Answer", row)
    (row,) = align(port, question | {"threshold": 1e-6})["results"]
    assert len(row["links"]) > few


def test_markup_and_labels_are_carried_over(port):
    pairs = [
        {"id": 1, "src": "das <b>Haus</b> ist rot", "tgt": "the house is red"},
        {"src": "das Haus ist rot", "tgt": "the house is red", "labels": [[4, 8, "THING"]]},
    ]
    status, answer = ask(port, "/project", {"langs": "de-en", "pairs": pairs})
    assert status == 200
    first, second = answer["results"]
    assert first == {"id": 1, "tgt": "the <b>house</b> is red", "unplaced": []}
    assert second["labels"] == [[4, 9, "THING"]] and second["unplaced"] == []


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"pairs": [{"src": ["a"], "tgt": "b"}]}, "must be strings"),
        ({"pairs": [{"src": "a\nb", "tgt": "b"}]}, "single lines"),
        ({"pairs": [{"src": "a", "tgt": "b", "labels": [[0, 2, "X"]]}]}, "inside its text of 1"),
        ({"pairs": [{"src": "a", "tgt": "b", "labels": [[0, 1]]}]}, "must be \\[start, end, name"),
        ({"pairs": [], "policy": "x"}, '"policy" must be one of best, cover, split'),
        ({"src": "a"}, "the body must be an object like"),
    ],
)
def test_what_cannot_be_carried_over_is_told(port, value, wrong):
    status, answer = ask(port, "/project", value)
    assert status == 400 and wrong.replace("\\", "") in answer["error"]


def test_statistics_align_alone_or_beside_a_model(tmp_path):
    """Also languages without a model."""
    nouns = ["talo", "koira", "kala", "kirja", "puu"]
    text = [f"{a} ja {b}" for a in nouns for b in nouns]
    learned = StatisticalAligner.learn(text, text, lowercase=True)
    file = tmp_path / "learned.npz"
    learned.save(file)
    given = [f"fi-sw={file}", f"de-en={file}"]
    service = Service(ServedModels((), (), 1, "cpu", given), 1)
    found = {
        (langs, method): service.models.get_aligner(langs, method)
        for langs, method in (("fi-sw", "auto"), ("de-en", "auto"), ("de-en", "model"))
    }
    assert [f.method for f in found.values()] == ["statistics", "both", "model"]
    with served(statistics=given) as port:
        question = {"src": "talo ja kala", "tgt": "talo ja kala"}
        answer = align(port, {"langs": "fi-sw", **question})
        assert answer["method"] == "statistics"
        assert answer["results"][0]["links"] == [[0, 0], [1, 1], [2, 2]]
        check_answer(port, "/align", "Answer", answer["results"][0])
        few = align(port, {"langs": "fi-sw", "threshold": 1, **question})["results"][0]
        assert len(few["links"]) < 3
        both = align(port, {"langs": "de-en", **question})
        assert both["method"] == "both" and "statistics" in both["model"]
        status, told = ask(port, "/align", {"langs": "fi-sw", "method": "model", **question})
        assert status == 400 and "for fi-sw there is statistics only" in told["error"]
        status, told = ask(port, "/align", {"langs": "fi-sw", "soft": True, **question})
        assert status == 400 and "is what a model says" in told["error"]


def test_words_of_texts(port):
    value = {"texts": ["Das Haus.", "😀 x"], "lang": "de", "offsets": "utf16"}
    status, answer = ask(port, "/tokenize", value)
    assert status == 200 and answer["results"][0]["words"] == ["Das", "Haus", "."]
    assert answer["results"][1]["spans"] == [[0, 2], [3, 4]]


def test_health_models_metrics(port):
    assert ask(port, "/health", method="GET")[1]["status"] == "ok"
    (model,) = ask(port, "/models", method="GET")[1]["models"]
    assert {"de-en", "en-de", "fr-en", "en-zh", "de-fr"} < set(model["langs"])
    align(port, {"src": "a", "tgt": "b"})
    text = ask(port, "/metrics", method="GET")[1]
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert int(found["mx_pairs_total"]) >= 1 and found["mx_running"] == "0"
    assert int(found['mx_requests_total{path="/align",status="200"}']) >= 1
    assert found["mx_request_seconds_count"] == found['mx_request_seconds_bucket{le="+Inf"}']


def test_the_app_loads_nothing(port):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    link.request("GET", "/")
    page = link.getresponse().read().decode()
    assert "connect-src 'self'" in page and "default-src 'none'" in page
    assert "<script src" not in page and "<link" not in page


# ---- what is wrong is told ----


@pytest.mark.parametrize(
    ("value", "status", "wrong"),
    [
        (b"{", 400, "not JSON at line 1"),
        (b"\xff", 400, "not UTF-8 at byte 1"),
        ([], 400, "must be an object"),
        ({"src": "a"}, 400, 'must have "tgt"'),
        ({"src": "a", "tgt": "b", "langs": "xx-yy"}, 400, "xx"),
        ({"src": "a", "tgt": "b", "langs": "th-en"}, 400, "no model is for th-en; this"),
        ({"src": "a\ud800", "tgt": "b"}, 400, "half of a surrogate pair"),
        ({"src": "a", "tgt": "b", "lang": "de"}, 400, "there is no 'lang' here"),
        ({"src": "a", "tgt": "b", "soft": 3}, 400, '"soft" must be one of true, false, not 3'),
        ({"src": "a", "tgt": "b", "threshold": 0}, 400, "above 0 and up to 1"),
        ({"src": "a", "tgt": "b", "tokens": []}, 400, '"tokens" must be one of "raw"'),
        ({"pairs": [{"src": "a", "tgt": "b"}] * 6}, 413, "6 pairs, more than 5"),
        ({"pairs": {}}, 400, '"pairs" must be a list'),
        ({"src": "x" * 200_000, "tgt": "b"}, 413, "larger than 200,000 bytes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(port, value, status, wrong):
    found, answer = ask(port, "/align", value)
    assert found == status and wrong in answer["error"]
    check_answer(port, "/align", "Error", answer)


def test_an_id_comes_back_whatever_it_is(port):
    for value in ("\ud800", None, [1, {"a": "\u2028"}], 1.5, ""):
        (row,) = align(port, {"id": value, "src": "a", "tgt": "b"})["results"]
        assert row["id"] == value


def test_a_fault_of_ours_is_told_and_counted(port, monkeypatch, capfd):
    def fail(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr("mx_align.engine.serve.app.answer_pairs", fail)
    status, answer = ask(port, "/align", {"src": "a", "tgt": "b"})
    assert status == 500 and answer == {"error": "internal error, ZeroDivisionError"}
    assert 'path="/align",status="500"' in ask(port, "/metrics", method="GET")[1]
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_other_addresses_methods_and_kinds(port):
    assert ask(port, "/nowhere", {})[0] == 404
    assert ask(port, "/align", method="GET")[0] == 405
    assert ask(port, "/align", {}, Content_Type="text/plain")[0] == 415


def test_pages_of_other_sites_are_refused(port):
    question = {"src": "a", "tgt": "b"}
    assert ask(port, "/align", question, Origin="https://evil.example")[0] == 403
    assert ask(port, "/align", question, Host="evil.example")[0] == 403
    assert ask(port, "/align", question, Origin=f"http://127.0.0.1:{port}")[0] == 200
    assert ask(port, "/health", method="GET", Host=f"localhost:{port}")[0] == 200


def test_a_token_is_asked_for():
    with served(token="correct-horse") as port:
        question = {"src": "a", "tgt": "b"}
        assert ask(port, "/align", question)[0] == 401
        assert ask(port, "/align", question, Authorization="Bearer wrong")[0] == 401
        assert ask(port, "/metrics", method="GET")[0] == 401
        assert ask(port, "/align", question, Authorization="Bearer correct-horse")[0] == 200
        assert ask(port, "/health", method="GET")[0] == 200


# ---- bad clients ----


def open_socket(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def head(length: int, kind: str = "application/json") -> bytes:
    return (
        f"POST /align HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def read_all(link: socket.socket) -> bytes:
    parts = []
    try:
        while part := link.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_who_stops_in_between_is_let_go(monkeypatch):
    """Heads and bodies that do not end, and answers that are not read."""
    monkeypatch.setattr(GuardedProtocol, "check_seconds", 0.3)
    with served() as port:
        silent, slow_head, slow_body, deaf = (open_socket(port) for _ in range(4))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow_head.sendall(b"POST /align HTTP/1.1\r\nHost: loc")
        slow_body.sendall(head(100) + b'{"src": ')
        lines = b'{"src": "a", "tgt": "b"}\n' * 7000
        deaf.sendall(head(len(lines), "application/x-ndjson") + lines)
        start = time.monotonic()
        assert read_all(silent) == b"" and read_all(slow_head) == b""
        assert b"408 Request Timeout" in read_all(slow_body)
        assert time.monotonic() - start < 9
        assert ask(port, "/health", method="GET")[0] == 200
        for link in (silent, slow_head, slow_body):
            link.close()
        end = time.monotonic() + 30
        while "mx_running 0" not in ask(port, "/metrics", method="GET")[1]:
            assert time.monotonic() < end
            time.sleep(0.2)
        deaf.close()


def test_a_half_closed_client_gets_its_answer(port):
    body = b'{"src": "das", "tgt": "the", "langs": "de-en"}'
    with open_socket(port) as link:
        link.sendall(head(len(body)) + body)
        link.shutdown(socket.SHUT_WR)
        link.settimeout(20)
        found = b""
        while b'"links": [[0, 0]]' not in found:
            part = link.recv(65536)
            assert part, found
            found += part


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\x02\x00\x01", b"A" * 40_000,
     b"POST /align HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"\r\n" * 50 + b"\x00\xff"],
)  # fmt: skip
def test_what_is_no_http_is_refused(port, sent):
    with open_socket(port) as link:
        link.sendall(sent)
        assert b"HTTP/1.1 4" in read_all(link)[:10]
    assert ask(port, "/health", method="GET")[0] == 200


def test_too_many_are_told_to_come_again(monkeypatch):
    """Two threads work, one request waits, the next are sent away; those that were taken end."""
    gate = threading.Event()

    def wait(*arguments):
        assert gate.wait(20)
        return ["{}"]

    monkeypatch.setattr("mx_align.engine.serve.app.answer_pairs", wait)
    with served(Limits(waiting=1, seconds=20)) as port:
        found: list[int] = []
        threads = [
            threading.Thread(
                target=lambda: found.append(ask(port, "/align", {"src": "a", "tgt": "b"})[0])
            )
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        while len(found) < 3:
            time.sleep(0.02)
        assert found == [503] * 3
        gate.set()
        for thread in threads:
            thread.join(20)
        assert sorted(found) == [200] * 3 + [503] * 3


def test_a_stop_lets_answers_end(monkeypatch):
    begun, gate = threading.Event(), threading.Event()

    def wait(*arguments):
        begun.set()
        assert gate.wait(20)
        return ["{}"]

    monkeypatch.setattr("mx_align.engine.serve.app.answer_pairs", wait)
    found: list[int] = []
    with served() as port:
        thread = threading.Thread(
            target=lambda: found.append(ask(port, "/align", {"src": "a", "tgt": "b"})[0])
        )
        thread.start()
        assert begun.wait(20)
        threading.Timer(0.5, gate.set).start()
    thread.join(20)
    assert found == [200]


# ---- the command ----


@pytest.mark.slow
def test_the_command_serves_and_stops(tmp_path):
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "mx_align.engine.serve.command", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr
    line = process.stderr.readline()
    port = int(line.partition("127.0.0.1:")[2].partition(" ")[0])
    assert ask(port, "/align", {"src": "das", "tgt": "the"})[0] == 200
    taken = subprocess.run([*command[:-1], str(port)], capture_output=True, text=True, timeout=60)
    assert taken.returncode == 2 and "give another --port" in taken.stderr
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) in (0, 143, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        (["--host", "0.0.0.0"], "set MX_SERVE_TOKEN or give --token-file"),
        (["--token-file", "/nowhere"], "cannot read the token in /nowhere"),
        (["--langs", "th-en"], "no model is for th-en; there are models for any two of ar"),
    ],
)
def test_mistakes_at_the_start_are_told(flags, wrong, monkeypatch):
    monkeypatch.delenv("MX_SERVE_TOKEN", raising=False)
    found = CliRunner().invoke(main, flags)
    assert found.exit_code == 2 and wrong in found.output
