"""collc topo degrade: failed and slower links, gone GPUs; the report of collc synth on what is left."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction

import pytest

from collc.errors import InputError
from collc.topology import load, load_text
from collc.topology.degrade import degraded

BOX = "dgx-a100:hosts=2"


def run(*words: str, code: int = 0) -> str:
    """What a command says, on both streams."""
    done = subprocess.run([sys.executable, "-m", "collc", *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_a_link_goes_one_way_or_both():
    fabric = load(BOX)
    one = degraded(fabric, ["h0.gpu0->h0.nic0"], [], [])
    assert {*fabric.link} - {*one.link} == {("h0.gpu0", "h0.nic0")}
    both = degraded(fabric, ["h0.gpu0-h0.nic0"], [], [])
    assert {*fabric.link} - {*both.link} == {("h0.gpu0", "h0.nic0"), ("h0.nic0", "h0.gpu0")}


def test_a_link_gets_slower_exactly():
    slow = degraded(load(BOX), [], ["h0.gpu0->h0.nvswitch=1/3"], [])
    assert slow.link["h0.gpu0", "h0.nvswitch"].bandwidth == 100
    assert slow.link["h0.nvswitch", "h0.gpu0"].bandwidth == 300


def test_a_gpu_goes_by_name_or_rank_with_its_links():
    by_name, by_rank = (degraded(load(BOX), [], [], [gpu]) for gpu in ("h0.gpu3", "3"))
    assert by_name == by_rank
    assert by_name.n_ranks == 15
    assert not any("h0.gpu3" in ends for ends in by_name.link)


@pytest.mark.parametrize(
    ("drop", "scale", "gpus", "message"),
    [
        (["h0.gpu0-h0.nic9"], [], [], "no such link; did you mean 'h0.gpu0-h0.nic0'"),
        (["h0.gpu0->h1.gpu0"], [], [], "no such link"),
        ([], ["h0.gpu0-h0.nic0"], [], "expected LINK=FACTOR"),
        ([], ["h0.gpu0-h0.nic0=0"], [], "expected a positive number"),
        ([], ["h0.gpu0-h0.nic0=x"], [], "--scale"),
        (["h0.gpu0-h0.nic0"], ["h0.gpu0->h0.nic0=2"], [], "named before"),
        ([], [], ["h7.gpu0"], "no such GPU; did you mean"),
    ],
)
def test_what_is_not_there_is_named(drop, scale, gpus, message):
    with pytest.raises(InputError, match=message):
        degraded(load(BOX), drop, scale, gpus)


def test_names_with_dashes_are_found_or_called_ambiguous():
    text = (
        "gpus: [a, a-b, b, b-c]\nlinks:\n"
        "  - {between: [a, b-c], bandwidth: 1}\n  - {between: [a-b, b], bandwidth: 1}\n"
        "  - {between: [a, b], bandwidth: 1}\n"
    )
    fabric = load_text(text, "dashes.yaml")
    assert ("a-b", "b") not in degraded(fabric, ["a-b-b"], [], []).link
    with pytest.raises(InputError, match="several links"):
        degraded(
            load_text("gpus: [a, a-b, b-c, c]\nlinks:\n  - {between: [a, b-c], bandwidth: 1}\n"
                      "  - {between: [a-b, c], bandwidth: 1}\n  - {between: [a, c], bandwidth: 1}\n", "d.yaml"),
            ["a-b-c"], [], [],
        )  # fmt: skip


def test_the_file_round_trips_and_says_what_it_was(tmp_path):
    path = tmp_path / "broken.yaml"
    run("topo", "degrade", BOX, "--drop", "h0.gpu0-h0.nic0", "-o", str(path))
    assert load(str(path)).links == degraded(load(BOX), ["h0.gpu0-h0.nic0"], [], []).links
    shown = json.loads(run("synth", str(path), "-c", "allgather", "-s", "forestcoll", "--json", "--no-cache"))
    # The GPU without its NIC takes in 15 shards of 16 through 300 GB/s.
    assert shown["algbw_exact"] == shown["bound_exact"] == "320"
    assert shown["healthy"]["bound_exact"] == "1040/3"
    assert shown["healthy"]["kept"] == pytest.approx(float(320 / Fraction(1040, 3)))
    assert "92.3% of that is left" in run("synth", str(path), "-c", "allgather", "-s", "forestcoll", "--no-cache")


def test_cutting_a_fabric_in_two_is_infeasible():
    said = run("topo", "degrade", "ring:gpus=4", "--drop-gpu", "0", "--drop", "gpu1-gpu2", code=3)
    assert "cannot" in said


def test_nothing_to_degrade_is_refused():
    assert "expected --drop" in run("topo", "degrade", BOX, code=2)
