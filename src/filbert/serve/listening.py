"""The socket of a server: its address, its TLS, and how many connections it may hold."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl
from collections.abc import Iterator

from filbert.errors import ConfigError

# Open files that a process asks for; every connection takes one.
_MOST_FILES = 65_536


def check_tls(certificate: str | None, key: str | None) -> None:
    """See that certificate and key belong together, before anything is loaded.

    Raises:
        ConfigError: they do not, they cannot be read, or the key wants a passphrase.
    """
    if certificate is None:
        if key is not None:
            raise ConfigError("--key is given without --certificate. Give both, or neither.")
        return
    # OpenSSL says of a missing file only that there is none.
    for flag, name in (("--certificate", certificate), ("--key", key)):
        if name is not None and not (os.path.isfile(name) and os.access(name, os.R_OK)):
            raise ConfigError(f"{flag} {name}: no such file, or it is closed. Check the path.")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without a function OpenSSL would ask for the passphrase at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(
            f"--certificate {certificate} cannot be used ({reason}). Give PEM files of a "
            "certificate and of its key (or both in one), the key without a passphrase."
        ) from error


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that has its address but does not listen, so that connections are refused.

    Raises:
        ConfigError: the address is not this machine's, or taken, or not ours to use.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"--host {host!r} is no address. Give one such as 127.0.0.1.") from error
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise cannot_listen(host, port, error) from error
        yield listener


def cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """What to say when an address is not to be had."""
    return ConfigError(
        f"Port {port} of {host} cannot be listened on: {error.strerror}. Stop what listens there, "
        "or give another --port (0 takes a free one)."
    )


def url_of(listener: socket.socket, *, is_tls: bool) -> str:
    """Where the server is reached from this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if is_tls else 'http'}://{host}:{port}"


def allow_many_connections() -> None:
    """Raise this process's limit of open files, which often is 1,024, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
