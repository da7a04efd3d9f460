"""`dlatent inspect`: what a store holds, a model, data or edges."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dlatent.cli import show
from dlatent.cli.arguments import add_json, add_missing_chunks, add_model_size
from dlatent.cli.inspect_embedding import describe_embedding, print_embedding
from dlatent.cli.status import OK

if TYPE_CHECKING:
    from dlatent.stores.results import StoredResult
    from dlatent.stores.strict import MissingChunks

TOP = 6
"""Features named for each component: those with the largest loadings."""


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "inspect",
        help="what a store holds",
        description="Of a model: components, noise, passes and warnings. Of data: shape, chunks, labels, weighting. "
        "Of edges: samples, edges, degrees.",
    )
    parser.add_argument("path", metavar="PATH", help="path or URL of a Zarr store")
    add_missing_chunks(parser)
    add_model_size(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Look into the store, and show what is there."""
    from dlatent.stores.atomic import MARKER, RESULT
    from dlatent.stores.open import open_node

    marker, missing_chunks = open_node(arguments.path).attrs.get(MARKER), arguments.missing_chunks
    kind = marker.get("kind") if isinstance(marker, dict) else None
    if kind == RESULT:
        found = describe_model(arguments.path, arguments.max_model_size)
        display = print_embedding if "eigen_solver" in found else _print_model
    elif kind in ("graph", "links"):
        found, display = describe_graph(arguments.path, missing_chunks), _print_graph
    else:
        found, display = describe_data(arguments.path, missing_chunks), _print_data
    if arguments.json:
        show.as_json(found)
    else:
        display(found)
    return OK


def describe_model(path: str, max_bytes: int | None = None) -> dict[str, Any]:
    """What a saved model is, and how its fit went."""
    from dlatent.stores.results import load

    stored = load(path, max_bytes=max_bytes)
    if "embedding" in stored.variables:
        return describe_embedding(path, stored)
    values = {name: variable.values for name, variable in stored.variables.items()}
    about = stored.attributes
    views = values["view"].tolist()
    return {
        "model": path,
        "kind": stored.kind,
        "version": stored.version,
        "parameters": about["parameters"],
        "samples": about["samples"],
        "features": _width(values, about),
        "targets": values.get("target"),
        "graph": _graph(about),
        "kernel": _kernel(about),
        "mixture": values.get("mixture_weight"),
        "log_likelihood": about["log_likelihood"],
        "converged": about["converged"],
        "iterations": about["iterations"],
        "solver": about["plan"]["solver"],
        "passes": about["passes"],
        "bytes_read": int(values["pass_bytes_read"].sum()),
        "seconds": float(values["pass_seconds"].sum()),
        "noise": _noise(values, views),
        "components": _components(stored),
        "warnings": [text.partition(": ")[2] for text in about["advice"]],
    }


def _width(values: dict[str, Any], about: Any) -> int:
    """The number of features."""
    if "mixture_mean" in values:
        return int(values["mixture_mean"].shape[1])
    return len(values["mean"]) if "mean" in values else int(about["features"]["columns"])


def _noise(values: dict[str, Any], views: list[str]) -> list[dict[str, Any]]:
    """The noise of each view; of factor analysis its mean over the features, and how many are at their floor."""
    seen = values["view_samples"]
    if "mixture_weight" in values:
        return _mixture_noise(values, int(seen[0]))
    if "feature_noise_variance" in values:
        found = []
        for view, count in zip(views, seen, strict=True):
            own = values["feature_view"] == view if "feature_view" in values else slice(None)
            mean, low = values["feature_noise_variance"][own].mean(), values["feature_at_floor"][own].sum()
            found.append({"view": f"{view} (mean)", "variance": mean, "at_floor": int(low), "samples": count})
        return found
    columns = (views, values["noise_variance"], values["at_floor"], seen)
    return [
        {"view": view, "variance": variance, "at_floor": floor, "samples": count}
        for view, variance, floor, count in zip(*columns, strict=True)
    ]


def _mixture_noise(values: dict[str, Any], samples: int) -> list[dict[str, Any]]:
    """The same of each component of a mixture, with the number of samples that it holds."""
    many = "mixture_feature_noise_variance" in values
    prefix, mean = ("mixture_feature_", " (mean)") if many else ("mixture_", "")
    found = []
    for m, weight in enumerate(values["mixture_weight"]):
        variance, low = values[f"{prefix}noise_variance"][m].mean(), values[f"{prefix}at_floor"][m].sum()
        held = round(float(weight) * samples)
        at_floor = int(low) if many else bool(low)
        found.append({"view": f"component {m}{mean}", "variance": variance, "at_floor": at_floor, "samples": held})
    return found


def _graph(about: Any) -> dict[str, Any] | None:
    """Of a relational model: the number of edges, α, γ, and the rank of Δ."""
    if "edges" not in about:
        return None
    numbers = {name: about["parameters"][name] for name in ("alpha", "gamma")}
    return {"edges": about["edges"], **numbers, "rank": about["precision_rank"]}


def _kernel(about: Any) -> dict[str, Any] | None:
    """Of a kernel model: the kernel and its numbers, the number of features, and the trace error of landmarks."""
    features = about.get("features")
    if features is None:
        return None
    return {**features["kernel"], "dimension": features["dimension"], "trace_error": features["trace_error"]}


def _components(stored: StoredResult) -> list[dict[str, Any]]:
    """For each component its variance over the features, the share of their total variance, and its largest
    loadings, which features of a kernel have not."""
    import numpy as np

    if "coordinate_loadings" in stored.variables:
        variances = (stored.variables["coordinate_loadings"].values ** 2).sum(axis=0)
        total = float(stored.variables["total_variance"].values[0]) * stored.attributes["features"]["dimension"]
        shares = [(number, float(variance)) for number, variance in enumerate(variances)]
        return [{"component": n, "variance": v, "share": v / total, "largest": []} for n, v in shares]
    variances, mixed = stored.variables["total_variance"].values, stored.variables.get("mixture_loadings")
    # One set of loadings, or one for each component of a mixture.
    each = stored.variables["loadings"].values[None] if mixed is None else mixed.values
    named, of_view = stored.variables.get("feature"), stored.variables.get("feature_view")
    names: Any = np.arange(each.shape[1]) if named is None else named.values
    if of_view is None:
        total = float(variances[0]) * each.shape[1]
    else:
        views = stored.variables["view"].values
        total = sum(
            float(own) * int((of_view.values == view).sum()) for view, own in zip(views, variances, strict=True)
        )
        names = [f"{view} {name}" for view, name in zip(of_view.values, names, strict=True)]
    found = []
    for m, loadings in enumerate(each):
        for number, column in enumerate(loadings.T):
            order = np.argsort(-np.abs(column), kind="stable")[:TOP]
            variance = float(column @ column)
            largest = [{"feature": names[i], "loading": column[i]} for i in order]
            one = {"component": number, "variance": variance, "share": variance / total, "largest": largest}
            found.append(one if mixed is None else {"mixture": m} | one)
    return found


def _print_model(found: dict[str, Any]) -> None:
    targets, graph = found["targets"], found["graph"]
    show.facts(
        f"{found['model']}: a fitted {found['kind']}",
        {
            "data": f"{found['samples']:,} samples × {found['features']:,} features",
            "labels": None if targets is None else f"{len(targets)}: {_shortened(targets)}",
            "graph": None if graph is None else _edge_words(graph, found["samples"]),
            "kernel": None if found["kernel"] is None else _kernel_words(found["kernel"]),
            "log-likelihood": show.likelihood(found["log_likelihood"], graph=graph is not None),
            "converged": "yes" if found["converged"] else "NO",
            "passes": f"{found['passes']} over the data by {found['solver']}, {found['bytes_read'] / 1e6:,.1f} MB "
            f"read, {found['seconds']:.1f} s",
        },
    )
    noise = [[str(n["view"]), f"{n['variance']:.6g}", f"{n['samples']:,}", _floor(n)] for n in found["noise"]]
    show.table(("noise of", "variance", "samples", "at its floor"), noise, left=("noise of",))
    rows = [
        [_place(c), f"{c['variance']:.5g}", f"{c['share']:.2%}", ", ".join(map(_signed, c["largest"]))]
        for c in found["components"]
    ]
    show.table(("component", "variance", "of total", "largest loadings"), rows, left=("largest loadings",))
    for text in found["warnings"]:
        show.say(f"warning: {text}")


def _place(component: dict[str, Any]) -> str:
    """The number of a component, in a mixture that of the mixture before it."""
    return f"{component['mixture']}.{component['component']}" if "mixture" in component else str(component["component"])


def _kernel_words(kernel: dict[str, Any]) -> str:
    numbers = {"rbf": ("gamma",), "laplacian": ("gamma",), "polynomial": ("gamma", "degree", "coef0")}
    said = [f"{name} {kernel[name]:g}" for name in numbers.get(kernel["name"], ())]
    error = f"; trace error of the landmarks {kernel['trace_error']:.2g}" if kernel["trace_error"] else ""
    return ", ".join([kernel["name"], *said, f"{kernel['dimension']:,} features"]) + error


def _edge_words(graph: dict[str, Any], samples: int) -> str:
    rank = "" if graph["rank"] == samples else f", rank of Δ {graph['rank']:,}"
    return f"{graph['edges']:,}, with α = {graph['alpha']:g} and γ = {graph['gamma']:g}{rank}"


def _floor(noise: dict[str, Any]) -> str:
    low = noise["at_floor"]
    if isinstance(low, int) and not isinstance(low, bool):
        return f"{low} features" if low else "none"
    return "yes" if low else "no"


def _signed(largest: dict[str, Any]) -> str:
    return f"{'−' if largest['loading'] < 0 else '+'}{largest['feature']}"


def _shortened(values: Any, most: int = 8) -> str:
    shown = ", ".join(str(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown}, …"


def describe_graph(path: str, missing_chunks: MissingChunks) -> dict[str, Any]:
    """What a graph between samples is, without reading its edges."""
    import numpy as np

    from dlatent.stores.chunked import read_all
    from dlatent.stores.graph import open_graph
    from dlatent.stores.open import open_node

    graph = open_graph(path, missing_chunks=missing_chunks)
    node: Any = open_node(path, missing_chunks)
    degrees = np.diff(read_all(node["indptr"]))
    return {
        "graph": path,
        "samples": graph.samples,
        "edges": graph.entries // 2,
        "weighted": node["data"].dtype == np.float64,
        "median_degree": np.median(degrees),
        "largest_degree": degrees.max(),
        "isolated": np.count_nonzero(degrees == 0),
        "chunks": node["data"].chunks,
        "reordered": "original_position" in node,
    }


def _print_graph(found: dict[str, Any]) -> None:
    show.facts(
        f"{found['graph']}: a graph",
        {
            "samples": f"{found['samples']:,}",
            "edges": f"{found['edges']:,}, {'weighted' if found['weighted'] else 'unweighted'}",
            "degree": f"median {found['median_degree']:g}, largest {found['largest_degree']:,}",
            "isolated": f"{found['isolated']:,}",
            "chunks": " × ".join(map(str, found["chunks"])),
            "rows": "reordered" if found["reordered"] else None,
        },
    )


def describe_data(path: str, missing_chunks: MissingChunks) -> dict[str, Any]:
    """What a data store holds, without reading its matrix."""
    from dlatent.stores.atomic import MARKER
    from dlatent.stores.open import open as open_source
    from dlatent.stores.open import open_node

    node = open_node(path, missing_chunks)
    source = open_source(node)
    marker: Any = node.attrs.get(MARKER)
    marker = marker if isinstance(marker, dict) else {}
    return {
        "data": path,
        "description": source.description,
        "shape": source.shape,
        "dtype": source.dtype.name,
        "sparse": source.sparse,
        "stored_values": source.nnz,
        "bytes": source.nbytes,
        "blocks": len(source.blocks),
        "largest_block": max(block.nbytes for block in source.blocks),
        "chunks": _chunks(node),
        "dims": source.labels.dims,
        "labels": _labels(path, node, missing_chunks),
        "weighting": marker.get("weighting"),
        "unit_norm": marker.get("unit_norm"),
        "sources": marker.get("sources"),
    }


def _chunks(node: Any) -> Any:
    """Shape of the chunks of the matrix, or of the values of a sparse one."""
    chunks = getattr(node, "chunks", None)
    if chunks is not None:
        return chunks
    inside = next((node[name] for name in ("X", "data", "scores") if name in node), None)
    return None if inside is None else _chunks(inside)


def _labels(path: str, node: Any, missing_chunks: MissingChunks) -> list[dict[str, Any]]:
    """The columns of labels that the store has, with what `dlatent fit supervised` would see in them."""
    from dlatent.stores.label_files import MULTI, column_names, read_labels

    if not hasattr(node, "members"):
        return []
    columns = column_names(node["obs"]) if "obs" in node else []
    found = [_column(name, read_labels(path, name, missing_chunks=missing_chunks)) for name in columns]
    if f"obsm/{MULTI}" in node:
        outputs = read_labels(path, MULTI, missing_chunks=missing_chunks).shape[1]
        found.append({"column": MULTI, "outputs": outputs})
    return found


def _column(name: str, values: Any) -> dict[str, Any]:
    import numpy as np

    missing = [value is None or value != value or value == -1 for value in values.tolist()]
    distinct = {value for value, absent in zip(values.tolist(), missing, strict=True) if not absent}
    return {"column": name, "distinct": len(distinct), "unlabelled": int(np.sum(missing))}


def _print_data(found: dict[str, Any]) -> None:
    rows, columns = found["shape"]
    kind = "sparse" if found["sparse"] else "dense"
    values = "" if found["stored_values"] is None else f", {found['stored_values']:,} stored values"
    weights = [found["weighting"], "unit rows" if found["unit_norm"] else None]
    show.facts(
        f"{found['data']}: {found['description'].partition(' ')[0]} data",
        {
            "rows × features": f"{rows:,} × {columns:,}, {kind} {found['dtype']}{values}",
            "in memory": f"{found['bytes'] / 1e6:,.1f} MB in {found['blocks']} blocks of at most "
            f"{found['largest_block'] / 1e6:,.1f} MB",
            "chunks": None if found["chunks"] is None else " × ".join(map(str, found["chunks"])),
            "dimensions": " × ".join(found["dims"]),
            "labels": "; ".join(map(_label_words, found["labels"])) or "none",
            "weighting": ", ".join(filter(None, weights)) or None,
            "sources": None if found["sources"] is None else ", ".join(found["sources"]),
        },
    )


def _label_words(label: dict[str, Any]) -> str:
    if "outputs" in label:
        return f"{label['column']} ({label['outputs']} outputs)"
    unlabelled = f", {label['unlabelled']:,} rows unlabelled" if label["unlabelled"] else ""
    return f"{label['column']} ({label['distinct']} different{unlabelled})"
