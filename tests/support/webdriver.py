"""A browser to drive: the few commands of the WebDriver protocol that the tests need.
Knows chromedriver, which speaks JSON over HTTP; pages and what they must do are the tests'."""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVERS = ("chromedriver", "chromium.chromedriver")
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013",
        "ArrowRight": "\ue014", "ArrowLeft": "\ue012", "Tab": "\ue004"}  # fmt: skip
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# Nothing of the browser's own may touch the network.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip


def installed() -> tuple[str, str] | None:
    """Browser and driver, if both are there."""
    browser, driver = (next(filter(None, map(shutil.which, n)), None) for n in (BROWSERS, DRIVERS))
    return (browser, driver) if browser and driver else None


class Browser:
    """One window. Scripts run in the page and give back plain values."""

    def __init__(self, session: str) -> None:
        self._session = session

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return call(method, f"{self._session}/{path}", body)

    def open(self, file: Path | str) -> None:
        """Go to a file, or to an address."""
        address = file if isinstance(file, str) else file.resolve().as_uri()
        self._call("POST", "url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that the script returns."""
        return self._call("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str) -> Any:
        """The value that the script gives to its last argument, a function."""
        return self._call("POST", "execute/async", {"script": script, "args": []})

    def wait(self, script: str, seconds: float = 10) -> Any:
        """The value of the script as soon as it is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"still not true after {seconds} s: {script}"
            time.sleep(0.02)
        return value

    def press(self, *keys: str) -> None:
        """Real key presses, to whatever has the focus."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        body = {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}
        self._call("POST", "actions", body)

    def click(self, selector: str) -> None:
        self._call("POST", f"element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self._call("POST", f"element/{self._find(selector)}/value", {"text": text})

    def _find(self, selector: str) -> str:
        found = self._call("POST", "element", {"using": "css selector", "value": selector})
        return found[ELEMENT]

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the browser's own developer protocol."""
        return self._call("POST", "goog/cdp/execute", {"cmd": name, "params": parameters})

    def screen(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        """Pretend to have such a screen."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._call("GET", "screenshot")))

    def log(self) -> list[str]:
        """Errors and warnings of the page since the last call."""
        return [entry["message"] for entry in self._call("POST", "se/log", {"type": "browser"})]


def call(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    # Never through a proxy: the driver is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        problem = json.load(error)["value"]
        raise AssertionError(f"{problem['error']}: {problem['message']}") from None


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """A browser with a profile of its own, gone afterwards."""
    found = installed()
    assert found, "no browser is installed"
    browser, driver = found
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            base = f"http://127.0.0.1:{port(process)}"
            options = {"binary": browser, "args": [*FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            body = {"capabilities": {"alwaysMatch": wanted}}
            session = call("POST", f"{base}/session", body)["sessionId"]
            try:
                yield Browser(f"{base}/session/{session}")
            finally:
                call("DELETE", f"{base}/session/{session}")
        finally:
            process.terminate()
            process.wait(10)


def port(process: subprocess.Popen[str]) -> int:
    """The port that the driver has chosen, as it tells."""
    assert process.stdout
    for line in process.stdout:
        if "successfully on port " in line:
            return int(line.rpartition("on port ")[2].strip().rstrip("."))
    raise AssertionError("the driver of the browser ended at once")
