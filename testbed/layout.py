"""What one test bed is called and where its parts are: everything follows from its number and its folder.

Addresses inside are the same for every test bed, since each has a network of its own; only the pair of addresses
between the host and the test bed differs.
"""

import zlib
from pathlib import Path
from typing import NamedTuple

from testbed.places import beds

BRIDGE = "10.244.0.1"
PODS = "10.244.0.0/24"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
API_PORT = 6443
TOKEN_PORT = 6444
NODE = "node"
LAST_NUMBER = 99


class Layout(NamedTuple):
    """The names of test bed `number`.

    >>> Layout(3, Path("/x")).server
    'https://10.213.3.2:6443'
    """

    number: int
    folder: Path

    @property
    def link(self) -> str:
        """The host's end of the link; no two caches share a name, and none is longer than 15 letters."""
        return f"arenatb{self.number}-{self._mark}"

    @property
    def cgroup(self) -> str:
        return f"arena-testbed-{self.number}-{self._mark}"

    @property
    def is_taken(self) -> bool:
        """Whether a test bed has this number's addresses, even one of another cache."""
        return any(Path("/sys/class/net").glob(f"arenatb{self.number}-*"))

    @property
    def _mark(self) -> str:
        return f"{zlib.crc32(bytes(self.folder)) & 0xFFFF:04x}"

    @property
    def host_address(self) -> str:
        return f"10.213.{self.number}.1"

    @property
    def address(self) -> str:
        return f"10.213.{self.number}.2"

    @property
    def server(self) -> str:
        return f"https://{self.address}:{API_PORT}"

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def logs(self) -> Path:
        """The programs' logs; they stay until the number is used again."""
        return self.folder.parent.parent / "logs" / str(self.number)

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    @property
    def kubeconfigs(self) -> Path:
        return self.folder / "kubeconfigs"

    def kubeconfig(self, user: str, way: str = "") -> Path:
        return self.kubeconfigs / (f"{user}-{way}" if way else user)


def layout(number: int) -> Layout:
    """The test bed with this number, whether it runs or not."""
    return Layout(number, beds() / str(number))
