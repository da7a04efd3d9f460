"""What `dlatent inspect` says of a saved embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlatent.cli import show

if TYPE_CHECKING:
    from dlatent.stores.results import StoredResult


def describe_embedding(path: str, stored: StoredResult) -> dict[str, Any]:
    """What a saved embedding is, and how its eigenvectors were found."""
    values = {name: variable.values for name, variable in stored.variables.items()}
    about = stored.attributes
    rows = (values["view_row"] >= 0).sum(axis=0)
    return {
        "model": path,
        "kind": stored.kind,
        "version": stored.version,
        "parameters": about["parameters"],
        "samples": len(values["embedding"]),
        "components": values["embedding"].shape[1],
        "views": [
            {"view": own["name"], "samples": count, "features": own["shape"][1], "kept": own["dtype"] is not None}
            for own, count in zip(about["views"], rows.tolist(), strict=True)
        ],
        "eigenvalues": values["smallest_eigenvalues"],
        "eigen_solver": about["eigen_solver"],
        "eigen_residual": about["eigen_residual"],
        "converged": about["converged"],
        "separate_sets": int(values["separate_set"].max()) + 1,
        "neighbor_recall": about["neighbor_recall"],
        "seconds": float(values["pass_seconds"].sum()),
    }


def print_embedding(found: dict[str, Any]) -> None:
    """The same for people."""
    sets = found["separate_sets"]
    show.facts(
        f"{found['model']}: a fitted {found['kind']}",
        {
            "embedding": f"{found['samples']:,} samples in {found['components']} dimensions",
            "neighbours": f"{found['parameters']['n_neighbors']} of each sample",
            "eigenvalues": ", ".join(f"{value:.3g}" for value in found["eigenvalues"]),
            "eigenvectors": f"{found['eigen_solver']}, known to {found['eigen_residual']:.1e} of the eigenvalues",
            "converged": "yes" if found["converged"] else "NO",
            "graph": "hangs together" if sets == 1 else f"falls apart into {sets} sets",
        },
    )
    rows = [
        [view["view"], f"{view['samples']:,}", f"{view['features']:,}", "yes" if view["kept"] else "no"]
        for view in found["views"]
    ]
    show.table(("view", "samples", "features", "training rows kept"), rows, left=("view",))
