"""The test beds of this folder's tests; see beds.py."""

from cluster.beds import bed, name, node, pytest_collection_modifyitems, pytest_configure

__all__ = ["bed", "name", "node", "pytest_collection_modifyitems", "pytest_configure"]
