"""A page in headless Chromium, driven over its debugging pipe with the standard library alone.

Chromium reads commands from file descriptor 3 and writes answers and events to 4, each a JSON object that
ends with a zero byte (the DevTools protocol).
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
)  # fmt: skip


def chromium() -> str | None:
    """Where a Chromium is, if this machine has one."""
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


class ChromiumPage:
    """One tab. `events` holds everything that the browser told beside its answers."""

    def __init__(self, binary: str, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser finds its ends as 3 and 4: a shell moves them there, whatever numbers they have here.
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        argv = ["bash", "-c", script, "bash", binary, *ARGUMENTS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            argv, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self.events: list[dict[str, Any]] = []
        self._buffer, self._count, self._session = b"", 0, None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.send(f"{domain}.enable")

    def open(self, where: Path | str) -> None:
        """Goes to a file or an address and waits until it is loaded."""
        self.send("Page.navigate", url=where if isinstance(where, str) else where.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._take(self._message())

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression; raises what the page raised."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """Every address that the page asked for; pictures inside the page are none."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def complaints(self) -> list[str]:
        """Errors that the browser logged: refused scripts, failed loads, uncaught exceptions."""
        logged = [e["params"]["entry"]["text"] for e in self.events if e["method"] == "Log.entryAdded"]
        return logged + [str(e["params"]) for e in self.events if e["method"] == "Runtime.exceptionThrown"]

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._count += 1
        command = {"id": self._count, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._count:
                assert "error" not in message, message
                return dict(message["result"])
            self._take(message)

    def close(self) -> None:
        """Ends the browser."""
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait(timeout=120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _take(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.events.append(message)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._read, 1 << 16)
            assert chunk, "the browser ended"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(text))
