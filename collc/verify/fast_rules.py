"""The rules for all-to-all plans."""

from __future__ import annotations

from collections.abc import Mapping

from collc.verify.rule import Rule, error

EXCHANGE: Mapping[str, Rule] = {
    "exchange-form": error("the plan lacks a field, or a field has another form", "no executor can run it"),
    "exchange-permutation": error(
        "a stage is no permutation of the ports", "a network card has two senders or two receivers, and they wait"
    ),
    "exchange-stages": error(
        "more stages than a decomposition into permutations ever needs", "each stage costs its latency"
    ),
    "exchange-weights": error(
        "the weights of the stages do not add to the line sum that the plan states, or that is less than a port sends "
        "or receives",
        "the claim of time is false",
    ),
    "exchange-card": error(
        "a rank sends or receives two messages in a stage, or one that its stage does not provide for",
        "transfers share a network card, and the receiver is congested",
    ),
    "exchange-overweight": error("a message is larger than its stage's weight", "the stage takes longer than stated"),
    "exchange-message": error("a message is not as long as its pieces together", "the receiver waits, or loses data"),
    "exchange-host": error(
        "a piece is handed over or passed on between hosts", "it would cross the network a second time"
    ),
    "exchange-block": error("a piece is empty, or reaches past the end of its block", "it moves another rank's data"),
    "exchange-delivery": error("a byte is delivered twice, or not at all", "the result is wrong"),
    "exchange-staging": error("a staging buffer is smaller than a stage needs", "memory is overwritten"),
    "exchange-bound": error(
        "the stated bound is not what the demand and the machine say, or the stated time beats it",
        "the claim of speed is false",
    ),
    "exchange-time": error("the parts of the predicted time do not add up to it", "the claim of speed is false"),
}
