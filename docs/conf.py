"""Sphinx builds the documentation from this file: `make docs`, without the network and with warnings as errors."""

from importlib.metadata import version as installed_version

project = "dlatent"
author = "the dlatent contributors"
copyright = "the dlatent contributors"
release = version = installed_version("dlatent")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
# A folder of pages may be empty for a while: the index takes pages by pattern.
suppress_warnings = ["toc.empty_glob"]

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
