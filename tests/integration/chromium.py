"""Headless Chromium over its DevTools pipe, with the standard library only."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """Returns the path of a Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one tab. Commands go to the tab; ``log`` collects console messages and uncaught errors."""

    def __init__(self, binary: str) -> None:
        self.log: list[str] = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The browser reads commands at 3 and writes answers at 4; high numbers first, so that neither is in the way.
        high = [fcntl.fcntl(number, fcntl.F_DUPFD, 50) for number in (to_read, to_write)]
        actions = [
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, high[0], 3),
            (os.POSIX_SPAWN_DUP2, high[1], 4),
        ]
        arguments = [binary, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        # A process group of its own, so that all of the browser's processes can be ended together.
        self._pid = os.posix_spawn(binary, arguments, os.environ, file_actions=actions, setpgroup=0)
        for number in (to_read, to_write, *high):
            os.close(number)
        self._buffer, self._number, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._read)
        os.close(self._write)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends one command and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(60)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _receive(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "the browser ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        found = json.loads(message)
        self._collect(found.get("method", ""), found.get("params", {}))
        return found

    def _collect(self, method: str, found: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.log.append(
                f"exception: {found['exceptionDetails'].get('text')} {found['exceptionDetails'].get('exception')}"
            )
        elif method == "Runtime.consoleAPICalled":
            self.log.append(f"console.{found['type']}: {found['args']}")
        elif method == "Log.entryAdded":
            self.log.append(f"{found['entry']['level']}: {found['entry']['text']}")
        elif method == "Network.requestWillBeSent" and not found["request"]["url"].startswith(("file:", "data:")):
            self.log.append(f"request: {found['request']['url']}")

    def open(self, path: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Loads a page from disk at a given size and waits until it has loaded; the log starts anew."""
        self.log.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + 60
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.protocol") == "about:":
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Writes a PNG of the window, or of the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **(self._whole() if whole else {}))
        path.write_bytes(base64.b64decode(answer["data"]))

    def _whole(self) -> dict[str, Any]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
