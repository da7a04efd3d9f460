"""`dlatent ingest`: files into a Zarr store."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from dlatent.cli import show
from dlatent.cli.arguments import add_json, add_missing_chunks, add_overwrite, add_quiet, byte_count, positive
from dlatent.cli.places import require_free, told_how_to_go_on
from dlatent.cli.progress import IngestProgress, Screen
from dlatent.cli.status import OK

FORMATS = ("svmlight", "matrixmarket", "npz", "npy", "csv", "parquet", "h5ad", "zarr")


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "ingest",
        help="bring files into a Zarr store",
        description="Stream files into a Zarr store in the layout of AnnData, in bounded memory.",
    )
    parser.add_argument("source", nargs="+", metavar="SOURCE", help="a file, or several that continue one another")
    parser.add_argument("destination", metavar="DEST", help="path or URL of the new store")
    parser.add_argument("--format", choices=FORMATS, help="default: by the extension")
    parser.add_argument(
        "--labels",
        action="append",
        metavar="NAME",
        help="column, key or file of the labels; again for more columns",
    )
    parser.add_argument(
        "--features", action="append", metavar="NAME", help="columns to read, a file of names, or their number"
    )
    parser.add_argument("--ids", metavar="NAME", help="column or key with the names of the rows")
    parser.add_argument("--index-base", choices=("auto", "0", "1"), default="auto", help="first feature in svmlight")
    parser.add_argument(
        "--missing", choices=("raise", "nan"), default="raise", help="nan: keep missing values of dense data as NaN"
    )
    add_missing_chunks(parser)
    parser.add_argument("--tfidf", action="store_true", help="weigh counts by inverse document frequency")
    parser.add_argument("--unit-norm", action="store_true", help="scale every row to length 1")
    parser.add_argument("--zero-rows", choices=("error", "keep", "drop"), default="error", help="where rows are scaled")
    parser.add_argument("--dtype", choices=("float32", "float64"), help="of the stored values; default: as in the file")
    parser.add_argument(
        "--block-size", type=byte_count, default="32MiB", metavar="SIZE", help="bytes of a block of rows (32MiB)"
    )
    parser.add_argument("--max-features", type=positive, metavar="N", help="refuse files with more (10000000)")
    parser.add_argument("--max-line-bytes", type=byte_count, metavar="SIZE", help="refuse longer lines of text (64MiB)")
    parser.add_argument(
        "--max-expansion", type=positive, metavar="N", help="refuse files that unpack to N times their size (200)"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="of svmlight, CSV and Parquet: keep what is read in DEST.checkpoint until all is, and go on from there",
    )
    add_quiet(parser)
    add_overwrite(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ingest, and show the report."""
    from dlatent.stores.checkpoint import checkpoint_beside

    resume = checkpoint_beside(arguments.destination) if arguments.resume else None
    require_free(arguments.destination, *arguments.source, overwrite=arguments.overwrite, resume=resume)
    from dlatent.stores.ingest import ingest

    names = ("max_features", "max_line_bytes", "max_expansion")
    limits = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    bases: dict[str, Any] = {"auto": "auto", "0": 0, "1": 1}
    way_on = f"{arguments.destination}.checkpoint has what was read: the same command goes on"
    with Screen(quiet=arguments.quiet) as screen, told_how_to_go_on(way_on if arguments.resume else None):
        report = ingest(
            arguments.source,
            arguments.destination,
            format=arguments.format,
            weighting="tfidf" if arguments.tfidf else "none",
            unit_norm=arguments.unit_norm,
            zero_rows=arguments.zero_rows,
            block_bytes=arguments.block_size,
            dtype=arguments.dtype,
            labels=_one_or_many(arguments.labels),
            features=_one_or_many(arguments.features),
            ids=arguments.ids,
            index_base=bases[arguments.index_base],
            missing=arguments.missing,
            missing_chunks=arguments.missing_chunks,
            overwrite=arguments.overwrite,
            resume=arguments.resume,
            progress=IngestProgress(screen),
            **limits,
        )
    found = asdict(report)
    if arguments.json:
        show.as_json(found)
        return OK
    rows, columns = report.shape
    show.facts(
        f"{report.destination} written",
        {
            "rows × features": f"{rows:,} × {columns:,}",
            "values": f"{report.nnz:,} stored, {report.dtype}, {'sparse' if report.sparse else 'dense'}",
            "labels": report.labels,
            "rows dropped": report.rows_dropped or None,
            "read": f"{report.bytes_read / 1e6:,.1f} MB in {report.seconds:.1f} s",
            "written": None if report.bytes_written is None else f"{report.bytes_written / 1e6:,.1f} MB",
            "notes": "; ".join(report.notes) or None,
        },
    )
    return OK


def _one_or_many(values: list[str] | None) -> Any:
    """One name as text (a number as a number), several as a list, none as None."""
    if values is None or len(values) > 1:
        return values
    return int(values[0]) if values[0].isdecimal() else values[0]
