"""Sphinx builds the documentation from this file: `make docs`, without the network and with warnings as errors."""

import re
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

project = "dlatent"
author = "the dlatent contributors"
copyright = "the dlatent contributors"
release = version = installed_version("dlatent")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings put code in single backticks, as the pages in Markdown do.
default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = True
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "dlatent"
html_copy_source = False


def drop_patterns_without_pages(app: Sphinx, page: str, source: list[str]) -> None:
    """The index takes further pages by pattern, so that a new page needs no entry; there may be none."""
    if page == "index":
        lines = source[0].split("\n")
        found = {line: {path.stem for path in Path(app.srcdir).glob(line + ".md")} for line in lines if "*" in line}
        named = {line.rpartition("/")[2] for line in lines}
        source[0] = "\n".join(line for line in lines if line not in found or found[line] - named)


def skip_foreign_members(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """What a class inherits from another library or from Python is documented there; fields of tuples say nothing."""
    if str(getattr(member, "__doc__", None)).startswith("Alias for field number"):
        return True
    owner = getattr(member, "__objclass__", None) or getattr(member, "fget", None) or member
    home = getattr(owner, "__module__", None)
    return True if isinstance(home, str) and home.split(".")[0] != "dlatent" else None


def describe_entries(app: Sphinx, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Write the entries `name : description` of a section as napoleon reads them, and end the section at a blank line.

    Napoleon takes what follows the colon for a type; here types are annotations, and the text describes.
    """
    written: list[str] = []
    inside = False
    for number, line in enumerate(lines):
        underlined = number + 1 < len(lines) and lines[number + 1].startswith("---")
        inside = (inside or line.startswith("---")) and not underlined
        entry, colon, text = line.partition(" : ")
        if inside and colon and not line.startswith(" "):
            written += [entry, "    " + text]
        elif inside and not line and number + 1 < len(lines):
            written += ["", ""]
            inside = False
        else:
            written.append(line)
    lines[:] = written


def set_apart(app: Sphinx, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Lines that begin with a word such as `Returns:` become paragraphs of their own."""
    written: list[str] = []
    for line in lines:
        found = re.match(r"(Parameters|Returns|Yields|Errors|Law|Laws|Source|Sources): (?=\S)", line)
        written += ["", f"**{found[1]}:** {line[found.end() :]}"] if found else [line]
    lines[:] = written


def mark_fitted_attributes(app: Sphinx, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """The names of fitted attributes end in an underscore, which reStructuredText takes for a link: make them code."""
    for number, line in enumerate(lines):
        lines[number] = re.sub(r"(?<![\w`])([A-Za-z]\w*)\\?_(?![\w`])", r"``\1_``", line)


class ResultVariables(SphinxDirective):
    """A table of the variables that a stored result may have, from the registry that checks them."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        from dlatent.stores.schema import REGISTRY

        lines = [".. list-table::", "   :header-rows: 1", "", "   * - name", "     - dimensions", "     - meaning"]
        for name, variable in sorted(REGISTRY.items()):
            lines += [f"   * - ``{name}``", f"     - {', '.join(variable.dims)}", f"     - {variable.meaning}"]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> None:
    """Sphinx calls this once, before it reads the pages."""
    app.add_directive("result-variables", ResultVariables)
    app.connect("source-read", drop_patterns_without_pages)
    app.connect("autodoc-skip-member", skip_foreign_members)
    app.connect("autodoc-process-docstring", describe_entries, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", set_apart, priority=500)
    app.connect("autodoc-process-docstring", mark_fitted_attributes, priority=600)  # after napoleon
