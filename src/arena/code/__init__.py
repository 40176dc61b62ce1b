"""The code of a run: which folder travels, and what of it is kept with the record.

The folder is the project's; git says which files belong to it (tracked and new ones, minus ignored), a walk does where
there is no git. Keys and credentials stay behind unless they are named. What is kept is content-addressed: equal files
are stored once, whatever the run. Nothing here raises for an odd file: it is left out, and `left_out` says why.

Paths are relative, with `/`; names that are not UTF-8 are Python's surrogates, and a hex text in JSON.
"""

from arena.code.git import commit_of, diff_of
from arena.code.kept import LEFT_OUT_LIMIT, Capture, CodeFile, capture, content, contents, gc, restore
from arena.code.travelling import LeftOut, folders_at_top, named_files, project_root, travelling_files

__all__ = [
    "LEFT_OUT_LIMIT",
    "Capture",
    "CodeFile",
    "LeftOut",
    "capture",
    "commit_of",
    "content",
    "contents",
    "diff_of",
    "folders_at_top",
    "gc",
    "named_files",
    "project_root",
    "restore",
    "travelling_files",
]
