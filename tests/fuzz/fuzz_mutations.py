"""Damage to inputs: to bytes, to tokens of text, to JSON, to members of archives, to headers of arrays."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Rng = np.random.Generator

TOKENS = [
    *("", "-1", "0", "-0", "1", "1.5", "7", "nan", "NaN", "inf", "-Infinity", "None", "abc", "x y", ":", ",", '"', "#"),
    *(
        "1_0",
        "１２",
        "٣",
        "é",
        "\u2028",
        "\x00",
        "\x0b",
        "0x10",
        "1e400",
        "-1e400",
        "1e-400",
        "1e308",
        "+5",
        "--5",
        "1-2",
    ),
    *("9007199254740993", "99999999999999999999", "18446744073709551616", "2000000000", "2147483648", "10000001"),
    *("9" * 5000, "1" * 300000, "%", "0:0", "1:1 1:1", "2000000000:1", "\n", "\n\n", "\r", "\t", "qid:3"),
]

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**40, 2**63, 2**70, -(2**63), 1.5, float("nan"), float("inf"), 10**300),
    *("", "abc", "é", "\x00", "..", "../..", "x" * 10000, "csr_matrix", "csc_matrix", "anndata", "array", "dataframe"),
    *("categorical", "string-array", "<f8", ">f4", "|O", "<U5", "|S1", "M8[ns]", "int64", "float16", "bytes", "string"),
    *([], {}, [0], [-1, -1], [2**40, 2**40], [12, 7], [7, 12], [1] * 40, {"name": "gzip"}, {"id": "pickle"}, [[1]]),
]

DTYPES = [
    "<f8",
    ">f8",
    "<f4",
    "<i8",
    "<u8",
    "|b1",
    "|O",
    "<U1",
    "<U1000000000",
    "|S0",
    "<c16",
    "<M8[ns]",
    "f2",
    "|V0",
    "x",
]


def mutate(source: Path, target: Path, rng: Rng) -> Path:
    """Write a damaged copy of a file or a store; returns its path, which may be another one (compressed)."""
    if source.is_dir():
        shutil.copytree(source, target)
        for _ in range(1 + rng.binomial(2, 0.25)):
            _store(target, rng)
        return target
    content = source.read_bytes()
    for _ in range(1 + rng.binomial(2, 0.25)):
        content = _file(content, source.suffix, rng)
    text = source.suffix in (".svm", ".mtx", ".csv", ".tsv")
    if text and rng.random() < 0.15:
        content, target = gzip.compress(content), target.with_name(target.name + ".gz")
        if rng.random() < 0.5:
            content = _bytes(content, rng)
    target.write_bytes(content)
    if source.suffix == ".h5ad" and rng.random() < 0.5:
        target.write_bytes(source.read_bytes())
        _hdf5(target, rng)
    return target


def _file(content: bytes, suffix: str, rng: Rng) -> bytes:
    if suffix in (".svm", ".mtx", ".csv", ".tsv", ".txt"):
        return _tokens(content, rng) if rng.random() < 0.7 else _bytes(content, rng)
    if suffix == ".npz":
        return _archive(content, rng) if rng.random() < 0.7 else _bytes(content, rng)
    if suffix == ".npy":
        return _array(content, rng)
    return _bytes(content, rng)


def _bytes(content: bytes, rng: Rng) -> bytes:
    data = bytearray(content)
    if not data:
        return bytes(rng.integers(0, 256, 5, dtype=np.uint8))
    at = int(rng.integers(len(data)))
    stop = min(at + int(rng.integers(1, 40)), len(data))
    match rng.integers(8):
        case 0 | 1:
            for _ in range(rng.integers(1, 9)):
                data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        case 2:
            del data[at:]
        case 3:
            data[at:at] = data[at:stop]
        case 4:
            del data[at:stop]
        case 5:
            data[at:stop] = bytes(stop - at)
        case 6:
            data[at:stop] = rng.integers(0, 256, stop - at, dtype=np.uint8).tobytes()
        case _:
            extreme = [2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**64 - 1, 0][int(rng.integers(6))]
            data[at : at + 8] = extreme.to_bytes(8, "little")
    return bytes(data)


def _tokens(content: bytes, rng: Rng) -> bytes:
    places = [match.span() for match in re.finditer(rb"[^\s:,]+", content)]
    if not places:
        return _bytes(content, rng)
    start, stop = places[int(rng.integers(len(places)))]
    token = TOKENS[int(rng.integers(len(TOKENS)))].encode()
    lines = content.split(b"\n")
    match rng.integers(6):
        case 0:
            lines.insert(int(rng.integers(len(lines))), lines[int(rng.integers(len(lines)))])
            return b"\n".join(lines)
        case 1:
            del lines[int(rng.integers(len(lines)))]
            return b"\n".join(lines)
        case _:
            return content[:start] + token + content[stop:]


def _array(content: bytes, rng: Rng) -> bytes:
    """An array file with another header, or with damaged bytes."""
    end = content.find(b"\n") + 1
    if rng.random() < 0.4 or not end or len(content) < 11:
        return _bytes(content, rng)
    header = content[10:end].decode("latin-1")
    match rng.integers(4):
        case 0:
            sizes = [[0, 1, 7, 12, -3, 2**31, 10**9, 10**12][int(rng.integers(8))] for _ in range(rng.integers(0, 4))]
            header = re.sub(r"\([^)]*\)", lambda _: repr(tuple(sizes)), header)
        case 1:
            dtype = DTYPES[int(rng.integers(len(DTYPES)))]
            header = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': '{dtype}'", header)
        case 2:
            header = header.replace("False", "True") if "False" in header else header.replace("True", "False")
        case _:
            at = int(rng.integers(max(len(header), 1)))
            header = header[:at] + TOKENS[int(rng.integers(len(TOKENS) - 20))] + header[at + 1 :]
    header = header.rstrip() + "\n"
    encoded = header.encode("utf-8")[:60000]
    return content[:8] + len(encoded).to_bytes(2, "little") + encoded + content[end:]


def _archive(content: bytes, rng: Rng) -> bytes:
    import io

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return _bytes(content, rng)
    names = list(members)
    if not names:
        return _bytes(content, rng)
    name = names[int(rng.integers(len(names)))]
    match rng.integers(8):
        case 0:
            del members[name]
        case 1:
            members[["X.npy", "y.npy", "data.npy", "ids.npy", "X_shape.npy"][int(rng.integers(5))]] = members[name]
        case 2:
            members[name] = members[names[int(rng.integers(len(names)))]]
        case _:
            members[name] = _array(members[name], rng)
    made = io.BytesIO()
    method = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2][int(rng.integers(3))]
    with zipfile.ZipFile(made, "w", method) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    return made.getvalue()


def _store(folder: Path, rng: Rng) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        return
    marks = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
    described = [path for path in files if path.name in marks]
    of_kind = described if described and rng.random() < 0.7 else files
    path = of_kind[int(rng.integers(len(of_kind)))]
    if rng.random() < 0.1:
        path.unlink()
    elif path.name in marks and rng.random() < 0.8:
        path.write_text(_json(path.read_text(errors="replace"), rng))
    elif rng.random() < 0.1:
        path.write_bytes(files[int(rng.integers(len(files)))].read_bytes())
    else:
        path.write_bytes(_bytes(path.read_bytes(), rng))


def _json(text: str, rng: Rng) -> str:
    try:
        document = json.loads(text)
    except ValueError:
        return text[: int(rng.integers(len(text) + 1))]
    places = list(_places(document))
    if not places:
        return json.dumps(VALUES[int(rng.integers(len(VALUES)))])
    holder, key = places[int(rng.integers(len(places)))]
    match rng.integers(6):
        case 0:
            del holder[key]
        case 1:
            other, name = places[int(rng.integers(len(places)))]
            if other is not holder or name in (holder if isinstance(holder, dict) else range(len(holder))):
                holder[key] = json.loads(json.dumps(other[name]))
        case 2 if isinstance(holder, dict):
            holder["" if rng.random() < 0.3 else "more"] = holder.pop(key)
        case _:
            holder[key] = VALUES[int(rng.integers(len(VALUES)))]
    return json.dumps(document)


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _hdf5(path: Path, rng: Rng) -> None:
    """Other attributes, lost or exchanged members, other sizes; the file itself stays sound."""
    with h5py.File(path, "r+") as file:
        nodes: list[Any] = [file]
        file.visititems(lambda _, node: nodes.append(node))
        node = nodes[int(rng.integers(len(nodes)))]
        match rng.integers(4):
            case 0 | 1 if len(node.attrs):
                name = list(node.attrs)[int(rng.integers(len(node.attrs)))]
                value = VALUES[int(rng.integers(len(VALUES)))]
                try:
                    node.attrs[name] = value
                except Exception:
                    del node.attrs[name]
            case 2 if isinstance(node, h5py.Group) and len(node):
                del node[list(node)[int(rng.integers(len(node)))]]
            case _:
                datasets = [node for node in nodes if isinstance(node, h5py.Dataset)]
                place = datasets[int(rng.integers(len(datasets)))].name
                del file[place]
                shape = [(), (0,), (3,), (12, 7), (10**9,), (10**6, 10**6), (2, 2, 2)][int(rng.integers(7))]
                kind = ["f8", "i8", "S3", "i1", "c16"][int(rng.integers(5))]
                file.create_dataset(place, shape, kind, chunks=True if shape else None)
