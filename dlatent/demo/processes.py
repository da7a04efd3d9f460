"""Read many modules at one time, in processes that import nothing but the standard library."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from dlatent.demo import reading
from dlatent.demo.reading import ModuleFile, ModuleText, read_module
from dlatent.errors import DataError


def read_modules(modules: Sequence[ModuleFile], *, processes: int = 1) -> list[ModuleText]:
    """Read every module, in the order given; the result does not depend on the number of processes."""
    processes = min(processes, len(modules))
    if processes <= 1:
        return [read_module(module) for module in modules]
    # Every process takes each n-th module: neighbours in the order are alike in size, so the shares are too.
    shares = [modules[first::processes] for first in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        answers = list(pool.map(_read_apart, shares))
    texts: list[ModuleText | None] = [None] * len(modules)
    for first, answer in enumerate(answers):
        texts[first::processes] = answer
    return [text for text in texts if text is not None]


def _read_apart(modules: Sequence[ModuleFile]) -> list[ModuleText]:
    """Run `reading` by its path in a new interpreter, which imports neither the package nor the caller's script."""
    request = json.dumps([(module.name, str(module.path)) for module in modules])
    command = [sys.executable, "-I", reading.__file__]
    done = subprocess.run(command, input=request, capture_output=True, encoding="ascii", errors="replace", check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2] or "no message"
        raise DataError(
            f"A process that read {len(modules)} modules from {modules[0].name} to {modules[-1].name} ended with "
            f"status {done.returncode} ({last}). Build the corpus with processes=1 to see where, or from other folders."
        )
    return [
        ModuleText(name, digest, tuple(words), tuple(counts), tuple(imports), problem)
        for name, digest, words, counts, imports, problem in json.loads(done.stdout)
    ]
