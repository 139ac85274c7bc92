"""The demand matrix of an all-to-all-v: CSV and .npy, and everything that is neither."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collc.errors import InputError
from collc.ir import demand
from collc.ir.demand import from_demand, read_demand


def written(tmp_path: Path, content: bytes | str | np.ndarray) -> str:
    path = tmp_path / "demand"
    if isinstance(content, np.ndarray):
        stream = io.BytesIO()
        np.save(stream, content)
        content = stream.getvalue()
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def npy(header: str, tail: bytes = b"") -> bytes:
    padded = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + tail


@pytest.mark.parametrize(
    "text",
    ["0,5\n7,0\n", "0 5\n7 0", "# bytes\n 0, 5 \n\n7 ,0 # back\n", "\ufeff0,5\r\n7,0\r\n", "0\t5\n07 00\n"],
)
def test_a_csv_of_commas_or_blanks(tmp_path, text):
    assert read_demand(written(tmp_path, text)) == [[0, 5], [7, 0]]


@pytest.mark.parametrize("kind", ["i1", "<i4", ">i8", "u2", "u8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_numpy_file_of_any_integers(tmp_path, kind, order):
    assert read_demand(written(tmp_path, np.array([[0, 5], [7, 0]], kind, order=order))) == [[0, 5], [7, 0]]


@given(st.lists(st.lists(st.integers(0, 10**18 - 1), min_size=3, max_size=3), min_size=3, max_size=3))
@settings(max_examples=30, deadline=None)
def test_both_forms_say_the_same(tmp_path_factory, matrix):
    folder = tmp_path_factory.mktemp("demand")
    assert read_demand(written(folder, "\n".join(",".join(map(str, row)) for row in matrix))) == matrix
    assert read_demand(written(folder, np.array(matrix))) == matrix


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; expected a row of bytes for each rank"),
        ("# nothing\n\n", "is empty"),
        ("1,2\n3\n", "row 1 has 1 entries; expected 2"),
        ("1,2,3\n4,5,6\n", "row 0 has 3 entries; expected 2"),
        ("0,5\n-7,0\n", ":2: '-7'; expected a whole number of bytes, below 10^18"),
        (f"0,{10**18}\n1,0\n", ":1: '1000000000000000000'; expected a whole number of bytes, below 10^18"),
        ("0,1e6\n7,0\n", ":1: '1e6'; expected a whole number"),
        ("0,4.0\n7,0\n", "'4.0'; expected a whole number"),
        ("0,4KB\n7,0\n", "'4KB'; expected a whole number"),
        ("0,٤\n7,0\n", "expected a whole number"),
        ("0,12345678901234567890\n7,0\n", "expected a whole number"),
        ("src,dst\n1,2\n", "'src'; expected a whole number"),
        (b"\xff\xfe\x00", "is neither text nor a .npy file; expected a CSV of bytes"),
        (b"PK\x03\x04\xa0\xa1", "is neither text nor a .npy file"),
        (np.ones((2, 2)), "holds 2-dimensional float64; expected a matrix of integers"),
        (np.arange(4), "holds 1-dimensional int64; expected a matrix of integers"),
        (np.array([[1, -1], [0, 0]]), "holds a negative entry; expected bytes"),
        (np.array([[True]]), "holds 2-dimensional bool"),
        (np.zeros((2, 3), int), "row 0 has 3 entries; expected 2"),
        (b"\x93NUMPY", "is no .npy file that can be read"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1, 1)}", b"\0" * 8), "Object arrays cannot be loaded"),
        (npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3, 3)}", b"\0" * 8), "is no .npy file"),
        (npy("{'descr': '<i8', 'fortran_order': False, 'shape': (10000000, 10000000)}"), "is no .npy file"),
        (npy("foo("), "is no .npy file"),
        (npy("{[]: 1}"), "is no .npy file"),
        (npy("(" * 9000), "is no .npy file"),
    ],
)
def test_what_is_no_matrix_of_bytes_is_refused_in_a_sentence(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(InputError) as error:
        read_demand(path)
    assert str(error.value).startswith(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_numpy_file_is_never_a_crash(tmp_path):
    good = Path(written(tmp_path, np.arange(9).reshape(3, 3))).read_bytes()
    for at in range(0, len(good), 3):
        for damage in (good[:at], good[:at] + b"\xff" + good[at + 1 :], good[:at] + b"(" + good[at + 1 :]):
            try:
                matrix = read_demand(written(tmp_path, damage))
            except InputError:
                continue
            assert all(len(row) == len(matrix) for row in matrix)


def test_missing_files_and_folders_are_refused(tmp_path):
    for path, reason in ((tmp_path / "none.csv", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(InputError, match=f"cannot be read: {reason}"):
            read_demand(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        read_demand("a\0b")


def test_a_huge_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(demand, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="has more than 10 bytes"):
        read_demand(written(tmp_path, "0,5\n7,0\n1234567890"))


# --- the collective -------------------------------------------------------------------------------


def test_slots_are_as_large_as_every_entry_allows():
    collective, unit = from_demand([[0, 6, 4], [10, 2, 0], [0, 0, 0]])
    assert unit == 2
    assert [(c.precondition.ranks, c.postcondition.ranks, c.count) for c in collective.chunks] == [
        ((0,), (1,), 3),
        ((0,), (2,), 2),
        ((1,), (0,), 5),
        ((1,), (1,), 1),
    ]
    assert (collective.input_chunks, collective.output_chunks) == (6, 5)


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 60), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
@settings(max_examples=50, deadline=None)
def test_blocks_lie_one_after_another(matrix):
    if not any(map(sum, matrix)):
        with pytest.raises(InputError, match="every entry is zero"):
            from_demand(matrix)
        return
    collective, unit = from_demand(matrix)
    assert sum(chunk.count for chunk in collective.chunks) * unit == sum(map(sum, matrix))
    for rank in range(len(matrix)):
        for side, amounts in (("precondition", matrix[rank]), ("postcondition", [row[rank] for row in matrix])):
            blocks = sorted(
                (getattr(chunk, side)[rank], chunk.count) for chunk in collective.chunks if rank in getattr(chunk, side)
            )
            assert [count * unit for _, count in blocks] == [amount for amount in amounts if amount]
            assert [start for start, _ in blocks] == [sum(c for _, c in blocks[:i]) for i in range(len(blocks))]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([], "every entry is zero"),
        ([[0, 0], [0, 0]], "every entry is zero"),
        ([[1, 2], [3]], "row 1 has 1 entries; expected 2"),
        ([[1, -2], [3, 4]], "row 0 column 1 is -2; expected zero or more"),
    ],
)
def test_no_collective_is_made_of_what_is_no_demand(matrix, message):
    with pytest.raises(InputError, match=message):
        from_demand(matrix)
