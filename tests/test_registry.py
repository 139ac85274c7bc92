"""Names to plug-in files, and text to options."""

from __future__ import annotations

import sys
import textwrap
from fractions import Fraction

import pytest

from collc import registry
from collc.errors import InputError

PLUGIN = '''
"""A plug-in for the tests."""
from __future__ import annotations
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal


@dataclass(frozen=True)
class Sample:
    """A sample of everything.

    Guarantee: none.
    Supports: nothing.
    Source: nowhere.
    """

    count: int = 1
    limit: int | None = None
    ratio: Fraction = Fraction(1, 3)
    mode: Literal["fast", "slow"] = "fast"
    deep: bool = False
    label: str = ""


@dataclass(frozen=True)
class _Inner:
    """Private: does not count."""
'''


@pytest.fixture
def sample(tmp_path, monkeypatch):
    """The registry with a synthesizer folder of its own that holds `sample`."""
    import collc.synth

    (tmp_path / "synth").mkdir()
    (tmp_path / "synth" / "sample.py").write_text(textwrap.dedent(PLUGIN))
    (tmp_path / "synth" / "_private.py").write_text("")
    (tmp_path / "synth" / "folded").mkdir()
    (tmp_path / "synth" / "folded" / "__init__.py").write_text("")
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    monkeypatch.setattr(collc.synth, "__path__", [str(tmp_path / "synth")])
    yield
    for name in ("sample", "folded"):
        sys.modules.pop(f"collc.synth.{name}", None)


def test_a_file_or_a_folder_is_a_plugin_and_a_private_one_is_not(sample):
    assert registry.names("synth") == ("folded", "sample")


def test_the_nearest_name_is_told(sample):
    with pytest.raises(InputError, match="synthesizer 'sampel'; did you mean 'sample'"):
        registry.plugin("synth", "sampel")


def test_a_folder_without_a_plugin_is_a_bug(sample):
    with pytest.raises(TypeError, match="0 public dataclasses"):
        registry.plugin("synth", "folded")


def test_options_are_converted_by_their_annotation(sample):
    made = registry.load("synth", "sample", count="-3", limit="4", ratio="25/3", mode="slow", deep="true", label="x")
    assert (made.count, made.limit, made.ratio) == (-3, 4, Fraction(25, 3))
    assert (made.mode, made.deep, made.label) == ("slow", True, "x")
    assert registry.load("synth", "sample").limit is None
    assert registry.load("synth", "sample", count=7).count == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": "four"}, "sample: option count: 'four'; expected int"),
        ({"count": "1.5"}, "expected int"),
        ({"count": "9" * 30}, "expected int"),
        ({"ratio": "1/0"}, "expected Fraction"),
        ({"mode": "fest"}, "did you mean 'fast'"),
        ({"deep": "yes"}, "expected bool"),
        ({"cuont": "1"}, "no option 'cuont'; did you mean 'count'"),
    ],
)
def test_wrong_options_are_named(sample, options, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        registry.load("synth", "sample", **options)


def test_a_plugin_describes_itself(sample):
    told = registry.describe("synth", "sample")
    assert told["summary"] == "A sample of everything."
    assert (told["guarantee"], told["supports"], told["source"]) == ("none.", "nothing.", "nowhere.")
    assert told["options"][1] == {"name": "limit", "type": "int", "default": None}
    assert told["options"][2] == {"name": "ratio", "type": "Fraction", "default": "1/3"}
    assert told["options"][3] == {"name": "mode", "type": "fast|slow", "default": "fast"}


def test_every_kind_has_a_folder():
    assert {kind: isinstance(registry.names(kind), tuple) for kind in registry.KINDS} == dict.fromkeys(
        registry.KINDS, True
    )
