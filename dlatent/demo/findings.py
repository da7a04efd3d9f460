"""What the demonstration found: a table, and what its numbers say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlatent.demo.corpus import Wording

COLUMNS = (
    "",
    "1-NN error",
    "by cosine distance",
    "predict error",
    "log-likelihood",
    "passes",
    "read, MB",
    "seconds",
    "peak, MB",
)


@dataclass(frozen=True)
class FitCost:
    """What one fit came to and what it cost, in nats, passes, bytes, seconds and bytes."""

    log_likelihood: float
    passes: int
    bytes_read: int
    seconds: float
    peak_memory: int

    @property
    def cells(self) -> tuple[str, ...]:
        """The numbers of the table."""
        return (
            f"{self.log_likelihood:,.0f}",
            str(self.passes),
            f"{self.bytes_read / 1e6:,.1f}",
            f"{self.seconds:.1f}",
            f"{self.peak_memory / 1e6:,.0f}",
        )


@dataclass(frozen=True)
class Line:
    """One model, or (without cost) the words themselves: which documents asked about are guessed wrong from the nearest
    labelled one, by distance and by cosine distance, and by the prediction of the model where it has one."""

    name: str
    wrong: npt.NDArray[np.bool_]
    wrong_by_angle: npt.NDArray[np.bool_]
    cost: FitCost | None = None
    predicted_wrong: npt.NDArray[np.bool_] | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        costs = ("–",) * 5 if self.cost is None else self.cost.cells
        predicted = "–" if self.predicted_wrong is None else f"{self.predicted_wrong.mean():.3f}"
        return self.name, f"{self.wrong.mean():.3f}", f"{self.wrong_by_angle.mean():.3f}", predicted, *costs


def summary(lines: tuple[Line, ...], words: Wording, seconds: float) -> str:
    """What the numbers say, whatever they are; `lines` are those of the words, PPCA, PRPCA and S²PPCA."""
    alone, ppca, relational, supervised = lines
    pairs = [(one, other) for one in (relational, supervised) for other in (ppca, alone)]
    verdicts = "\n".join(compared(one, other) for one, other in pairs)
    assert supervised.predicted_wrong is not None
    prediction = verdict(supervised.predicted_wrong, ppca.wrong_by_angle)
    return (
        f"{verdicts}\n"
        f"S²PPCA's prediction against the nearest neighbour in PPCA by cosine distance: {prediction}.\n"
        f"1-NN error: share of the unlabelled {words.documents} whose nearest labelled {words.document} is of another "
        f"{words.group}, by distance and by cosine distance.\n"
        f"PRPCA was told no {words.group}, but the {words.links} of all {words.documents}, and those within a "
        f"{words.group} give it away. They shape its latent space; each {words.document} is then placed by its words "
        "alone, as by the other models.\n"
        "Log-likelihood: in nats; of the words for PPCA, without the term of the graph for PRPCA, of "
        "words and labels for S²PPCA, so not to be compared.\n"
        f"Peak: resident memory of the driver and the workers together. The whole took {seconds:.0f} s."
    )


def compared(one: Line, other: Line) -> str:
    """One sentence on both errors."""
    distance, angle = verdict(one.wrong, other.wrong), verdict(one.wrong_by_angle, other.wrong_by_angle)
    said = (
        f"{distance} by distance and by cosine distance"
        if distance == angle
        else f"{distance} by distance, {angle} by cosine distance"
    )
    return f"{one.name} against {other.name}: {said}."


def verdict(mine: npt.NDArray[np.bool_], theirs: npt.NDArray[np.bool_]) -> str:
    """Whether the first makes fewer mistakes on the same questions, or chance could make the difference (McNemar's
    test, 5 %)."""
    fewer, more = int((theirs & ~mine).sum()), int((mine & ~theirs).sum())
    if abs(fewer - more) <= 1.96 * np.sqrt(fewer + more):
        return "no difference beyond chance"
    return "better" if fewer > more else "worse"
