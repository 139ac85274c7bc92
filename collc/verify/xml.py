"""XML as the runtimes read it.

All MSCCL runtimes share one small hand-made reader. A pass over the bytes finds what it would stumble
over; then a real parser gives the elements, also of a file the runtime refuses, so that one look shows
everything that is wrong with it. A file that declares a document type or an entity is not parsed at all,
so nothing can expand, and nothing is fetched. Elements are handed out as they are read: a large file
is never in memory as a whole tree.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.parsers import expat

from collc.verify.rules import Collector

MAX_BYTES = 64 << 20  # a file for 1024 ranks at all limits is smaller
_MAX_ELEMENTS = 1 << 20
_MAX_LINES = 1 << 22
_MAX_TAG = 1 << 16  # 16 attributes of 255 characters fit many times
_MAX_ATTRIBUTES = 16  # the runtimes' reader drops the rest silently
_MAX_VALUE = 255  # its buffer; longer values overflow it

_PIECE = 1 << 16  # bytes the parser is given at a time

_READABLE = re.compile(
    rb"(?:[ \r\n]++"
    rb"|</[^\s<>/=\"']++>"
    rb"|<[^\s<>/=\"'!?][^\s<>/=\"']*+(?: ++[^\s<>/=\"']++=\"[^\"]*+\")*+ *+/?>)*+"
)
_LONG_VALUE = re.compile(rb"=\s*[\"'][^\"']{%d}" % _MAX_VALUE)
_NEWLINE = re.compile(rb"\n")
_LINE_END = re.compile(rb"\r\n?|\n")
_LONG_TAG = re.compile(rb"<[^>]{%d}" % _MAX_TAG)
_COMMENT_HEAD = re.compile(rb"<!--[^ >/\r\n=]*+=")


class Malformed(Exception):
    """The text is no XML; a finding says why."""


class Element(NamedTuple):
    """An element of a file.

    Attributes:
        tag: its name.
        attributes: as they stand.
        depth: 0 for the root.
        offset: of its first character [bytes].
        ends: offsets of all line ends of the file.
    """

    tag: str
    attributes: dict[str, str]
    depth: int
    offset: int
    ends: Sequence[int]

    @property
    def place(self) -> tuple[int, int]:
        """Line and column of its first character, counted from one."""
        return place_of(self.offset, self.ends)


def elements(text: bytes, found: Collector) -> list[Element]:
    """The elements of a file in document order; none where it cannot be read at all."""
    try:
        return [element for piece in stream(text, found) for element in piece]
    except Malformed:
        return []


def stream(text: bytes, found: Collector) -> Iterator[list[Element]]:
    """The elements of a file in document order, piece by piece as they are read.

    Raises:
        Malformed: it cannot be read, or not to the end.
    """
    for count, most, what in (
        (len(text), MAX_BYTES, "bytes"),
        (text.count(b"\n") + text.count(b"\r"), _MAX_LINES, "line ends"),
        (text.count(b"<") - text.count(b"</"), _MAX_ELEMENTS, "elements and comments"),
    ):
        if count > most:
            found.add("xml-bounds", f"the file has {count} {what}; expected at most {most}", place=(1, 1))
            raise Malformed
    line_end = _LINE_END if b"\r" in text else _NEWLINE
    ends = array("I", [match.end() - 1 for match in line_end.finditer(text)])
    blanked = _without_comments(text, ends, found)
    _scan(blanked, ends, found)
    _check_safe(blanked, ends, found)
    yield from _parse(blanked, ends, found)


def children(pieces: Iterator[list[Element]]) -> Iterator[list[Element]]:
    """The root by itself, then each element below it, followed by what is inside of it, as they are read."""
    group: list[Element] = []
    for piece in pieces:
        for element in piece:
            if element.depth == 1:
                yield group
                group = []
            group.append(element)
    if group:
        yield group


def place_of(offset: int, ends: Sequence[int]) -> tuple[int, int]:
    """Line and column of an offset."""
    line = bisect_left(ends, offset)
    return line + 1, offset - (ends[line - 1] + 1 if line else 0) + 1


def _without_comments(text: bytes, ends: Sequence[int], found: Collector) -> bytes:
    """The text with comments blanked, as XML forbids some that the runtimes take."""
    if b"<!--" not in text:
        return text
    pieces = []
    end = 0
    while (start := text.find(b"<!--", end)) >= 0:
        pieces.append(text[end:start])
        stop = text.find(b"-->", start + 2)
        if stop < 0:
            found.add("xml-syntax", "a comment is not closed", place=place_of(start, ends))
            raise Malformed
        end = stop + 3
        comment = text[start:end]
        if _COMMENT_HEAD.match(comment):
            found.add(
                "xml-syntax",
                "a comment has '=' in its first word, which the runtime takes for an attribute; "
                "expected a space after '<!--'",
                place=place_of(start, ends),
            )
        pieces.append(re.sub(rb"[^\r\n]", b" ", comment))
    return b"".join((*pieces, text[end:]))


def _scan(text: bytes, ends: Sequence[int], found: Collector) -> None:
    """Walk as the runtime's reader does, and say where it stops."""
    readable = _READABLE.match(text)
    end = readable.end() if readable else 0
    if end < len(text):
        found.add("xml-syntax", f"{_offence(text, end)}; the runtime's reader stops here", place=place_of(end, ends))
    other = None if text.isascii() else re.search(rb"[^\x00-\x7f]", text)
    if other:
        found.add(
            "xml-non-ascii",
            f"byte {other[0][0]:#04x}; expected ASCII outside comments",
            place=place_of(other.start(), ends),
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


def _check_safe(text: bytes, ends: Sequence[int], found: Collector) -> None:
    """Refuse what cannot be parsed in bounded time and memory."""
    if b"\0" in text:
        found.add("xml-syntax", "a zero byte; no runtime reads beyond it", place=place_of(text.index(b"\0"), ends))
        raise Malformed
    forbidden = re.search(rb"<!(?:DOCTYPE|ENTITY|\[)", text, re.IGNORECASE)
    if forbidden:
        found.add(
            "xml-syntax",
            "a document type, entity or CDATA section; no runtime reads them, and they are not parsed here",
            place=place_of(forbidden.start(), ends),
        )
        raise Malformed
    long = _LONG_TAG.search(text)
    if long:
        found.add("xml-bounds", f"a tag of more than {_MAX_TAG} characters", place=place_of(long.start(), ends))
        raise Malformed


def _parse(text: bytes, ends: Sequence[int], found: Collector) -> Iterator[list[Element]]:
    # As the runtimes do, one byte is one character whatever the file declares; what was looked for in the
    # bytes, such as a document type, can then not hide behind another encoding.
    parser = expat.ParserCreate("iso-8859-1")
    opened: list[Element] = []
    n_opened = 0
    closed: list[str] = []
    new = tuple.__new__  # what Element() comes down to

    def start(tag: str, attributes: dict[str, str]) -> None:
        # Runs for every element, so it does no more than it must.
        nonlocal n_opened
        opened.append(new(Element, (tag, attributes, n_opened - len(closed), parser.CurrentByteIndex, ends)))
        n_opened += 1

    parser.StartElementHandler = start
    parser.EndElementHandler = closed.append
    may_be_long = _LONG_VALUE.search(text) is not None
    try:
        for at in range(0, len(text) + 1, _PIECE):
            parser.Parse(text[at : at + _PIECE], at + _PIECE > len(text))
            for element in opened:
                if may_be_long or len(element.attributes) > _MAX_ATTRIBUTES:
                    _check_bounds(element, found)
            yield opened.copy()
            opened.clear()
    except expat.ExpatError as error:
        place = place_of(min(max(parser.ErrorByteIndex, 0), len(text)), ends)
        found.add("xml-syntax", f"no XML: {expat.ErrorString(error.code)}", place=place)
        raise Malformed from None


def _check_bounds(element: Element, found: Collector) -> None:
    tag, attributes = element.tag, element.attributes
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
