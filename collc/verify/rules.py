"""Every rule: its id, which never changes, how bad it is, what it says and why it matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collc.verify.fast_rules import EXCHANGE
from collc.verify.findings import Finding
from collc.verify.format_rules import PLAN, TUNER
from collc.verify.route_rules import ROUTES
from collc.verify.rule import Rule, error, warning

_PER_RULE = 10  # findings shown of each rule; the rest is counted


_PROGRAM = {
    "peer": error(
        "a threadblock sends or receives without a peer, or its peer is no other rank of the communicator",
        "the runtime reads connections that were never set up",
    ),
    "channel": error("a channel number is negative", "connections are looked up by channel number"),
    "operand": error("an instruction lacks the slot it works on", "it has no meaning"),
    "count": error("an instruction moves no chunk, or fewer", "the runtimes divide by the count or index with it"),
    "out-of-range": error(
        "an instruction reaches past the end of a buffer",
        "runtimes check the first slot at most, so other memory is read or overwritten",
    ),
    "wait-target": error("an instruction waits for one that does not exist", "it waits forever"),
    "duplicate-connection": error(
        "two threadblocks of a rank use the same peer, channel and direction",
        "they take each other's queue places, and data is lost or mixed",
    ),
    "unmatched-send": error(
        "a connection has more sends than receives",
        "the queue is not empty at the end, and the next pass of the loop receives the wrong item",
    ),
    "unmatched-receive": error("a connection has more receives than sends", "the receiver waits forever"),
    "count-mismatch": error(
        "a send and the receive it feeds have different counts", "both ends lose step, and hang or mix data"
    ),
    "deadlock": error("threadblocks wait for each other in a circle, however deep the queues", "the job hangs"),
    "fifo-depth": error("the program ends only with deeper queues than the protocol has", "the job hangs"),
    "fifo-depth-large": error(
        "with large messages, where chunks no longer share a queue place, the queues are too short",
        "the job hangs above some message size, which the buffer size of the protocol sets; the file serves such sizes",
    ),
    "race": error(
        "two accesses of one place, at least one a write, may run in either order",
        "the result depends on timing, and is wrong now and then",
    ),
    "self-overlap": error(
        "an instruction reads and writes ranges that overlap without being the same",
        "its threads work side by side, so some read what others have already overwritten",
    ),
    "uninitialized-read": error("an instruction reads a slot that holds nothing", "it moves garbage"),
    "missing-contribution": error("an output slot lacks a contribution", "the result is wrong"),
    "double-contribution": error("an output slot adds a contribution more than once", "the result is wrong"),
    "wrong-result": error("an output slot holds what does not belong there", "the result is wrong"),
    "input-overwritten": error(
        "an input slot that is no output slot does not stay as it is",
        "the send buffer is the caller's and constant; other work may be reading it",
    ),
    "not-judged": error("more chunks or moves than collc checks", "nothing is known about what the program does"),
    "no-output-buffer": warning(
        "a rank without output in this collective uses its output buffer",
        "callers may pass no buffer there (NCCL documents it for reduce)",
    ),
}

_MSCCL = {
    "xml-syntax": error(
        "the file is no XML, or uses XML that the runtime's own reader does not take",
        "the runtimes read XML by a small reader of their own: no declaration, tabs, single quotes or entities; "
        "where it fails, the communicator cannot be created",
    ),
    "xml-non-ascii": warning(
        "a byte outside ASCII, not in a comment", "the runtimes read bytes and know no encoding; logs show other text"
    ),
    "xml-bounds": error(
        "the file has more elements, attributes or characters than the reader holds",
        "its arrays are of fixed length; some are checked, some overflow",
    ),
    "xml-number": error(
        "a number is not a plain decimal number",
        "the runtimes read by the rules of C: a leading 0 means octal, and text that is no number becomes 0",
    ),
    "attribute-missing": error("an attribute the runtime requires is not there", "the runtime refuses the file"),
    "attribute-value": error("an attribute has a value the runtime does not take", "the runtime refuses the file"),
    "collective-name": error("the collective is not spelt as this runtime spells it", "the runtime refuses the file"),
    "collective-unused": error("the runtime never serves this collective from a file", "the file is never selected"),
    "gpu-missing": error("a rank has no <gpu>, or more than one", "that rank runs nothing, and the others wait"),
    "threadblock-ids": error("threadblock ids are not 0, 1, 2, ...", "the runtime refuses the file"),
    "step-order": error(
        "step numbers are not 0, 1, 2, ... in the order they stand",
        "position orders the steps, but waits count by number: they come too early or never",
    ),
    "limit-ranks": error("more ranks than the reader holds", "its arrays overflow"),
    "limit-threadblocks": error("more threadblocks than the runtime takes", "the runtime refuses the file"),
    "limit-threadblocks-per-channel": error(
        "more threadblocks send, or receive, on a channel of a rank than the runtime takes",
        "the runtime refuses the file",
    ),
    "limit-steps": error("more steps in a threadblock than the runtime takes", "the runtime refuses the file"),
    "limit-count": error("a count above what the runtime takes", "the runtime refuses the file"),
    "limit-channels": error(
        "a channel number at or above nchannels, or more channels than the runtime or the user allows",
        "the connection is never set up, or an array is overrun",
    ),
    "limit-offset": error("an offset does not fit into 16 bits", "it wraps round and names another slot"),
    "limit-elements": error(
        "a rank reads more elements than the runtime's reader holds", "the runtime refuses the file"
    ),
    "limit-name": warning("a name longer than the runtime keeps", "it is cut, or overflows above 255 characters"),
    "step-type": error("a step type the runtime does not know", "the runtime refuses the file"),
    "step-type-unsupported": error(
        "a step type that this runtime reads and then does not run", "the launch fails with an internal error"
    ),
    "wait-incomplete": error("only one of depid and deps names something", "the wait names nothing, or something else"),
    "wait-not-announced": error(
        "a step waits for one that does not announce itself, nor does a later one of its threadblock (hasdep)",
        "it waits forever; no runtime checks this",
    ),
    "wait-announced-late": warning(
        "a step waits for one that does not announce itself; a later step does (hasdep)", "it works, but waits longer"
    ),
    "wait-threadblock-id": error(
        "a step waits for a threadblock whose id the runtime cannot hold",
        "the id turns negative and nothing is awaited",
    ),
    "nop-chain": error(
        "steps of type nop that wait are not followed by a step that waits itself",
        "the runtime refuses the file, or drops the waits",
    ),
    "reduce-fusion": error(
        "adjacent re steps that the runtime runs as one have different counts",
        "the last count is used for all of them, silently",
    ),
    "byte-range": error("no message size lies in the range from minBytes to maxBytes", "the file is never selected"),
    "min-bytes": warning(
        "minBytes admits chunks smaller than the protocol can move whole", "parts of a chunk are not updated"
    ),
    "no-calls": error("the file serves neither in-place nor out-of-place calls", "the file is never selected"),
    "chunk-division": error(
        "nchunksperloop is no multiple of the number of ranks, though each rank has its block",
        "blocks would end inside a chunk, so chunks mix the data of two ranks",
    ),
    "chunk-counts": warning(
        "i_chunks or o_chunks does not fit the collective and nchunksperloop",
        "this runtime ignores them, others refuse the file, and the author meant something else",
    ),
    "chunk-counts-refused": error(
        "i_chunks or o_chunks does not fit the collective and nchunksperloop", "the runtime refuses the file"
    ),
    "any-root": warning(
        "a collective with a root, in a file that cannot say which",
        "runtimes select the file whatever root the call names; calls with another root get wrong results",
    ),
    "size-not-served": warning(
        "a message size that was asked for is not served by the file",
        "the library falls back to its own algorithm without a word",
    ),
}

_FLOW = {
    "route-missing": error("a route uses a link that does not exist", "nothing can cross it"),
    "route-relay": error(
        "a route passes through a GPU", "a GPU in between is a hop of its own: it must receive and send"
    ),
    "route-ends": error("a route does not lead from the rank it names to the other", "the data ends elsewhere"),
    "tree-incomplete": error(
        "a tree leaves out a contributor or a consumer", "the result lacks a part, or a rank lacks the result"
    ),
    "tree-double": error(
        "a tree gathers from a rank twice or reaches it twice", "a part is counted twice or sent in vain"
    ),
    "tree-order": error(
        "a tree's edge stands before one that feeds it", "the rank does not hold yet what it is to send"
    ),
    "symmetry": error(
        "a renaming that trees are repeated by is not one to one, or takes a GPU to a switch or a link to none or to "
        "one of another bandwidth",
        "the trees it makes are not ways on this fabric, or take another time",
    ),
    "weights": error("the weights of a chunk's trees do not add to one", "a share of the chunk is lost or sent twice"),
    "overload": error(
        "a link carries more than its bandwidth allows in the stated time", "the claim of speed is false"
    ),
    "time": error("the stated time is longer than any link needs", "the claim of speed is false"),
    "witness": error("a bound's witness names what is not there", "it proves nothing"),
    "bound": error("a stated bound is not what its witness proves", "the claim of optimality is unproven"),
    "bound-beaten": error("the stated time is less than a proven bound", "no schedule can be that fast"),
}

_SCHEDULE = {
    "chunk-count": error("a chunk of a schedule fills several slots", "sends count chunks of one slot"),
    "not-held": error("a rank sends a chunk it does not hold at that step", "it sends garbage"),
    "add-to-nothing": error("a rank adds to a chunk it does not hold", "it adds to garbage"),
    "collision": error("two sends of a step write one place, not both adding", "the later one decides"),
}

_FILES = {
    "topology-ranks": error("a file is for another number of ranks than the topology has", "it is never selected"),
    "nic-connections": error(
        "more connections cross a NIC in one direction than are allowed",
        "their queues and buffers do not fit the NIC's caches, and bandwidth collapses",
    ),
    "nic-parity": warning(
        "a channel enters and leaves one host by the same NIC, and another host by two",
        "NICs carry unequal shares, and the busiest one sets the pace",
    ),
    "no-route": error(
        "a rank sends to one it reaches only through other GPUs", "the connection does not exist or is slow"
    ),
    "collective-differs": error(
        "a file computes another collective than asked for", "calls are served by another file"
    ),
    "collective-shape": error(
        "a file has other ranks or chunks than the conditions or the demand it is held against",
        "its chunks are not theirs, so nothing can be said of it",
    ),
    "demand-padded": warning(
        "an all-to-all with blocks of one size is to serve a demand of unequal amounts",
        "every block is as large as the largest, so more bytes move than are asked for",
    ),
    "demand-differs": error("a file moves other amounts than the demand asks for", "the result is wrong"),
    "stray-file": error(
        "a file in a runtime's directory is not one it reads",
        "the runtime's scan of the directory stops there: files behind it are not read, those before it may go "
        "unused or crash the process; a file that passes the scan but not the parser fails the communicator",
    ),
    "overlapping-ranges": error(
        "two files of a directory serve the same calls",
        "some runtimes read directories unsorted: hosts may pick different files, and hang",
    ),
    "limit-files": error("more files in a directory than the runtime loads", "the runtime refuses them or drops some"),
}

RULES: Mapping[str, Rule] = {
    **_PROGRAM,
    **_MSCCL,
    **_FLOW,
    **_SCHEDULE,
    **_FILES,
    **PLAN,
    **TUNER,
    **EXCHANGE,
    **ROUTES,
}


class Collector:
    """Findings as they are made, each rule's first ten and a count of the rest.

    Args:
        lines: (rank, threadblock, step) -> line and column.
    """

    def __init__(self, lines: Mapping[tuple[int, int, int], tuple[int, int]] | None = None) -> None:
        self._lines = lines or {}
        self._findings: list[Finding] = []
        self._counts: dict[str, int] = {}

    @property
    def has_errors(self) -> bool:
        """Whether anything found so far is an error."""
        return any(RULES[rule].severity == "error" for rule in self._counts)

    def add(
        self,
        rule: str,
        message: str,
        where: tuple[int, int, int] | None = None,
        *,
        place: tuple[int, int] | None = None,
    ) -> None:
        """Take a finding of a rule, at a step of a program or at a line and column."""
        if place is None and where is not None:
            place = self._lines.get(where)
        line, column = place or (None, None)
        rank, threadblock, step = where or (None, None, None)
        self.take(Finding(rule, RULES[rule].severity, message, line, column, rank, threadblock, step))

    def take(self, finding: Finding) -> None:
        """Take a finding that is made already."""
        self._counts[finding.rule] = self._counts.get(finding.rule, 0) + 1
        if self._counts[finding.rule] <= _PER_RULE:
            self._findings.append(finding)

    def findings(self) -> tuple[Finding, ...]:
        """What was found, in the order it was; at the end how much more there is of each rule."""
        more = [
            Finding(rule, RULES[rule].severity, f"and {count - _PER_RULE} more of {rule}")
            for rule, count in self._counts.items()
            if count > _PER_RULE
        ]
        return (*self._findings, *more)


def collected(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The first findings of each rule, and a count of the rest of each."""
    found = Collector()
    for finding in findings:
        found.take(finding)
    return found.findings()
