"""What a container's runtime says of a program that it could not start, as one machine says it."""

from __future__ import annotations

import re

_ROOT = re.compile(
    r"(?s).*unable to start container process: (?:error during container init: )?|(?s:.*)container create failed: "
)
_KUBELET = re.compile(r"(?s)(?:: unknown)?(?:: Error on reading termination message.*)?\s*$")
_MISSING = (
    r'exec: "(?P<program>(?:[^"\\]|\\.)*)": (?:executable file not found in \$PATH|stat .*: no such file or directory)',
    r"executable file `(?P<program>[^`]*)` not found in \$PATH.*",  # crun
)
_INTERPRETER = r"exec (?P<program>[^\n]+): no such file or directory"
_OTHER = r'exec:? "?(?P<program>(?:[^"\\\n]|\\.)+)"?: (?P<said>permission denied|exec format error|is a directory)'


def plain(message: str) -> str:
    r"""The program and what was wrong with it; other words without the runtime's steps before them.

    >>> plain('runc: unable to start container process: exec: "nosuch": executable file not found in $PATH')
    'nosuch: not found'
    >>> plain('unable to start container process: exec: "./data.csv": permission denied: unknown')
    './data.csv: permission denied'
    """
    said = _KUBELET.sub("", _ROOT.sub("", message), count=1)
    for pattern in _MISSING:
        if found := re.fullmatch(pattern, said):
            return f"{_name(found)}: not found"
    if found := re.fullmatch(_INTERPRETER, said):
        return f"{_name(found)} or its interpreter: not found"
    if found := re.fullmatch(_OTHER, said):
        return f"{_name(found)}: {found['said'].replace('is a directory', 'is a folder')}"
    return said


def _name(found: re.Match[str]) -> str:
    """The program as it was typed: Go writes a backslash before a quotation mark."""
    return re.sub(r"\\(.)", r"\1", found["program"])
