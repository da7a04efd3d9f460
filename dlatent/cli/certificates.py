"""The certificates that a command shows to a scheduler, and asks it for: by its options, or by Dask's configuration."""

from __future__ import annotations

import argparse
import os
from typing import Any

from dlatent.cli.arguments import UsageError

ENCRYPTED = ("tls://", "wss://")
"""How addresses begin that speak TLS."""
FIELDS = {"--tls-ca-file": "tls_ca_file", "--tls-cert": "tls_client_cert", "--tls-key": "tls_client_key"}
"""Options, and what Dask calls the same; Dask uses certificates only where it has those of both sides."""
GIVE = "--tls-ca-file CA.pem --tls-cert CERT.pem --tls-key KEY.pem"


def encrypted(address: str) -> bool:
    """Whether an address speaks TLS."""
    return address.startswith(ENCRYPTED)


def security(arguments: argparse.Namespace) -> Any:
    """The `distributed.Security` of a command with `--scheduler`: by its options, then by Dask's configuration.

    Errors: UsageError for options that do not go together, and for files that are not there or of no use.
    """
    import distributed

    new: Any = distributed.Security  # without types
    given, address = _given(arguments), arguments.scheduler
    fields = {FIELDS[option]: path for option, path in given.items()}
    if "--tls-cert" in given:
        fields.setdefault("tls_client_key", None)  # that of the configuration is of another certificate
    needed = encrypted(address)
    try:
        made = new(require_encryption=needed or None, **fields)
    except ValueError as error:
        raise UsageError(f"Dask's configuration of TLS cannot be used: {error}") from error
    if needed:
        _check(made, address)
    elif given or made.require_encryption:
        asks = ", ".join(given) or "distributed.comm.require-encryption in Dask's configuration"
        raise UsageError(
            f"{asks} asks for TLS, which {address} does not speak; give an address such as tls://host:8786"
        )
    return made


def check_unused(arguments: argparse.Namespace) -> None:
    """Refuse certificates of a command that contacts no scheduler. Errors: UsageError."""
    given = _given(arguments)
    if given:
        raise UsageError(f"{', '.join(given)}: certificates are for a scheduler; give --scheduler tls://host:8786 too")


def _given(arguments: argparse.Namespace) -> dict[str, str | None]:
    values = {option: getattr(arguments, option.strip("-").replace("-", "_")) for option in FIELDS}
    given = {option: value for option, value in values.items() if value is not None}
    if "--tls-key" in given and "--tls-cert" not in given:
        raise UsageError("--tls-key belongs to a certificate; give --tls-cert CERT.pem with it")
    return given


def _check(made: Any, address: str) -> None:
    """Read the files once, so that what is wrong with them is said before anything is contacted."""
    files = {option: getattr(made, field) for option, field in FIELDS.items()}
    missing = [option for option in ("--tls-ca-file", "--tls-cert") if not files[option]]
    if missing:
        raise UsageError(
            f"{address} asks for certificates, but {' and '.join(missing)} is said neither here nor by Dask's "
            f"configuration (distributed.comm.tls); give {GIVE}"
        )
    paths = {option: path for option, path in files.items() if path and "\n" not in path}  # else it is the text itself
    for option, path in paths.items():
        if not os.path.isfile(path):
            raise UsageError(f"{option}: there is no file {path}; give {GIVE}")
    try:
        made.get_connection_args("client")
    except (OSError, ValueError) as error:  # the first of ssl, too
        named = ", ".join(f"{option} {path}" for option, path in paths.items())
        raise UsageError(
            f"the certificates cannot be used ({error}): {named}; give {GIVE}, where the key is that of the certificate"
        ) from error
