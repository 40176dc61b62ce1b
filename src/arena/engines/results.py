"""A container that keeps what its program wrote until it has been fetched: rank 0 of `run --fetch`.

The container ends with the program's code, at most ten minutes after it; at once when it is told to end.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena.engines.base import Manifest, Work
from arena.job import Role

FOLDER = "/arena/fetch"
CODE, FETCHED = f"{FOLDER}/code", f"{FOLDER}/fetched"
PATIENCE = 600  # seconds for the copy

# Rank 0 is told by what the operators and the Job controller set; where nobody says, it is the only one.
KEEPER = f"""# arena: keeps what was written until it is fetched
i=${{JOB_COMPLETION_INDEX:-${{RANK:-${{PET_NODE_RANK:-0}}}}}}
case ${{TF_CONFIG:-}} in *'"index":0'*) i=0;; *index*) i=1;; esac
[ "$i" = 0 ] || exec "$@"
: > {CODE}; : > {FETCHED}
"$@" & p=$!; end=; now=
trap 'end=1; now=1; kill -TERM $p 2>/dev/null' TERM INT
while :; do now=; wait $p; code=$?; [ "$now" ] || break; done
echo $code > {CODE}
n=0; while [ -z "$end" ] && [ ! -s {FETCHED} ] && [ $n -lt {PATIENCE} ]; do sleep 1 || break; n=$((n+1)); done
exit $code
"""


def keeps(work: Work, role: Role) -> bool:
    """Whether the containers of this role wait for the copy: those of the role that has rank 0."""
    first = next((one for one in work.roles if one.ranked and one.count), None)
    return bool(work.fetch and first and role.name == first.name)


def keep(spec: Manifest, main: Manifest) -> None:
    """Let the container keep what its program writes."""
    main["command"] = ["sh", "-c", KEEPER, "sh", *main["command"]]
    main.setdefault("volumeMounts", []).append({"name": "arena-fetch", "mountPath": FOLDER})
    spec.setdefault("volumes", []).append({"name": "arena-fetch", "emptyDir": {}})


def kept(command: Sequence[str]) -> Sequence[str]:
    """The program's own words in a container's command.

    >>> kept(["sh", "-c", KEEPER, "sh", "python3", "train.py"])
    ['python3', 'train.py']
    """
    return command[4:] if list(command[1:3]) == ["-c", KEEPER] else command
