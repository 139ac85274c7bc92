"""The rules for source routes."""

from __future__ import annotations

from collections.abc import Mapping

from collc.verify.rule import Rule, error

ROUTES: Mapping[str, Rule] = {
    "path-form": error("the file lacks a field, or a field has another form", "no NIC can be set up by it"),
    "path-links": error(
        "a route's links do not lead from its sender to its receiver, or pass a vertex twice",
        "data goes astray or in circles",
    ),
    "path-shares": error(
        "the routes of a pair do not carry all that the pair exchanges, or more", "data is lost or sent twice"
    ),
    "path-layer": error("a route's layer is none of those the file has", "the virtual channel does not exist"),
    "path-deadlock": error(
        "within a layer, links wait for each other in a circle", "once their buffers are full, nothing moves again"
    ),
    "path-time": error("the stated time is not that of the busiest link", "the claim of speed is false"),
    "path-fabric": error("a link is not one of the fabric, or not as wide", "the route or the claim of speed is false"),
}
