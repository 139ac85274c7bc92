"""The examples in the reference of rules: each right one passes, each wrong one breaks its rule alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from collc.cli import collc
from collc.verify.examples import examples
from collc.verify.rules import RULES

# A time below a proven bound cannot be reached, so some other claim is false with it.
NEVER_ALONE = {"bound-beaten"}


def found(words: tuple[str, ...], files: dict[str, str]) -> tuple[int, set[tuple[str, str]]]:
    """The exit code, and (rule, severity) of all findings."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(collc, ["verify", *words, "--json"])
    assert result.exit_code in (0, 1), result.output
    document = json.loads(result.stdout)
    return result.exit_code, {(f["rule"], f["severity"]) for file in document["files"] for f in file["findings"]}


def test_every_rule_has_an_example_and_every_example_a_rule():
    assert set(examples()) == set(RULES)
    assert {rule for rule, example in examples().items() if example.also} == NEVER_ALONE


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_wrong_example_breaks_its_rule_alone(rule, tmp_path, monkeypatch):
    example = examples()[rule]
    monkeypatch.chdir(tmp_path)
    code, told = found(example.words, example.bad)
    assert {name for name, _ in told} == {rule, *example.also}
    assert (rule, RULES[rule].severity) in told
    assert code == (1 if RULES[rule].severity == "error" else 0)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_right_example_breaks_no_rule(rule, tmp_path, monkeypatch):
    example = examples()[rule]
    monkeypatch.chdir(tmp_path)
    assert found(example.words, example.good) == (0, set())
