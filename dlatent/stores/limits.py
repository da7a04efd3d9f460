"""What a header may announce of a file of this size: a damaged number must not fill the memory or the disk."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlatent.errors import DataError

FREE_BYTES = 256 << 20
"""What is believed without a look at the size of the file that it comes from."""


@dataclass(frozen=True)
class Limits:
    """The largest number of features, and of announced bytes for each byte of the file."""

    features: int = 10_000_000
    expansion: int = 200

    def __post_init__(self) -> None:
        for name, value in (("max_features", self.features), ("max_expansion", self.expansion)):
            if not value >= 1:
                raise DataError(f"{name} is {value}; expected at least 1")

    def check_features(self, features: int, place: str) -> None:
        """Refuse a matrix that is wider than the limit."""
        if features > self.features:
            raise DataError(
                f"{place} has a feature number {features:,}, but at most {self.features:,} features are expected, "
                f"because each costs memory and a name; raise the limit with max_features={features} (--max-features), "
                "or number them by those that occur"
            )

    def check_size(self, unpacked: int, size: int | None, place: str) -> None:
        """Refuse what is larger than a file of `size` bytes (None: unknown) may unpack to."""
        if size is None or unpacked <= max(FREE_BYTES, self.expansion * size):
            return
        least = math.ceil(unpacked / max(size, 1))
        raise DataError(
            f"{place} unpacks to {unpacked:,} bytes or more, over {self.expansion} times the {size:,} bytes of the "
            f"file; if it is no damage, raise the limit to {least} or more with max_expansion (--max-expansion)"
        )


DEFAULT = Limits()
"""The limits where the caller says nothing."""
