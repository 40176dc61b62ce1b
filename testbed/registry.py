"""The registry `localhost` of a node: it serves the images made on this machine to pods that want to pull always.

Run inside a test bed, where port 80 is nobody else's: `python -m testbed.registry`. It answers what a pull asks for;
the layers are on the node already, so that only a manifest of some hundred bytes is read.
"""

import hashlib
import json
import re
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from testbed.images import images

PORT = 80
PIECE = 1 << 20
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


class Blob(NamedTuple):
    """Some bytes of an archive, or bytes by themselves."""

    size: int
    path: Path | None = None
    offset: int = 0
    content: bytes = b""


class Store:
    """Every image of the test bed, by name, and what its parts are, by digest."""

    def __init__(self, archives: dict[str, Path]) -> None:
        self.blobs: dict[str, Blob] = {}
        self.names = {name: self._add(path) for name, path in archives.items()}

    def _add(self, path: Path) -> str:
        """Read an archive; the digest of its manifest."""
        with tarfile.open(path) as archive:
            found = archive.extractfile("config.json")
            assert found
            config = found.read()
            layer = archive.getmember("layer.tar")
        [layer_digest] = json.loads(config)["rootfs"]["diff_ids"]
        self.blobs[layer_digest] = Blob(layer.size, path, layer.offset_data)
        config_digest = self._keep(config)
        parts = {
            "config": _part(CONFIG, config_digest, len(config)),
            "layers": [_part(LAYER, layer_digest, layer.size)],
        }
        return self._keep(json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, **parts}).encode())

    def _keep(self, content: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blobs[digest] = Blob(len(content), content=content)
        return digest

    def find(self, path: str) -> tuple[str, str, Blob] | None:
        """The digest, type and bytes that a path of the registry's protocol names."""
        asked = re.fullmatch(r"/v2/(?P<name>[^/]+)/(?P<what>manifests|blobs)/(?P<reference>[^/]+)", path)
        if not asked:
            return None
        digest = self.names.get(f"localhost/{asked['name']}:{asked['reference']}", asked["reference"])
        kind = MANIFEST if asked["what"] == "manifests" else "application/octet-stream"
        return (digest, kind, self.blobs[digest]) if digest in self.blobs else None


def _part(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": size}


class Server(ThreadingHTTPServer):
    """Answers from a store."""

    def __init__(self, address: tuple[str, int], store: Store) -> None:
        super().__init__(address, Handler)
        self.store = store


class Handler(BaseHTTPRequestHandler):
    """The part of the protocol that a pull needs."""

    server: Server

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        found = self.server.store.find(self.path.partition("?")[0])
        self.send_response(200 if found or self.path == "/v2/" else 404)
        digest, kind, blob = found or ("", "text/plain", Blob(0))
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(blob.size))
        self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if self.command == "GET":
            self._write(blob)

    def _write(self, blob: Blob) -> None:
        self.wfile.write(blob.content)
        if blob.path:
            with blob.path.open("rb") as archive:
                archive.seek(blob.offset)
                left = blob.size
                while left and (piece := archive.read(min(left, PIECE))):
                    self.wfile.write(piece)
                    left -= len(piece)


if __name__ == "__main__":
    Server(("127.0.0.1", PORT), Store({image.name: image.path for image in images()})).serve_forever()
