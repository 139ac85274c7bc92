"""What a report says of queues: what they need, what is left, and up to which size that lasts."""

from __future__ import annotations

from typing import Any

from collc.units import format_bytes
from collc.verify.depths import Depth, Depths
from collc.verify.report import FileReport

_LISTED = 64  # connections in the JSON document, those with the least slack
_NAMED = 3  # connections in the text


def document(report: FileReport) -> dict[str, Any]:
    """Keys of the JSON document; in the largest messages the file serves."""
    depths = _depths(report)
    listed = depths.connections[:_LISTED] if depths else ()
    return {
        "fifo_depth_available": report.liveness.available if report.liveness else None,
        "fifo_depth_needed_largest": depths.needed if depths else None,
        "fifo_slack": depths.slack if depths else None,
        "transfer_bytes": report.transfers.buffer_bytes if report.transfers else None,
        "largest_safe_bytes": _safe_bytes(report),
        "connections_total": len(depths.connections) if depths else None,
        "connections": [_entry(one) for one in listed],
    }


def _entry(one: Depth) -> dict[str, Any]:
    connection = one.connection
    ends = {"from": connection.src, "to": connection.dst, "channel": connection.channel}
    return {**ends, "sends": len(connection.sends), "depth_needed": one.needed, "slack": one.slack}


def lines(report: FileReport) -> list[str]:
    """Lines for eyes; none where nothing can get tight."""
    depths, safe, told = _depths(report), _safe_bytes(report), []
    if depths and depths.needed > 1:
        have = "" if depths.slack is None else f" of {depths.needed + depths.slack}"
        most = depths.connections[0].needed
        tight = [one for one in depths.connections if one.needed == most]
        shown = ", ".join(_name(one) for one in tight[:_NAMED])
        more = f" and {len(tight) - _NAMED} more" if len(tight) > _NAMED else ""
        told.append(
            f"queues must hold {depths.needed}{have} transfers in the largest messages; of {len(depths.connections)} "
            f"connections the tightest, with {most}: {shown}{more}"
        )
    if safe is not None:
        told.append(f"cannot hang in messages up to {format_bytes(safe)}")
    return told


def _name(one: Depth) -> str:
    return f"rank {one.connection.src} -> rank {one.connection.dst} on channel {one.connection.channel}"


def _depths(report: FileReport) -> Depths | None:
    if report.liveness is None or not report.liveness.ends:
        return None
    return report.liveness.at(report.transfers.width if report.transfers else 1)


def _safe_bytes(report: FileReport) -> int | None:
    """The largest message [bytes] that cannot hang for want of queue places; None: any, or not known."""
    liveness, transfers = report.liveness, report.transfers
    if liveness is None or transfers is None or not liveness.ends or liveness.available is None:
        return None
    if liveness.needed > liveness.available:
        return 0
    return transfers.largest_bytes(liveness.least_width)
