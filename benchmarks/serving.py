"""Loads mx-serve on loopback: latency with several clients at once; good clients beside bad ones.

    python -m mx_align.benchmarks.serving --langs de-en            # 2,000 requests a row, then 60 s
    python -m mx_align.benchmarks.serving --langs de-en --requests 200 --seconds 10

Starts a server of its own, as a process. Sentences are made up, so that nothing else is needed.
"""

import argparse
import http.client
import json
import os
import platform
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Made-up sentences of 3 to 40 words: what is computed depends on their length only.
_WORDS = (
    "das Haus ist sehr klein und der alte Baum steht im Garten",
    "the house is very small and the old tree stands in the garden",
)
_TYPE = {"Content-Type": "application/json"}


def make_pair(chance: random.Random) -> dict[str, str]:
    """Return a pair of sentences."""
    n_words = chance.randint(3, 40)
    src, tgt = (" ".join(chance.choices(side.split(), k=n_words)) for side in _WORDS)
    return {"src": src, "tgt": tgt}


@contextmanager
def start_server(langs: str, threads: int) -> Iterator[tuple[int, int]]:
    """Start mx-serve; give its port and process."""
    command = [sys.executable, "-m", "mx_align.engine.serve.command", "--port", "0"]
    command += ["--langs", langs, "--threads", str(threads), "--timeout", "5"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        found = re.search(r"127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert found, "the server did not start"
        yield int(found[1]), process.pid
    finally:
        process.terminate()
        process.wait(60)


def read_process(pid: int) -> dict[str, float]:
    """Return CPU seconds, resident MB, open files and threads of a process (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    return {
        "cpu": (int(fields[11]) + int(fields[12])) / 100,
        "mb": int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024,
        "files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(re.findall(r"Threads:\s+(\d+)", status)[0]),
    }


# ---- latency ----


def measure_latency(port: int, clients: int, requests: int, body: dict[str, Any]) -> list[float]:
    """Return the milliseconds of each request of so many clients, which ask one after the other."""
    times: list[float] = []

    def ask(number: int) -> None:
        chance = random.Random(number)
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(requests // clients):
            text = json.dumps({**body, **make_pair(chance)})
            start = time.perf_counter()
            link.request("POST", "/align", text, _TYPE)
            answer = link.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            times.append(1000 * (time.perf_counter() - start))

    run_threads([lambda n=n: ask(n) for n in range(clients)])
    return times


def run_threads(tasks: list[Callable[[], None]]) -> None:
    """Run all tasks at once; an error of one is raised at the end."""
    problems: list[BaseException] = []

    def guard(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guard, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def describe_latency(name: str, times: list[float], cpu: float) -> str:
    """Return a row of the table."""
    cuts = statistics.quantiles(times, n=100)
    return f"| {name} | {cuts[49]:.1f} | {cuts[98]:.1f} | {1000 * cpu / len(times):.2f} |"


# ---- soak ----


def open_link(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def send_head(link: socket.socket, length: int) -> None:
    link.sendall(
        b"POST /align HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % length
    )


def send_slowly(port: int, chance: random.Random) -> None:
    """Send a few bytes of a body now and then, and go away."""
    with open_link(port) as link:
        send_head(link, 5000)
        for _ in range(3):
            link.sendall(b'{"src": ')
            time.sleep(chance.random())


def stop_in_head(port: int, chance: random.Random) -> None:
    """Send the half of a head, and hang until the server has had enough."""
    with open_link(port) as link:
        link.sendall(b"POST /align HTTP/1.1\r\nHost: loc")
        link.recv(1000)


def close_half(port: int, chance: random.Random) -> None:
    """Say that nothing more comes, in the middle of a body."""
    with open_link(port) as link:
        send_head(link, 500)
        link.sendall(b'{"src": ')
        link.shutdown(socket.SHUT_WR)
        link.recv(1000)


def send_too_much(port: int, chance: random.Random) -> None:
    """Send more than is taken."""
    with open_link(port) as link:
        send_head(link, 1 << 30)
        with suppress(OSError):  # the server closes, as it should
            for _ in range(64):
                link.sendall(b"x" * (1 << 20))


def send_bytes(port: int, chance: random.Random) -> None:
    """Send what is not UTF-8, not JSON, not HTTP."""
    with open_link(port) as link:
        if chance.random() < 0.5:
            send_head(link, 300)
        link.sendall(chance.randbytes(300) + b"\r\n\r\n")
        with suppress(OSError):
            link.recv(1000)


def stay_deaf(port: int, chance: random.Random) -> None:
    """Ask for a long answer and read nothing of it."""
    rows = [make_pair(chance) for _ in range(200)]
    body = json.dumps({"pairs": rows, "soft": True}).encode()
    with open_link(port) as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        send_head(link, len(body))
        link.sendall(body)
        time.sleep(3 * chance.random())


BAD = (send_slowly, stop_in_head, close_half, send_too_much, send_bytes, stay_deaf)


def soak(port: int, pid: int, seconds: float, clients: int) -> dict[str, Any]:
    """Let good and bad clients ask for some time; return what was lost and what was left behind."""
    chance = random.Random(1)
    known = [make_pair(chance) for _ in range(200)]
    right = {k: ask_once(port, pair) for k, pair in enumerate(known)}
    before = read_process(pid)
    end = time.monotonic() + seconds
    counts: Counter[str] = Counter()

    def ask_well(number: int) -> None:
        chance = random.Random(number)
        while time.monotonic() < end:
            k = chance.randrange(len(known))
            found = ask_once(port, known[k])
            counts["good"] += 1
            counts["wrong"] += found not in (right[k], 503)
            counts["sent away"] += found == 503

    def ask_badly(number: int) -> None:
        chance = random.Random(number)
        while time.monotonic() < end:
            client = BAD[chance.randrange(len(BAD))]
            try:
                client(port, chance)
            except OSError:
                counts["bad clients cut off"] += 1
            counts["bad"] += 1

    run_threads(
        [lambda n=n: ask_well(n) for n in range(clients)]
        + [lambda n=n: ask_badly(100 + n) for n in range(clients)]
    )
    time.sleep(25)  # two rounds in which the server looks for connections that do not get on
    return {"counts": dict(counts), "before": before, "after": read_process(pid)}


def ask_once(port: int, pair: dict[str, str]) -> str | int:
    """Return the results for a pair as text, or the status if it is not 200."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    link.request("POST", "/align", json.dumps(pair), _TYPE)
    answer = link.getresponse()
    text = answer.read().decode()
    link.close()
    return text if answer.status == 200 else answer.status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--langs", default="de-en")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--requests", type=int, default=2000, help="of each row of the table")
    parser.add_argument("--seconds", type=float, default=60, help="of the soak")
    options = parser.parse_args()
    with start_server(options.langs, options.threads) as (port, pid):
        measure_latency(port, 1, 50, {})  # loads the model
        print("| clients | p50, ms | p99, ms | server's CPU ms a request |\n|---|---|---|---|")
        for clients, soft in ((1, False), (4, False), (16, False), (1, True)):
            before = read_process(pid)["cpu"]
            body = {"langs": options.langs, "soft": soft}
            times = measure_latency(port, clients, options.requests, body)
            name = f"{clients}{', with matrices' if soft else ''}"
            print(describe_latency(name, times, read_process(pid)["cpu"] - before), flush=True)
        found = soak(port, pid, options.seconds, 4)
        print(json.dumps(found, indent=1))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.platform()}")


if __name__ == "__main__":
    main()
