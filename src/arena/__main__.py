"""The program `arena`, and `python -m arena`, which is always this one, whatever else of the name is on the PATH."""

import os
import signal
import sys


def main() -> None:
    """Carry out the command line. Until it is read, Ctrl-C ends the process like any other, without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from arena.cli.main import main as command

    try:
        command()
    except SystemExit as end:
        if isinstance(end.code, int) and _is_followed():
            os._exit(end.code)
        raise


def _is_followed() -> bool:
    """Whether threads that nobody waits for are still there: an interpreter that shuts down under one may abort."""
    threading = sys.modules.get("threading")
    others = [one for one in threading.enumerate() if one is not threading.main_thread()] if threading else []
    return bool(others) and all(one.daemon for one in others)


if __name__ == "__main__":
    main()
