"""A headless Chromium, spoken to by its DevTools protocol.

https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket

from tests.support import PATIENCE, until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


_REPORTS = ("Runtime.consoleAPICalled", "Log.entryAdded")


def _is_fault(report: dict[str, Any]) -> bool:
    kind = report.get("type") or report.get("entry", {}).get("level")
    return kind in ("error", "assert", "warning")


class Tab:
    """One page; `requested` are the URLs that it has asked for, `faults` what its console says of
    errors, of the page that was opened last."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=PATIENCE)
        self._number = 0
        self._loaded = False
        self._session: str | None = None
        self.requested: list[str] = []
        self.faults: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Network.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        self._socket.send(json.dumps(message))
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv())
        if message.get("method") == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        elif message.get("method") == "Page.loadEventFired":
            self._loaded = True
        elif message.get("method") == "Runtime.exceptionThrown":
            self.faults.append(str(message["params"]["exceptionDetails"]))
        elif message.get("method") in _REPORTS and _is_fault(message["params"]):
            self.faults.append(str(message["params"]))
        return message

    def open(self, url: str) -> None:
        self._loaded = False
        self.faults.clear()
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._next()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def show(self, *, width: int, height: int = 900, scheme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def open_tab(program: str, profile: Path) -> Iterator[Tab]:
    """A tab of a browser with a profile of its own, which ends with the block."""
    options = (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", "--remote-debugging-port=0",
        "--remote-allow-origins=*", f"--user-data-dir={profile}",
    )  # fmt: skip
    log = profile.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(
            [program, *options, "about:blank"], stdout=file, stderr=file, stdin=subprocess.DEVNULL
        )
    try:
        until(lambda: "DevTools listening" in log.read_text() or process.poll() is not None)
        (address,) = re.findall(r"DevTools listening on (ws://\S+)", log.read_text())
        tab = Tab(address)
        yield tab
        tab.close()
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)
