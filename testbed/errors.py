"""The one error of the test bed: one line that says what is missing and how to get it."""


class BedError(Exception):
    """What is wrong, and what to do about it.

    >>> str(BedError("etcd is not built", "python -m testbed build"))
    'etcd is not built: python -m testbed build'
    """

    def __init__(self, what: str, how: str = "") -> None:
        super().__init__(f"{what}: {how}" if how else what)
