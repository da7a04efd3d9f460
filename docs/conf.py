"""Sphinx builds the documentation from this file: `make docs`, without the network and with warnings as errors."""

from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

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

html_theme = "furo"
html_title = "dlatent"
html_copy_source = False


def drop_patterns_without_pages(app: Sphinx, page: str, source: list[str]) -> None:
    """The index takes its pages by pattern, so that a new page needs no entry; a folder may still be empty."""
    if page == "index":
        lines = source[0].split("\n")
        source[0] = "\n".join(line for line in lines if "*" not in line or any(Path(app.srcdir).glob(line + ".md")))


def setup(app: Sphinx) -> None:
    """Sphinx calls this once, before it reads the pages."""
    app.connect("source-read", drop_patterns_without_pages)
