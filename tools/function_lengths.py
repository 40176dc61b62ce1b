"""Prints how long the functions of the product are, and fails when they grow out of the house style.

A function's length is its lines from `def` to its end, without decorators, docstring, and functions inside it
(those are counted by themselves).
"""

import argparse
import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MEDIAN_UNDER = 10
LONGEST = 60
SHORT = 40
SHARE_SHORT = 0.85

FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)


class Function(NamedTuple):
    """One function: how many lines, and where it stands."""

    lines: int
    name: str
    path: Path
    line: int


def lengths(source: str, path: Path) -> Iterator[Function]:
    """The functions of one file, methods and inner functions included.

    >>> [f.lines for f in lengths('def f():\\n    "Doc."\\n    return 1\\n', Path("f.py"))]
    [2]
    """
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, FUNCTION_NODES):
            yield Function(_own_lines(node), node.name, path, node.lineno)


def _own_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    inner = [part for part in ast.walk(node) if isinstance(part, FUNCTION_NODES) and part is not node]
    taken = {line for part in inner for line in _lines(part)}
    if ast.get_docstring(node, clean=False) is not None:
        taken.update(_lines(node.body[0]))
    return len(set(_lines(node)) - taken)


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def judge(functions: list[Function]) -> list[str]:
    """What is wrong with these functions, one sentence each."""
    counts = [function.lines for function in functions]
    wrong = [
        f"{f.path}:{f.line}: {f.name} has {f.lines} lines, at most {LONGEST} are allowed"
        for f in functions
        if f.lines > LONGEST
    ]
    if (median := statistics.median(counts)) >= MEDIAN_UNDER:
        wrong.append(f"the median function has {median:g} lines, it must stay under {MEDIAN_UNDER}")
    if (share := _share_short(counts)) < SHARE_SHORT:
        wrong.append(f"only {share:.0%} of the functions are under {SHORT} lines, {SHARE_SHORT:.0%} must be")
    return wrong


def _share_short(counts: list[int]) -> float:
    return sum(count < SHORT for count in counts) / len(counts)


def main() -> int:
    """Print the figures of a folder; 1 if a rule is broken."""
    parser = argparse.ArgumentParser(description="Function lengths of a folder of Python files.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("src/arena"))
    parser.add_argument("--longest", type=int, default=0, metavar="N", help="also name the N longest functions")
    arguments = parser.parse_args()
    files = sorted(arguments.folder.rglob("*.py"))
    functions = [function for path in files for function in lengths(path.read_text(encoding="utf-8"), path)]
    if not functions:
        print(f"function lengths: no function in {arguments.folder}")
        return 0
    print(_summary([function.lines for function in functions]))
    for function in sorted(functions, reverse=True)[: arguments.longest]:
        print(f"  {function.lines:3} {function.path}:{function.line} {function.name}")
    wrong = judge(functions)
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


def _summary(counts: list[int]) -> str:
    ninetieth = sorted(counts)[int(0.9 * (len(counts) - 1))]
    return (
        f"function lengths: {len(counts)} functions, median {statistics.median(counts):g}, "
        f"90th percentile {ninetieth}, longest {max(counts)}, {_share_short(counts):.0%} under {SHORT} lines"
    )


if __name__ == "__main__":
    sys.exit(main())
