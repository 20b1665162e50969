"""A server under test: processes of its own, whose memory is read and which can be paused.

Linux only: what belongs to it and what it holds is read from /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path


def free_port() -> int:
    """A port of this machine on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """A server and all processes that it started.

    Args:
        command: what starts it.
        port: where it listens.
        log: file for what it says.
        ready: path that it answers with 200 when requests may come.
        scheme: http, or https, of which the certificate is not looked at.
        env: environment variables added to this process's.
        seconds: which it has to become ready.

    Raises:
        RuntimeError: it did not become ready; the message ends with the end of its log.
    """

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log: Path,
        *,
        ready: str = "/health",
        scheme: str = "http",
        env: Mapping[str, str] | None = None,
        seconds: float = 180.0,
    ) -> None:
        self.port = port
        self.log = log
        self._ready_url = f"{scheme}://127.0.0.1:{port}{ready}"
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | dict(env or {})
            )
        deadline = time.monotonic() + seconds
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{command[0]} did not become ready:\n{tail}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(self._ready_url, timeout=30, context=context) as reply:
                return bool(reply.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def processes(self) -> list[int]:
        """Process ids: itself, its children, theirs."""
        parents: dict[int, list[int]] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    parents.setdefault(int(fields[1]), []).append(int(folder.name))
        found = [self.process.pid]
        for pid in found:
            found += parents.get(pid, [])
        return found

    def megabytes(self) -> float:
        """Memory of all of them in MiB; pages that several share count once."""
        total = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
        return total / 1024

    def pause(self) -> None:
        """Stop it where it is, so that it costs others nothing."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self, seconds: float = 60.0) -> int:
        """Ask it to end, and make it; its exit status."""
        if self.process.poll() is None:
            self.go_on()
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._send(signal.SIGKILL)
        return self.process.wait()
