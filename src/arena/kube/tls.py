"""Whom we trust, and the certificate we show."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import BackendError
from arena.kube.config import ANOTHER, Access

if TYPE_CHECKING:
    import ssl


def tls_context(access: Access, cert: str | bytes, key: str | bytes) -> ssl.SSLContext:
    """The TLS of an access, with this certificate of its user."""
    import ssl

    import httpx2

    try:
        if access.insecure:
            context = httpx2.create_ssl_context(verify=False)
        elif access.ca:
            context = _trusting(access.ca)
        else:
            context = httpx2.create_ssl_context()
        if cert:
            _load_pair(context, cert, key)
    except (OSError, ssl.SSLError) as error:
        what = f"the certificates of {access.source or 'this access'} cannot be used"
        raise BackendError(what, why=_why(error, access.ca, cert, key), hint=ANOTHER) from error
    if access.tls_server_name:
        _rename(context, access.tls_server_name)
    return context


def _why(error: OSError, *files: str | bytes) -> str:
    """What was wrong; OpenSSL does not say which file it could not open."""
    missing = [file for file in files if file and isinstance(file, str) and not os.access(file, os.R_OK)]
    return f"{missing[0]}: {error.strerror}" if missing and error.strerror else str(error)


def _trusting(ca: str | bytes) -> ssl.SSLContext:
    import ssl

    pem = ca.decode() if isinstance(ca, bytes) else Path(ca).read_text()
    context = ssl.create_default_context(cadata=pem)
    # From 3.13 on Python wants more of a CA than Go does, and than many clusters' own have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_pair(context: ssl.SSLContext, cert: str | bytes, key: str | bytes) -> None:
    with contextlib.ExitStack() as files:
        context.load_cert_chain(files.enter_context(_as_file(cert)), files.enter_context(_as_file(key)) or None)


@contextlib.contextmanager
def _as_file(pem: str | bytes) -> Iterator[str]:
    """A path, for as long as OpenSSL reads it; what was in memory lies in a file of one's own meanwhile."""
    if isinstance(pem, str):
        yield pem
        return
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
        yield path
    finally:
        os.unlink(path)


def _rename(context: ssl.SSLContext, name: str) -> None:
    """Ask for, and check, another name than the one that is dialled; also behind a proxy."""
    wrap_socket, wrap_bio = context.wrap_socket, context.wrap_bio
    setattr(context, "wrap_socket", lambda sock, **kw: wrap_socket(sock, **{**kw, "server_hostname": name}))  # noqa: B010
    setattr(  # noqa: B010
        context, "wrap_bio", lambda inc, out, **kw: wrap_bio(inc, out, **{**kw, "server_hostname": name})
    )
