"""Asks pyright's language server, as VS Code does, where names lead: into the checkout, each once.

Run by `make types`. Not a test: the first run of pyright fetches it from the package index.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from .measure_style import ROOT

# A file, a name in it, and the file that defines the name.
LOOKUPS = (
    ("tests/engine/test_aligner.py", "Aligner", "engine/aligner.py"),
    ("benchmarks/long_lines.py", "Aligner", "engine/aligner.py"),
    ("trainer/teachers/teachers.py", "StatisticalAligner", "engine/statistical/aligner.py"),
    ("export/bundling.py", "Bundle", "engine/bundle/bundle.py"),
    ("engine/align/pipeline.py", "Pairs", "engine/types.py"),
    ("__init__.py", "StatisticalAligner", "engine/statistical/aligner.py"),
)


class LanguageServer:
    """A running language server that answers one request at a time."""

    def __init__(self) -> None:
        command = [str(Path(sys.executable).with_name("pyright-langserver")), "--stdio"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0
        folder = {"uri": ROOT.as_uri(), "name": ROOT.name}
        self.request(
            "initialize",
            {"processId": os.getpid(), "rootUri": folder["uri"], "workspaceFolders": [folder],
             "capabilities": {}},
        )  # fmt: skip
        self.notify("initialized", {})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout
        size = 0
        while line := self._process.stdout.readline().strip():
            if line.lower().startswith(b"content-length"):
                size = int(line.split(b":")[1])
        answer: dict[str, Any] = json.loads(self._process.stdout.read(size))
        return answer

    def notify(self, method: str, parameters: dict[str, Any]) -> None:
        """Tell the server something that has no answer."""
        self._send({"method": method, "params": parameters})

    def request(self, method: str, parameters: dict[str, Any]) -> Any:
        """Return the server's answer; its own questions meanwhile are answered with nothing."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": parameters})
        while True:
            message = self._receive()
            if "method" in message and "id" in message:
                items = message.get("params", {}).get("items", [])
                self._send({"id": message["id"], "result": [None for _ in items]})
            elif message.get("id") == self._number:
                return message.get("result")

    def find_definition(self, path: Path, name: str) -> set[Path]:
        """Return the files that define a name, as it is first imported or used in a file."""
        text = path.read_text("utf-8")
        place = re.search(
            rf"\b{name}\b", re.sub(r'^""".*?"""', lambda m: " " * len(m[0]), text, flags=re.S)
        )
        assert place, f"{path} does not speak of {name}"
        start = (
            text.count("\n", 0, place.start()),
            place.start() - (text.rfind("\n", 0, place.start()) + 1),
        )
        document = {"uri": path.as_uri()}
        self.notify(
            "textDocument/didOpen",
            {"textDocument": {**document, "languageId": "python", "version": 1, "text": text}},
        )
        position = {"line": start[0], "character": start[1]}
        found = self.request(
            "textDocument/definition", {"textDocument": document, "position": position}
        )
        return {Path(unquote(urlparse(one["uri"]).path)) for one in found or []}

    def stop(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait()


def check_definitions() -> list[str]:
    """Return what leads elsewhere than it should."""
    server = LanguageServer()
    wrong = []
    for file, name, wanted in LOOKUPS:
        found = server.find_definition(ROOT / file, name)
        if found != {ROOT / wanted}:
            wrong.append(f"{name} in {file} leads to {sorted(map(str, found))}, not to {wanted}")
    server.stop()
    return wrong


if __name__ == "__main__":
    sys.exit("\n".join(check_definitions()) or None)
