"""The history of a fit: a line for each iteration, and its end."""

from __future__ import annotations

from dlatent.fitting.outcome import Iteration, Report


class History(list[Iteration]):
    """The iterations so far; `report` is told of each."""

    def __init__(self, report: Report | None = None) -> None:
        super().__init__()
        self.report = report

    def add(self, value: float, remaining: float = float("nan"), rank: int = 0) -> Iteration:
        """The next iteration, with its log-likelihood in nats and the rest of an `Iteration`."""
        gain = value - self[-1].log_likelihood if self else float("nan")
        self.append(Iteration(len(self) + 1, value, gain, remaining, rank))
        if self.report is not None:
            self.report(self[-1])
        return self[-1]

    def end(self, value: float) -> None:
        """Add where the fit ends, where that is not where its last iteration was."""
        if not self or value != self[-1].log_likelihood:
            self.add(value)

    def settled(self, tolerance: float) -> bool:
        """Whether the last iteration gained less than the tolerance, relative to the log-likelihood."""
        return len(self) > 1 and abs(self[-1].gain) <= tolerance * max(abs(self[-1].log_likelihood), 1.0)
