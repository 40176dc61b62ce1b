"""A certificate authority of the test bed's own: pods and users can check whom they speak to."""

import subprocess
from pathlib import Path

from testbed.errors import BedError
from testbed.layout import API_SERVICE, BRIDGE, Layout
from testbed.users import PEOPLE

_AUTHORITY = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # some clients insist on it
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def make_certificates(bed: Layout) -> None:
    """Write the authority, the API server's pair, each person's pair and the key of the service accounts."""
    folder = bed.certificates
    folder.mkdir(mode=0o700)
    _openssl(folder, "req", "-x509", *_new_key("ca"), "-subj", "/CN=arena-testbed", "-days", "365", *_AUTHORITY)
    addresses = ("127.0.0.1", BRIDGE, API_SERVICE, bed.address)
    alternatives = [*(f"DNS:{name}" for name in NAMES), *(f"IP:{address}" for address in addresses)]
    _sign(folder, "apiserver", "/CN=kube-apiserver", "subjectAltName=" + ",".join(alternatives))
    for user in PEOPLE:
        groups = "".join(f"/O={group}" for group in user.groups)
        _sign(folder, user.name, f"{groups}/CN={user.name}", "extendedKeyUsage=clientAuth")
    _openssl(folder, "genrsa", "-out", "service-accounts.key", "2048")


def _sign(folder: Path, name: str, subject: str, extension: str) -> None:
    authority = ["-CA", "ca.crt", "-CAkey", "ca.key", "-days", "365", "-addext", "basicConstraints=critical,CA:FALSE"]
    _openssl(folder, "req", "-x509", *_new_key(name), "-subj", subject, *authority, "-addext", extension)


def _new_key(name: str) -> list[str]:
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    return [*kind, "-keyout", f"{name}.key", "-out", f"{name}.crt"]


def _openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError("openssl failed", done.stderr.strip()[-500:])
