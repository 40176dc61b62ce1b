"""The examples in the test bed's docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest
import testbed

MODULES = [f"testbed.{module.name}" for module in pkgutil.iter_modules(testbed.__path__) if module.name != "__main__"]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
