"""The maximum from moments that are known, on the driver."""
