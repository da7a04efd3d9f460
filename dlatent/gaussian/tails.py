"""Heavy tails of residuals: how many entries lie far from what a normal model expects of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, Dense
from dlatent.errors import number_of
from dlatent.gaussian import likelihood
from dlatent.gaussian.missing_entries import incomplete
from dlatent.gaussian.specification import Parameters, Specification

ENTRIES, LEAST_ROWS, MOST_ENTRIES = 2**14, 64, 2**21
"""Entries that are looked at, rows in which they lie at least, and entries of these at most."""
USUAL = 1.4826
"""The standard deviation of a normal variable in units of its median distance."""
FAR, FAR_ROW = 5.0, 3.0
"""Times their usual size from which residuals, and the median one of a row, are far off."""
MANY = 0.01
"""Part of far entries from which tails are heavy: of normal entries, and of all real data without outliers that were
tried, fewer are."""
TIED = 0.25
"""Part of the entries of a feature with one value from which it is no continuous one, but counts, classes or zeros."""
SKEWED = 0.75
"""Part of the far entries on one side from which features may be skewed."""
ROUNDING = 1e-5
"""Residuals, as a part of the deviations of a feature, that may be rounding."""


class Tails(NamedTuple):
    """Of the entries of some rows how many are known and how many are far off; of the latter how many lie in rows that
    are off as a whole and above what is expected."""

    rows: int
    entries: int
    far: int
    in_rows: int
    above: int

    @property
    def heavy(self) -> bool:
        """Whether more are far off than are of any normal data."""
        return self.far > MANY * self.entries

    def advice(self) -> str:
        """What was seen, and what helps."""
        said = (
            f"misfit: {100.0 * self.far / self.entries:.2g} % of the residuals of {number_of(self.rows, 'row')} are "
            f"more than {FAR:.0f} times their usual size (of normal entries one in a million)"
        )
        if self.in_rows > 0.5 * self.far:
            said += (
                ", most of them in rows that are off as a whole; where these are outliers, likelihood='student_rows' "
                "gives such rows less weight"
            )
        else:
            said += "; where these are outliers, likelihood='student' gives such entries less weight"
        if max(self.above, self.far - self.above) <= SKEWED * self.far:
            return said
        return (
            f"{said}; most have one sign: of skewed features take logarithms, of counts likelihood='negative_binomial'"
        )


def some_rows(x: Dense) -> Dense:
    """Some rows of dense data, evenly spread."""
    rows = min(max(ENTRIES // x.shape[1], LEAST_ROWS), max(MOST_ENTRIES // x.shape[1], 1))
    return x[:: -(-len(x) // rows)].copy()


def tails_of(rows: Dense, parameters: Parameters, specification: Specification, *, missing: bool) -> Tails:
    """The tails of the residuals x − E[Wz + μ | x] of rows (n, D), where NaN may be `missing`; O(n D K).

    Residuals of a normal model are normal, and those of a feature have one variance.  Each is divided by the root mean
    square of its feature, and the usual size of all is 1.4826 times their median: outliers make the first larger and
    leave the second, so that few rows, and features of any spread, seem to have light tails rather than heavy ones.
    Features with ties are left out, as their median residual is that of the ties; where they are most of all the others
    do not tell.
    """
    x = rows.astype(np.float64)
    scores = (incomplete if missing else likelihood).scores(x, None, parameters, specification)
    residuals, size = _about_mean(x - scores @ parameters.loadings.T - parameters.mean)
    told = (size > ROUNDING * _about_mean(x)[1]) & ~_tied(x)
    away = residuals[:, told] / size[told]
    known = np.abs(away[~np.isnan(away)])
    if 2 * told.sum() < len(told) or not len(known):
        return Tails(len(x), 0, 0, 0, 0)
    median = float(np.median(known))
    far = np.abs(away) > FAR * USUAL * median
    off = [row for row in np.flatnonzero(far.any(axis=1)) if np.nanmedian(np.abs(away[row])) > FAR_ROW * median]
    return Tails(len(x), len(known), int(far.sum()), int(far[off].sum()), int((far & (away > 0.0)).sum()))


def _about_mean(x: Array) -> tuple[Array, Array]:
    """Entries about the means of their features (n, D), and the roots of their mean squares (D,)."""
    counts = np.maximum((~np.isnan(x)).sum(axis=0), 1)
    about = x - np.nansum(x, axis=0) / counts
    return about, np.sqrt(np.nansum(about**2, axis=0) / counts)


def _tied(x: Array) -> npt.NDArray[np.bool_]:
    """Which features (D,) have one value, that in the middle, in more than a quarter of their entries."""
    ordered = np.sort(x, axis=0)
    counts = (~np.isnan(ordered)).sum(axis=0)
    middle = np.take_along_axis(ordered, (counts // 2)[None], axis=0)
    return np.asarray((ordered == middle).sum(axis=0) > TIED * counts)
