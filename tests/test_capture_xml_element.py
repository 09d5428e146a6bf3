"""XML inside captured text: lines, cuts, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torn_text import read

from topocheck.errors import CaptureError
from topocheck.probes.capture.xml_element import Element, read_documents


def documents(text: str) -> list[Element]:
    return list(read_documents(read(text), "a", "do better"))


def test_elements_know_their_lines_text_and_children() -> None:
    (root,) = documents('$ cat x\n<a k="1">\n  <b>one</b><b>two\n</b>\n  <c/>\n</a>\n')
    assert (root.line, root.end, root.attributes) == (2, 6, {"k": "1"})
    assert [(b.line, b.end, b.text.strip()) for b in root.all("b")] == [(3, 3, "one"), (3, 4, "two")]
    assert root.find("c")
    assert root.find("d") is None


def test_several_documents_are_read_and_what_stands_between_them_is_not() -> None:
    assert [root.line for root in documents("<a/>\n<b>\n<abc>\n<a></a> <x\n")] == [1, 4]


def test_a_cut_document_has_elements_without_an_end() -> None:
    (root,) = documents("<a>\n<b>1</b>\n<b>2")
    assert root.end is None
    assert [(child.text, child.end) for child in root.all("b")] == [("1", 2), ("2", None)]


@pytest.mark.parametrize(
    ("text", "line"),
    [("\n<a>\n</b></a>", 3), ("<a>&x;</a>", 1), ("<a" + "><a" * 120 + ">", 1), ("<a\n\n", 1)],
)
def test_what_is_not_well_formed_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(CaptureError) as refused:
        documents(text)
    assert refused.value.line == line


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<a>", "</a>", "<b>", "</b>", "\n", "x", '<a k="v">', "<a/>", "<!--", "&lt;", "<"])
    ).map("".join)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = documents(text)
    except CaptureError:
        return
    assert all(root.tag == "a" for root in found)
