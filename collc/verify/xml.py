"""XML as the runtimes read it.

All MSCCL runtimes share one small hand-made reader. A pass over the bytes finds what it would stumble
over; then lxml, with entities, network and external definitions off, gives the elements, also of a
file the runtime refuses, so that one look shows everything that is wrong with it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from collc.verify.rules import Collector

MAX_BYTES = 64 << 20  # a file for 1024 ranks at all limits is smaller
_MAX_ELEMENTS = 1 << 20
_MAX_TAG = 1 << 16  # 16 attributes of 255 characters fit many times
_MAX_ATTRIBUTES = 16  # the runtimes' reader drops the rest silently
_MAX_VALUE = 255  # its buffer; longer values overflow it

_TOKEN = re.compile(
    rb"[ \r\n]++"
    rb"|</[^\s<>/=\"']++>"
    rb"|<[^\s<>/=\"'!?][^\s<>/=\"']*+(?: ++[^\s<>/=\"']++=\"[^\"]*+\")*+ *+/?>"
)
_OPEN_TAG = re.compile(rb"<[A-Za-z_:\x80-\xff]")
_COMMENT_HEAD = re.compile(rb"<!--[^ >/\r\n=]*+=")


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a file.

    Attributes:
        tag: its name.
        attributes: as they stand.
        depth: 0 for the root.
        line, column: of its first character, counted from one.
    """

    tag: str
    attributes: dict[str, str]
    depth: int
    line: int
    column: int

    @property
    def place(self) -> tuple[int, int]:
        """Line and column."""
        return self.line, self.column


def elements(text: bytes, found: Collector) -> list[Element]:
    """The elements of a file in document order; none where it cannot be read at all."""
    if len(text) > MAX_BYTES:
        found.add("xml-bounds", f"the file has {len(text)} bytes; expected at most {MAX_BYTES}", place=(1, 1))
        return []
    newlines = [match.start() for match in re.finditer(rb"\n", text)]
    blanked = _without_comments(text, newlines, found)
    if blanked is None:
        return []
    _scan(blanked, newlines, found)
    starts = [match.start() for match in _OPEN_TAG.finditer(blanked)]
    if not _is_safe(blanked, starts, newlines, found):
        return []
    return _parse(blanked, starts, newlines, found)


def _place(offset: int, newlines: list[int]) -> tuple[int, int]:
    """Line and column of an offset."""
    line = bisect_left(newlines, offset)
    return line + 1, offset - (newlines[line - 1] + 1 if line else 0) + 1


def _without_comments(text: bytes, newlines: list[int], found: Collector) -> bytes | None:
    """The text with comments blanked, as XML forbids some that the runtimes take."""
    pieces = []
    end = 0
    while (start := text.find(b"<!--", end)) >= 0:
        pieces.append(text[end:start])
        stop = text.find(b"-->", start + 2)
        if stop < 0:
            found.add("xml-syntax", "a comment is not closed", place=_place(start, newlines))
            return None
        end = stop + 3
        comment = text[start:end]
        if _COMMENT_HEAD.match(comment):
            found.add(
                "xml-syntax",
                "a comment has '=' in its first word, which the runtime takes for an attribute; "
                "expected a space after '<!--'",
                place=_place(start, newlines),
            )
        pieces.append(re.sub(rb"[^\n]", b" ", comment))
    return b"".join((*pieces, text[end:]))


def _scan(text: bytes, newlines: list[int], found: Collector) -> None:
    """Walk as the runtime's reader does, and say where it stops."""
    end = 0
    for match in _TOKEN.finditer(text):
        if match.start() != end:
            break
        end = match.end()
    if end < len(text):
        found.add("xml-syntax", f"{_offence(text, end)}; the runtime's reader stops here", place=_place(end, newlines))
    other = re.search(rb"[^\x00-\x7f]", text)
    if other:
        found.add(
            "xml-non-ascii",
            f"byte {other[0][0]:#04x}; expected ASCII outside comments",
            place=_place(other.start(), newlines),
        )


def _offence(text: bytes, start: int) -> str:
    """What stands at a place where the runtime's reader stops."""
    head = text[start : start + 12]
    for begin, words in (
        (b"\xef\xbb\xbf", "a byte order mark"),
        (b"<?", "a declaration '<?'"),
        (b"<!", "a '<!' that starts no comment"),
        (b"\t", "a tab; it skips only spaces and line ends"),
    ):
        if head.startswith(begin):
            return words
    if not head.startswith(b"<"):
        return f"text outside of tags, {head.decode('ascii', 'replace')!r}"
    tag = text[start : text.find(b">", start) + 1] or text[start : start + _MAX_TAG]
    for byte, words in (
        (b"'", "a tag with single quotes; it takes double quotes"),
        (b"\t", "a tag with a tab; it takes spaces"),
        (b"\n", "a tag over several lines; it takes spaces between attributes"),
        (b"\r", "a tag over several lines; it takes spaces between attributes"),
    ):
        if byte in tag:
            return words
    return f"a malformed tag, {tag[:40].decode('ascii', 'replace')!r}"


def _is_safe(text: bytes, starts: list[int], newlines: list[int], found: Collector) -> bool:
    """Whether the text can be parsed in bounded time and memory."""
    forbidden = re.search(rb"<!(?:DOCTYPE|ENTITY|\[)", text, re.IGNORECASE)
    if forbidden:
        found.add(
            "xml-syntax",
            "a document type, entity or CDATA section; no runtime reads them, and they are not parsed here",
            place=_place(forbidden.start(), newlines),
        )
        return False
    if len(starts) > _MAX_ELEMENTS:
        found.add("xml-bounds", f"the file has {len(starts)} elements; expected at most {_MAX_ELEMENTS}", place=(1, 1))
        return False
    for start, after in zip(starts, [*starts[1:], len(text)], strict=False):
        if after - start > _MAX_TAG and text.find(b">", start, start + _MAX_TAG) < 0:
            found.add("xml-bounds", f"a tag of more than {_MAX_TAG} characters", place=_place(start, newlines))
            return False
    return True


class _Target:
    """Takes the parser's events; no tree is built."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, dict[str, str], int]] = []
        self._depth = 0

    def start(self, tag: Any, attrib: Any) -> None:
        self.opened.append((tag, dict(attrib), self._depth))
        self._depth += 1

    def end(self, tag: Any) -> None:
        self._depth -= 1

    def data(self, data: Any) -> None:
        """Text between tags; the scan has told of it."""

    def comment(self, text: Any) -> None:
        """None is left."""

    def close(self) -> None:
        """Nothing is built."""


def _parse(text: bytes, starts: list[int], newlines: list[int], found: Collector) -> list[Element]:
    from lxml import etree

    target = _Target()
    parser = etree.XMLParser(
        target=target, resolve_entities=False, no_network=True, load_dtd=False, recover=False, huge_tree=False
    )
    try:
        etree.fromstring(text, parser)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        found.add("xml-syntax", f"no XML: {error.msg.rsplit(', line ', 1)[0]}", place=(max(line, 1), max(column, 1)))
        return []
    read = []
    for (tag, attributes, depth), start in zip(target.opened, starts, strict=False):
        element = Element(tag, attributes, depth, *_place(start, newlines))
        if len(attributes) > _MAX_ATTRIBUTES:
            found.add(
                "xml-bounds",
                f"<{tag}> has {len(attributes)} attributes; the runtime drops those after the {_MAX_ATTRIBUTES}th",
                place=element.place,
            )
        for key, value in attributes.items():
            if len(value) > _MAX_VALUE:
                found.add(
                    "xml-bounds",
                    f"{key} has {len(value)} characters; the runtime's buffer holds {_MAX_VALUE}",
                    place=element.place,
                )
        read.append(element)
    return read
