"""The command: python -m testbed build | up | status | kubeconfig | kubectl | down."""

import argparse
import os
import sys
import time

from testbed.bed import Bed, running, sweep
from testbed.errors import BedError
from testbed.operators import OPERATORS
from testbed.parts import build_all, steps
from testbed.programs import program


def main(words: list[str]) -> int:
    """Do what the words say; what is wrong is one line and the exit code 1."""
    asked = parser().parse_args(words)
    try:
        asked.do(asked)
    except (BedError, TimeoutError) as error:
        sys.stderr.write(f"testbed: {error}\n")
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The command's words and options."""
    top = argparse.ArgumentParser("python -m testbed", description="A real Kubernetes on this machine, for tests.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build what is missing: programs, Debian packages, images")
    build.set_defaults(do=lambda _: build_all())
    up = commands.add_parser("up", help="start a test bed and leave it running")
    up.add_argument("--no-kubelet", action="store_true", help="the API server and simulated nodes only")
    up.add_argument("--operators", default="", metavar="A,B", help=f"of {','.join(OPERATORS)}, or all")
    up.set_defaults(do=_up)
    status = commands.add_parser("status", help="what is built and what runs")
    status.set_defaults(do=_status)
    kubeconfig = commands.add_parser("kubeconfig", help="print the path of a user's kubeconfig")
    kubeconfig.add_argument("user", nargs="?", default="admin", help="admin, alice, bob, ci, carol, guest")
    kubeconfig.add_argument("--with", dest="way", choices=["token", "exec"], default="", help="not a certificate")
    kubeconfig.set_defaults(do=_kubeconfig)
    kubectl = commands.add_parser("kubectl", help="kubectl as the administrator", prefix_chars="\0")
    kubectl.add_argument("words", nargs=argparse.REMAINDER)
    kubectl.set_defaults(do=_kubectl)
    down = commands.add_parser("down", help="end a test bed; nothing of it is left")
    down.add_argument("--all", action="store_true", help="all that run")
    down.set_defaults(do=_down)
    for command in (kubeconfig, down):
        command.add_argument("--bed", type=int, help="its number, when several run")
    return top


def _up(asked: argparse.Namespace) -> None:
    names = tuple(OPERATORS) if asked.operators == "all" else tuple(filter(None, asked.operators.split(",")))
    start = time.monotonic()
    bed = Bed.start(kubelet=not asked.no_kubelet, operators=names, detached=True)
    sys.stderr.write(f"test bed {bed.place.number} is up ({time.monotonic() - start:.1f} s)\n")
    sys.stdout.write(f"{bed.kubeconfig()}\n")


def _status(_: argparse.Namespace) -> None:
    missing = [title for title, _ in steps()]
    sys.stdout.write(f"not built: {'; '.join(missing)}\n" if missing else "built\n")
    for bed in running():
        sys.stdout.write(f"test bed {bed.place.number}: {bed.place.server}, {bed.kubeconfig()}\n")


def _kubeconfig(asked: argparse.Namespace) -> None:
    sys.stdout.write(f"{_chosen(asked.bed).kubeconfig(asked.user, asked.way)}\n")


def _kubectl(asked: argparse.Namespace) -> None:
    path = str(program("kubectl"))
    config = str(_chosen(None).kubeconfig())
    os.execve(path, ["kubectl", *asked.words], {**os.environ, "KUBECONFIG": config})


def _down(asked: argparse.Namespace) -> None:
    beds = running() if asked.all else [_chosen(asked.bed)]
    for bed in beds:
        bed.stop()
    sweep()


def _chosen(number: int | None) -> Bed:
    beds = running()
    if number is not None:
        beds = [bed for bed in beds if bed.place.number == number]
    if not beds:
        raise BedError("no test bed is up", "python -m testbed up")
    return beds[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
