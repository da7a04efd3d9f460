"""Pictures of samples: where they lie by their latent variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.containers import without_mask
from dlatent.plot.axes import axes_or_new, labelled, probability, refuse_annotated, variable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OTHERS = "0.8"
"""Grey of samples without a label, or with one that has no colour of its own."""
GOLDEN = 0.5 * (5.0**0.5 - 1.0)
"""Multiples of it, without their whole part, are spread evenly, however many there are."""


def scores(
    result: Any,
    *,
    labels: Any = None,
    components: tuple[int, int] = (0, 1),
    most_labels: int = 10,
    ellipses: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw samples by two of their latent variables.

    Parameters
    ----------
    result : array_like of shape (N, K) or Dataset
        Scores as `transform` returns them, or what `posterior` returns.
    labels : array_like of shape (N,), optional
        One per sample, None or NaN for none.
    components : tuple of int, default (0, 1)
        The two to draw, by position.
    most_labels : int, default 10
        How many labels get a colour, the most frequent first.
    ellipses : float, optional
        The probability of an ellipse around each sample, such as 0.5; for what `posterior` returns.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        A point for each sample.

    Raises
    ------
    ValueError
        Where `labels` has another length, there is no such component, or `ellipses` is no probability.
    TypeError
        For ellipses of scores alone.
    """
    values, names = score_values(result)
    if not all(-values.shape[1] <= number < values.shape[1] for number in components):
        raise ValueError(f"components are {components}, but the scores have {values.shape[1]}")
    x, y = (values[:, number] for number in components)
    axes = axes_or_new(ax)
    if ellipses is not None:
        _around(axes, values[:, list(components)], _covariances(result, len(x), list(components)), ellipses)
    size = _size(len(x))
    if labels is None:
        axes.scatter(x, y, s=size, linewidths=0)
    else:
        _coloured(axes, x, y, _checked(labels, len(x)), most_labels, size)
    return labelled(axes, *(f"component {names[number]}" for number in components))


def scores_by_label(
    result: Any, labels: Any, component: int = 0, *, most_labels: int = 10, ax: Axes | None = None
) -> Axes:
    """Draw one latent variable of the samples, a row of points for each label.

    Parameters
    ----------
    result : array_like of shape (N, K) or Dataset
        Scores as `transform` returns them, or what `posterior` returns.
    labels : array_like of shape (N,)
        One per sample, None or NaN for none.
    component : int, default 0
        The component to draw, by position.
    most_labels : int, default 10
        How many labels are drawn, the most frequent.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        A point for each sample with one of these labels, in the colours of `scores`, and a line at their median.

    Raises
    ------
    ValueError
        Where `labels` has another length, or there is no such component.
    """
    values, names = score_values(result)
    if not -values.shape[1] <= component < values.shape[1]:
        raise ValueError(f"component is {component}, but the scores have {values.shape[1]}")
    known = _checked(labels, len(values))
    frequent = _frequent(known, most_labels)
    axes, size = axes_or_new(ax), _size(len(values)) / 2
    for row, (label, colour) in enumerate(zip(frequent, _palette(len(frequent)), strict=True)):
        x = values[[each == label for each in known], component]
        y = row + 0.6 * (GOLDEN * np.arange(len(x)) % 1.0 - 0.5)
        axes.scatter(x, y, s=size, color=colour, linewidths=0, alpha=0.6, label=str(label))
        axes.vlines(np.median(x), row - 0.4, row + 0.4, color="0.2")
    axes.set_yticks(range(len(frequent)), [str(label) for label in frequent])
    axes.invert_yaxis()
    return labelled(axes, f"component {names[component]}", "")


def _size(samples: int) -> float:
    """The area of a point, smaller the more there are."""
    return float(np.clip(2e4 / max(samples, 1), 4, 36))


def _covariances(result: Any, rows: int, components: list[int]) -> npt.NDArray[Any]:
    """The posterior covariance of two latent variables, (N, 2, 2)."""
    if not isinstance(result, xr.Dataset) or "covariance" not in result:
        raise TypeError("ellipses are drawn from covariances, which posterior() gives; scores alone have none")
    covariances = result["covariance"].values
    if "pattern_of" in result:
        covariances = covariances[result["pattern_of"].values]
    return np.broadcast_to(covariances, (rows, *covariances.shape[-2:]))[:, components][:, :, components]


def _around(axes: Axes, middle: npt.NDArray[Any], covariances: npt.NDArray[Any], level: float) -> None:
    """An ellipse around each point that holds the probability."""
    from matplotlib.collections import EllipseCollection

    lengths, directions = np.linalg.eigh(covariances)
    # Of two dimensions a part 1 − exp(−r²/2) lies within r standard deviations.
    widths = 2 * np.sqrt(-2 * np.log1p(-probability("ellipses", level)) * lengths)
    angles = np.degrees(np.arctan2(directions[:, 1, 0], directions[:, 0, 0]))
    drawn = EllipseCollection(
        widths[:, 0], widths[:, 1], angles, units="xy", offsets=middle, offset_transform=axes.transData,
        facecolors="none", edgecolors="0.6", linewidths=0.5, zorder=0.5,
    )  # fmt: skip
    axes.add_collection(drawn)


def score_values(result: Any) -> tuple[npt.NDArray[Any], Sequence[Any]]:
    """The scores, and the names of the components."""
    if isinstance(result, xr.Dataset):
        result = variable(result, "scores")
    refuse_annotated(result, "its scores, as adata.obsm['X_ppca']")
    values = np.asarray(result)
    if values.ndim != 2:
        raise ValueError(f"the scores have shape {values.shape}; expected samples × components")
    if isinstance(result, xr.DataArray) and result.dims[1] in result.coords:
        return values, result.coords[result.dims[1]].values.tolist()
    return values, range(values.shape[1])


def _checked(labels: Any, rows: int) -> list[Any]:
    """The labels, with None for NaN."""
    refuse_annotated(labels, "one of its columns, as adata.obs['type']")
    plain = without_mask(labels) if isinstance(labels, np.ma.MaskedArray) else labels
    values = np.asarray(plain, dtype=object)
    if values.shape != (rows,):
        raise ValueError(f"labels have shape {values.shape}; there are {rows} samples, so give one for each")
    return [None if value is None or value != value else value for value in values.tolist()]


def _coloured(axes: Axes, x: Any, y: Any, labels: list[Any], most: int, size: float) -> None:
    """One colour for each frequent label over the grey of the others."""
    frequent = _frequent(labels, most)
    place = {label: number for number, label in enumerate(frequent)}
    of = np.array([place.get(label, -1) for label in labels])
    if (of < 0).any():
        axes.scatter(x[of < 0], y[of < 0], s=size / 2, color=OTHERS, linewidths=0, label="others", zorder=1)
    colours = _palette(len(frequent))
    for label, number in place.items():
        rows = of == number
        axes.scatter(
            x[rows], y[rows], s=size, color=colours[number], linewidths=0, alpha=0.8, label=str(label), zorder=2
        )
    axes.legend(markerscale=float(np.sqrt(30 / size)), frameon=False, fontsize="small")


def _frequent(labels: list[Any], most: int) -> list[Any]:
    """The most frequent labels, in their own order."""
    counts = Counter(label for label in labels if label is not None)
    frequent = sorted(counts, key=lambda label: (-counts[label], str(label)))[:most]
    with suppress(TypeError):  # labels of several kinds, which have no order
        frequent.sort()
    return frequent


def _palette(count: int) -> list[Any]:
    """A colour for each label."""
    from matplotlib import colormaps

    colours = colormaps["tab10" if count <= 10 else "tab20"]
    return [colours(number % colours.N) for number in range(count)]
