"""The rules for formats that are tables and plans: MSCCL++ plans and tuner tables."""

from __future__ import annotations

from collections.abc import Mapping

from collc.verify.rule import Rule, error, warning

PLAN: Mapping[str, Rule] = {
    "plan-syntax": error(
        "the plan is not JSON as the loader reads it, or too large", "the loader throws, and the communicator fails"
    ),
    "plan-key-missing": error(
        "a key that the loader reads is not there", "the loader throws on it, or reads what is not there"
    ),
    "plan-value": error(
        "a value is not of the type or not one of the words the loader takes",
        "the loader throws, or silently takes it for something else",
    ),
    "plan-former-word": error(
        "a word of MSCCL++ 0.7 and before, renamed in 0.8", "the loader of 0.8 and later does not know it, and throws"
    ),
    "plan-operation": error("an operation that this version does not know", "the loader throws"),
    "plan-ids": error(
        "ids of GPUs or threadblocks are not 0, 1, 2, ... in the order they stand",
        "the loader throws, or writes past the end of its tables",
    ),
    "plan-zero-chunks": error(
        "a GPU has no input or no output chunks", "the loader divides by their number, and the process dies"
    ),
    "plan-chunk-counts": error(
        "input and output chunks of a GPU are not of the same size for the collective",
        "the loader throws on every message size",
    ),
    "plan-rank": error(
        "a channel or a remote buffer names no other rank of the plan", "connecting fails, or waits forever"
    ),
    "plan-channel-reference": error(
        "a channel id names none of the channels there are", "the loader reads past the end of its tables"
    ),
    "plan-buffer-reference": error(
        "a buffer id, switch channel id or semaphore id names none there is",
        "the loader reads past the end of its tables",
    ),
    "plan-range": error(
        "an operation reaches past the end of a buffer", "nothing checks it, so other memory is read or overwritten"
    ),
    "plan-operands": error("an operation lacks what it works on", "it moves nothing, or reads what is not there"),
    "plan-reduce-operator": error(
        "an operation asks for a reduction other than the sum", "the executor adds all the same; the result is wrong"
    ),
    "plan-limit-operations": error(
        "a threadblock has more operations than the executor holds", "the launch fails, though the plan loads"
    ),
    "plan-limit-channels": error(
        "a threadblock has more channels than the executor holds", "an array overflows; nothing checks it"
    ),
    "plan-limit-operation-channels": error(
        "an operation names more channels than the loader holds", "an array overflows; nothing checks it"
    ),
    "plan-limit-syncers": error(
        "more barriers or semaphores than the executor has", "other memory is used as a barrier"
    ),
    "plan-byte-range": error("no message size is served", "the plan is never selected, or refuses every call"),
    "plan-offset-wraps": warning(
        "the plan admits messages so large that byte offsets no longer fit 32 bits",
        "the offsets wrap round, and data goes to the wrong place",
    ),
    "plan-ranks-differ": error(
        "plans for different numbers of ranks lie in one directory",
        "this version tries to load every one of them, and throws on those of another size",
    ),
    "plan-calls-mixed": warning(
        "plans for in-place and for out-of-place calls lie in one directory",
        "the mode of the first one loaded is kept for the life of the process",
    ),
    "plan-memory-across-hosts": error(
        "a memory channel joins ranks of two hosts", "the remote memory cannot be mapped, and the access is illegal"
    ),
    "plan-nic-index": error(
        "a plan with port channels, on hosts with fewer NICs than ranks, or with more than eight ranks",
        "each rank takes the NIC of its own number, of at most eight, and that number is out of range",
    ),
}

TUNER: Mapping[str, Rule] = {
    "tuner-columns": error(
        "a line has too few or too many fields", "the reader leaves it out, or takes one field for another"
    ),
    "tuner-empty-field": error(
        "a field is empty", "the reader swallows it and moves the fields behind it up, or leaves the line out"
    ),
    "tuner-number": error(
        "a field is no plain whole number in its range", "it is read by the rules of C: 1M is 1, text is 0"
    ),
    "tuner-word": error(
        "an unknown collective, algorithm or protocol",
        "example plugins silently take it for allreduce, ring or simple; the built-in reader leaves the line out",
    ),
    "tuner-header": error("a header is not commented out", "it is read as a rule: unknown words become known ones"),
    "tuner-comment": error(
        "a comment does not start in the first column", "it is read as a line of the table, or as part of a field"
    ),
    "tuner-long-line": error(
        "a line is longer than the reader's buffer", "what is beyond it is read as a line of its own"
    ),
    "tuner-range": error("a line's smallest size is above its largest", "it serves no call"),
    "tuner-unavailable": error(
        "the library cannot run this collective with this algorithm and protocol",
        "the line is passed over without a word, and a later one is taken in its place",
    ),
    "tuner-channels": error("a number of channels that the library does not have", "it is cut to what there is"),
    "tuner-one-channel": warning(
        "channels is -1, which this reader turns into one channel", "the call runs at a fraction of its bandwidth"
    ),
    "tuner-overlap": warning(
        "two lines serve the same calls; the earlier one wins", "the later one does not do what it says there"
    ),
    "tuner-shadowed": error("an earlier line serves all of a line's calls", "the line never applies"),
    "tuner-infinity": warning(
        "the largest size is 4294967295, as if that had no end", "larger calls are not served by the line"
    ),
    "tuner-uncovered": warning(
        "calls that no line serves, with a reader that runs those on one channel",
        "they run at a fraction of their bandwidth",
    ),
    "tuner-no-lines": error("the table has no line", "nothing is tuned; some readers refuse the file"),
}
