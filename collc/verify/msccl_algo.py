"""The <algo> element of an MSCCL file: which calls, sizes and protocol it says it serves."""

from __future__ import annotations

from collc import runtimes
from collc.errors import nearest
from collc.ir.collective import ROOTED, Collective
from collc.verify.msccl_reader import Reader
from collc.verify.xml import Element

_MAX_INT64 = 2**63 - 1
_CLASSIC_MAX_BYTES = 128 << 20  # what the first runtime takes where maxBytes is missing
_NEVER_SERVED = ("alltoallv", "send", "recv", "custom")  # names some parser knows, but no call selects


class Algo:
    """The attributes of <algo>.

    Attributes:
        asked: what the file is held against instead of what its name means.
        collective: collc's name; None where the file's is unknown or never served, and nothing is asked.
        n_ranks, n_channels, n_chunks: 0 where missing or useless.
        min_bytes, max_bytes: sizes served as the runtime counts them, both inclusive; None: no limit.
    """

    def __init__(self, reader: Reader, element: Element, asked: Collective | None = None) -> None:
        self.asked = asked
        self.reader = reader
        self.element = element
        runtime = reader.runtime
        for key in runtime.required:
            if key not in element.attributes:
                self._tell("attribute-missing", f"<algo> has no attribute '{key}'")
        self.name = element.attributes.get("name", "")
        self.n_ranks = self._count("ngpus", runtime.max_ranks, "limit-ranks")
        self.n_channels = self._count("nchannels", runtime.max_channels, "limit-channels", is_vital=False)
        self.n_chunks = self._count("nchunksperloop", None, "attribute-value")
        has_protocol = "proto" in element.attributes
        self.protocol = (reader.choice(element, "proto", tuple(runtime.protocols)) if has_protocol else None) or ""
        named = self._collective()
        if named == "alltoall" and asked is not None and asked.name == "alltoallv":
            self.asked = None  # all-to-all with blocks of the largest size serves it
        self.collective = self.asked.name if self.asked else named
        self.inplace, self.outofplace = self._calls()
        self.min_bytes, self.max_bytes = self._bytes()

    def _count(self, key: str, limit: int | None, rule: str, *, is_vital: bool = True) -> int:
        """A number of at least one; 0 where it is missing or useless."""
        value = (self.reader.number(self.element, key) or 0) if key in self.element.attributes else 0
        is_good = value >= 1 and (limit is None or value <= limit)
        if not is_good and is_vital:
            self.reader.is_complete = False
        if not is_good and key in self.element.attributes:
            if value >= 1:
                self._tell(rule, f"{key}={value}; {self.reader.runtime.name} takes {limit}")
            else:
                self._tell("attribute-value", f"{key}={value}; expected 1 or more")
        return max(value, 0)

    def _tell(self, rule: str, message: str) -> None:
        self.reader.found.add(rule, message, place=self.element.place)

    def _collective(self) -> str | None:
        spelt = self.element.attributes.get("coll")
        if spelt is None:
            return None
        runtime = self.reader.runtime
        for name, spelling in runtime.collectives.items():
            if spelt == spelling:
                return name
        if spelt == runtime.custom_name:
            if self.asked is None:
                self._tell("not-judged", f"coll '{spelt}' does not say what is computed; give it by --conditions FILE")
            return None
        if spelt in _NEVER_SERVED:
            self._tell("collective-unused", f"coll '{spelt}': {runtime.name} never selects a file for it")
            return None
        self._tell("collective-name", f"coll '{spelt[:60]}'" + nearest(spelt[:60], runtime.collectives.values()))
        known = [runtimes.load(name).collectives.items() for name in runtimes.names()]
        return next((name for items in known for name, spelling in items if spelt == spelling), None)

    def _calls(self) -> tuple[bool, bool]:
        """Whether in-place and out-of-place calls are served."""
        flags = {key: self._flag(key) for key in ("inplace", "outofplace")}
        if self.reader.runtime.inplace_flags == "equals":
            return flags["inplace"], not flags["inplace"]
        present = all(key in self.element.attributes for key in flags)
        if present and not any(flags.values()):
            self._tell("no-calls", "inplace=0 and outofplace=0: no call is served")
        # A file made for the first runtime says only inplace; it is refused, but its meaning is plain.
        outofplace = flags["outofplace"] if "outofplace" in self.element.attributes else not flags["inplace"]
        return flags["inplace"], outofplace

    def _flag(self, key: str) -> bool:
        if key not in self.element.attributes:
            return False
        value = self.reader.number(self.element, key)
        if value not in (0, 1, None):
            self._tell("attribute-value", f"{key}={value}; expected 0 or 1")
        return bool(value)

    def _bytes(self) -> tuple[int, int | None]:
        """The message sizes served, both ends inclusive."""
        runtime = self.reader.runtime
        is_classic = runtime.max_bytes_is_exclusive
        low = self._byte_count("minBytes") or 0
        high = self._byte_count("maxBytes")
        if high is None:
            return low, _CLASSIC_MAX_BYTES - 1 if is_classic else None
        if high == runtime.max_bytes_unlimited:
            return low, None
        return low, high - 1 if is_classic else high

    def _byte_count(self, key: str) -> int | None:
        if key not in self.element.attributes:
            return None
        return self.reader.number(self.element, key, _MAX_INT64)

    def check(self, max_channels: int | None) -> None:
        """What is wrong with the attributes as a whole."""
        runtime = self.reader.runtime
        if len(self.name) > runtime.max_name:
            self._tell("limit-name", f"name has {len(self.name)} characters; {runtime.name} keeps {runtime.max_name}")
        if max_channels is not None and self.n_channels > max_channels:
            self._tell(
                "limit-channels",
                f"nchannels={self.n_channels}; {max_channels} are allowed, {self.n_channels - max_channels} fewer",
            )
        n_threads = self.element.attributes.get("nthreads")
        if n_threads is not None and (self.reader.number(self.element, "nthreads") or 0) % 32:
            self._tell("attribute-value", f"nthreads={n_threads}; expected a multiple of 32")
        if self.collective in ROOTED:
            self._tell("any-root", f"{self.collective}: the runtime selects the file whatever the root of the call is")
        self._check_bytes()

    def _check_bytes(self) -> None:
        if self.min_bytes < 0 or not self.n_chunks:
            return
        least = max(self.min_bytes, 1)
        # One byte per element is the finest; a size is served if its elements fill whole chunks.
        served = -(-least // self.n_chunks) * self.n_chunks
        if self.max_bytes is not None and served > self.max_bytes:
            self._tell(
                "byte-range",
                f"no size from {self.min_bytes} to {self.max_bytes} bytes is a multiple of {self.n_chunks} chunks",
            )
            return
        protocol = self.reader.runtime.protocols.get(self.protocol)
        if protocol is not None and served < self.n_chunks * protocol.min_chunk_bytes:
            self._tell(
                "min-bytes",
                f"minBytes={self.min_bytes} admits chunks of {served // self.n_chunks} bytes; {self.protocol} needs "
                f"{protocol.min_chunk_bytes}, which {self.n_chunks * protocol.min_chunk_bytes} bytes give",
            )

    def refined(self) -> Collective | None:
        """What is asked for, in chunks of the file; None with a finding where these do not fit."""
        asked = self.asked
        if asked is None or not self.n_chunks:
            return None
        factor, rest = divmod(self.n_chunks, asked.size_chunks)
        if rest or asked.n_ranks != self.n_ranks:
            self._tell(
                "collective-shape",
                f"ngpus={self.n_ranks}, nchunksperloop={self.n_chunks}; {asked.name} as asked for has {asked.n_ranks} "
                f"ranks and {asked.size_chunks} chunks",
            )
            return None
        return asked.refined(factor)

    def chunk_factor(self) -> int | None:
        """Chunks per rank block, or None with a finding."""
        if self.collective not in self.reader.runtime.counts_all_ranks:
            return self.n_chunks
        factor, rest = divmod(self.n_chunks, self.n_ranks)
        if rest:
            self._tell(
                "chunk-division",
                f"nchunksperloop={self.n_chunks} is no multiple of {self.n_ranks} ranks; {self.collective} has a "
                "block for each",
            )
            return None
        return factor
