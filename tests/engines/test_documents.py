"""YAML of objects arrives as it was meant, here and in kubectl."""

import datetime as dt
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from arena.engines.documents import dump_documents, read_documents
from arena.errors import SpecError

ODD = ["1e3", "y", "N", "on", "0x1f", "0o17", "017", "1_000", "2026-01-31", "1:30", "~", "", "null", ".5", "=", "-1"]


def test_text_stays_text_for_every_reader():
    text = dump_documents([{"env": ODD}])
    assert read_documents(text, "x") == [{"env": ODD}]
    assert yaml.safe_load(text) == {"env": ODD}
    assert all(f"- '{one}'" in text for one in ODD)


@given(st.lists(st.dictionaries(st.text("ab", min_size=1), st.text() | st.integers() | st.booleans()), min_size=1))
def test_what_is_written_is_read(documents):
    text = dump_documents([{"d": one} for one in documents])
    assert read_documents(text, "x") == [{"d": one} for one in documents]


def test_read_as_kubectl_reads():
    said = "a: 2026-01-31\nb: 1:30\nc: 1e3\nd: 0644\ne: yes\nf:\ng: '1'\nh: 1.5\n"
    (found,) = read_documents(said, "x")
    assert found == {"a": "2026-01-31", "b": "1:30", "c": 1000.0, "d": 420, "e": True, "f": None, "g": "1", "h": 1.5}
    assert not isinstance(found["a"], dt.date)
    json.dumps(found)


def test_what_is_no_yaml():
    with pytest.raises(SpecError, match=r"f\.yaml is not YAML"):
        read_documents("a: {", "f.yaml")


def test_a_key_that_stands_twice_is_refused_with_its_place() -> None:
    text = "kind: Job\nmetadata:\n  name: a\n  labels: {}\n  name: b\n"
    with pytest.raises(SpecError) as caught:
        read_documents(text, "x.yaml")
    where = "line 5, column 3: the key 'name' stands twice, first in line 3"
    assert str(caught.value) == f"x.yaml is not YAML: {where}"
    assert read_documents("a: {x: 1}\nb: {x: 1}\n", "x.yaml") == [{"a": {"x": 1}, "b": {"x": 1}}]
