"""The program `arena`, and `python -m arena`, which is always this one, whatever else of the name is on the PATH."""

import signal


def main() -> None:
    """Carry out the command line. Until it is read, Ctrl-C ends the process like any other, without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from arena.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
