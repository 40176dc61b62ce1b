"""Writes empty stand-ins for the CUDA libraries that PyTorch's wheel links, so that it loads on a machine without them.

For tests only: `torch.cuda.is_available()` is False, and a call into CUDA returns an error code. Each library that a
`.so` of the folder needs becomes one small file with that name, which defines every symbol asked of it under the
version asked. Needs gcc and readelf.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
CUDA_SYMBOL = re.compile(r"_?_?(cu|nccl|nv|NV)")
ERROR_CODE = 100  # cudaErrorNoDevice

NEEDED = re.compile(r"\(NEEDED\).*\[(.*?)\]")
VERSIONS_OF = re.compile(r"File: (\S+)\s+Cnt")
VERSION = re.compile(r"Name: (\S+)\s+Flags: \S+\s+Version: \d+")


@dataclass
class Wanted:
    """What the files of a folder ask of CUDA's libraries."""

    libraries: set[str] = field(default_factory=set)
    versioned: dict[str, dict[str, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    unversioned: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)


def wanted_by(files: Iterable[Path]) -> Wanted:
    """The libraries, versions and symbols that these shared objects ask for."""
    wanted = Wanted()
    for path in files:
        library_of = _read_libraries(path, wanted)
        _read_symbols(path, wanted, library_of)
    wanted.unversioned -= wanted.defined
    return wanted


def _read_libraries(path: Path, wanted: Wanted) -> dict[str, str]:
    """Add the needed libraries; the answer tells which library each symbol version belongs to."""
    library_of: dict[str, str] = {}
    library = ""
    for line in _readelf("-d", "-V", path):
        if (match := NEEDED.search(line)) and CUDA_LIBRARY.match(match[1]):
            wanted.libraries.add(match[1])
        elif match := VERSIONS_OF.search(line):
            library = match[1]
        elif match := VERSION.search(line):
            library_of[match[1]] = library
    return library_of


def _read_symbols(path: Path, wanted: Wanted, library_of: dict[str, str]) -> None:
    for line in _readelf("--dyn-syms", path):
        columns = line.split()
        if len(columns) < 8:
            continue
        name, _, version = columns[7].partition("@")
        version = version.lstrip("@")
        library = library_of.get(version, "")
        if columns[6] != "UND":
            wanted.defined.add(name)
        elif CUDA_LIBRARY.match(library):
            wanted.versioned[library][version].add(name)
        elif not version and CUDA_SYMBOL.match(name):
            wanted.unversioned.add(name)


def _readelf(*arguments: str | Path) -> list[str]:
    done = subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def write_stubs(folder: Path, wanted: Wanted) -> list[Path]:
    """Write one stand-in per library; symbols that name no version go into the first."""
    libraries = sorted(wanted.libraries)
    unversioned = dict.fromkeys(libraries[:1], wanted.unversioned)
    return [
        write_stub(folder / library, wanted.versioned[library], unversioned.get(library, set()))
        for library in libraries
    ]


def write_stub(target: Path, versioned: dict[str, set[str]], unversioned: set[str]) -> Path:
    """Compile one shared library whose functions all return an error code."""
    symbols = sorted(unversioned.union(*versioned.values()))
    code = "".join(f"int {symbol}(void) {{ return {ERROR_CODE}; }}\n" for symbol in symbols)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "stub.c")
        source.write_text(code or "int cuda_stub;\n")
        command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{target.name}"]
        command += ["-o", str(target), str(source)]
        if versioned:
            versions = Path(scratch, "versions.map")
            versions.write_text("".join(_version_node(name, versioned[name]) for name in sorted(versioned)))
            command.append(f"-Wl,--version-script={versions}")
        subprocess.run(command, check=True)
    return target


def _version_node(version: str, symbols: set[str]) -> str:
    return f"{version} {{ {' '.join(f'{symbol};' for symbol in sorted(symbols))} }};\n"


def main() -> int:
    """Fill PyTorch's own library folder, where its loader looks first."""
    parser = argparse.ArgumentParser(description="Write stand-ins for the CUDA libraries that PyTorch links.")
    parser.add_argument("folder", type=Path, help="torch/lib of the environment")
    folder: Path = parser.parse_args().folder
    present = sorted(folder.glob("*.so*"))
    stubs = write_stubs(folder, wanted_by(present))
    print(f"cuda_stubs: {len(stubs)} libraries in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
