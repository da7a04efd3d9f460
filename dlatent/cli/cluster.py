"""Where a command computes: the threads of this process, a cluster started for it, or one that is there already, for
which alone distributed is imported, as that takes a third of a second."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import dask

from dlatent.cli import UsageError
from dlatent.cli.arguments import Options, add_options, positive
from dlatent.cli.main import handled
from dlatent.engine.machine import local_workers
from dlatent.errors import EngineError

CONNECT_SECONDS = 15
NO_TLS = ("WRONG_VERSION_NUMBER", "cannot convert to SSL")
"""Errors of a scheduler that speaks without TLS: an answer that is none, or words before it was asked."""
ENCRYPTED = ("tls://", "wss://")
"""How addresses begin that speak TLS."""
FIELDS = {"--tls-ca-file": "tls_ca_file", "--tls-cert": "tls_client_cert", "--tls-key": "tls_client_key"}
"""Options, and what Dask calls the same; Dask uses certificates only where it has those of both sides."""
NO_SCHEDULER = (
    "what answers at {} is no Dask scheduler but {}; give the port of the scheduler, most often 8786, not that of its "
    "dashboard"
)
GIVE = "--tls-ca-file CA.pem --tls-cert CERT.pem --tls-key KEY.pem"


STARTED = "start N worker processes on this machine"
OF_SCHEDULER: Options = {
    "--wait": {
        "metavar": "TIME",
        "help": "how long to wait for a worker of --scheduler, for example 2h (default 10m)",
    },
    "--tls-ca-file": {
        "metavar": "FILE",
        "help": "certificate of the authority of a --scheduler at tls:// (default: as Dask's configuration)",
    },
    "--tls-cert": {
        "metavar": "FILE",
        "help": "certificate that this command shows to it (default: as Dask's configuration)",
    },
    "--tls-key": {"metavar": "FILE", "help": "key of --tls-cert (default: in the same file)"},
}
OF_WORKERS: Options = {
    "--threads-per-worker": {"type": positive, "metavar": "N", "help": "threads of each of them (default 1)"},
    "--memory-limit": {"metavar": "SIZE", "help": "memory of each of them, for example 4GiB"},
}


def add_cluster(parser: argparse.ArgumentParser, workers: str = STARTED) -> None:
    """Where to compute: `--scheduler` with certificates, or `--workers` and what each has."""
    group = parser.add_argument_group("where to compute (default: the threads of this process)")
    where = group.add_mutually_exclusive_group()
    add_options(where, {"--scheduler": {"metavar": "ADDRESS", "help": "a Dask scheduler, for example tcp://host:8786"}})
    add_options(group, OF_SCHEDULER)
    add_options(where, {"--workers": {"type": positive, "metavar": "N", "help": workers}})
    add_options(group, OF_WORKERS)


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Any]:
    """A `distributed.Client` for the command, or None for the threads of this process; a cluster made here ends here.

    Errors: UsageError for options of workers without workers, and for certificates that are of no use; EngineError
    where the scheduler cannot be reached, or does not accept them.
    """
    certificates = certificates_of(arguments)
    if arguments.workers is not None:
        with _local(arguments) as client:
            yield client
    elif arguments.threads_per_worker is not None or arguments.memory_limit is not None:
        raise UsageError("--threads-per-worker and --memory-limit describe new workers; give --workers N with them")
    elif arguments.scheduler is not None:
        from dlatent.engine.failures import WAIT

        wait, security = {} if arguments.wait is None else {WAIT: arguments.wait}, _security(arguments, certificates)
        with dask.config.set(wait), _remote(arguments.scheduler, security) as client:
            yield client
    else:
        yield None


@contextmanager
def _local(arguments: argparse.Namespace) -> Iterator[Any]:
    limit = arguments.memory_limit or "auto"
    with ExitStack() as opened:
        try:
            # They ignore Ctrl-C and the loss of a terminal, of which it tells all: this process ends them in order.
            with handled(dict.fromkeys((signal.SIGINT, signal.SIGHUP), signal.SIG_IGN)):
                client = opened.enter_context(
                    local_workers(arguments.workers, arguments.threads_per_worker or 1, limit)
                )
        except ValueError as error:
            raise UsageError(f"a cluster cannot be started with memory limit {limit!r}: {error}") from error
        except RuntimeError as error:
            first: BaseException = error
            while first.__cause__ is not None:
                first = first.__cause__
            raise EngineError(
                f"worker processes cannot be started: {first}; where Dask's configuration requires encryption "
                "(distributed.comm.require-encryption) it must name certificates of scheduler, worker and client"
            ) from error
        yield client


@contextmanager
def _remote(address: str, certified: Any) -> Iterator[Any]:
    import distributed

    connect: Any = distributed.Client
    try:
        with ThreadPoolExecutor(1) as apart:  # from a notebook, whose thread has an event loop already
            apart.submit(asyncio.run, _greet(address, certified)).result()
        client = connect(address, timeout=CONNECT_SECONDS, security=certified, set_as_default=False)
    except (OSError, ValueError) as error:
        raise EngineError(_unanswered(address, error)) from error
    with client:
        yield client


async def _greet(address: str, certified: Any) -> None:
    """Ask a scheduler what it is, in bounded time: a client would wait for ever for one that takes the connection and
    is silent."""
    from distributed.comm import core

    connect: Any = core.connect
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            comm = await connect(address, timeout=CONNECT_SECONDS, **certified.get_connection_args("client"))
            try:
                await comm.write({"op": "identity", "reply": True})
                met = (await comm.read())["type"]
            finally:
                comm.abort()
    except (OSError, ValueError):
        raise
    except Exception as error:  # another server sends what Dask takes for the lengths of messages, or their words
        raise EngineError(NO_SCHEDULER.format(address, "another server")) from error
    if met != "Scheduler":
        raise EngineError(NO_SCHEDULER.format(address, f"a {met}"))


def _unanswered(address: str, error: Exception) -> str:
    """Why nobody answers at an address, and how to fix it."""
    from distributed.comm.core import CommClosedError

    said, met = str(error.__cause__ or error), isinstance(error, CommClosedError)
    if address.startswith(ENCRYPTED) and any(mark in said for mark in NO_TLS):
        return f"the scheduler at {address} does not speak TLS ({said}); an address without it begins with tcp://"
    if met and address.startswith(ENCRYPTED):
        return (
            f"the scheduler at {address} and this command do not accept each other's certificates ({said}); give "
            f"those of its cluster with {GIVE}"
        )
    if met:
        return (
            f"the scheduler at {address} ended the connection at once ({said}); if it needs certificates, give its "
            f"address as tls://HOST:PORT, with {GIVE}"
        )
    return (
        f"no Dask scheduler answers at {address} ({str(error) or 'it is silent'}); check the address, or start one "
        "with: dask scheduler"
    )


def _security(arguments: argparse.Namespace, certificates: dict[str, str]) -> Any:
    """The `distributed.Security` of a command with `--scheduler`: by its options, then by Dask's configuration.

    Errors: UsageError for options that do not go together, and for files that are not there or of no use.
    """
    import distributed

    new: Any = distributed.Security  # without types
    address = arguments.scheduler
    fields: dict[str, str | None] = {FIELDS[option]: path for option, path in certificates.items()}
    if "--tls-cert" in certificates:
        fields.setdefault("tls_client_key", None)  # that of the configuration is of another certificate
    needed = address.startswith(ENCRYPTED)
    try:
        security = new(require_encryption=needed or None, **fields)
    except ValueError as error:
        raise UsageError(f"Dask's configuration of TLS cannot be used: {error}") from error
    if needed:
        _check(security, address)
    elif certificates or security.require_encryption:
        asks = ", ".join(certificates) or "distributed.comm.require-encryption in Dask's configuration"
        raise UsageError(
            f"{asks} asks for TLS, which {address} does not speak; give an address such as tls://host:8786"
        )
    return security


def certificates_of(arguments: argparse.Namespace) -> dict[str, str]:
    """The files that the options name.

    Errors: UsageError for a key alone, and where no scheduler is contacted.
    """
    values = {option: getattr(arguments, option.strip("-").replace("-", "_")) for option in FIELDS}
    files = {option: value for option, value in values.items() if value is not None}
    if "--tls-key" in files and "--tls-cert" not in files:
        raise UsageError("--tls-key belongs to a certificate; give --tls-cert CERT.pem with it")
    if files and arguments.scheduler is None:
        raise UsageError(f"{', '.join(files)}: certificates are for a scheduler; give --scheduler tls://host:8786 too")
    return files


def _check(security: Any, address: str) -> None:
    """Read the files once, so that what is wrong with them is said before anything is contacted."""
    files = {option: getattr(security, field) for option, field in FIELDS.items()}
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
        security.get_connection_args("client")
    except (OSError, ValueError) as error:  # the first of ssl, too
        named = ", ".join(f"{option} {path}" for option, path in paths.items())
        raise UsageError(
            f"the certificates cannot be used ({error}): {named}; give {GIVE}, where the key is that of the certificate"
        ) from error
