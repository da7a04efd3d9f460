"""Sphinx builds the documentation from this file: `make docs`, without the network and with warnings as errors."""

import base64
import inspect
import json
import logging
import os
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

project = "dlatent"
author = "the dlatent contributors"
copyright = "the dlatent contributors"
release = version = installed_version("dlatent")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "matplotlib.sphinxext.plot_directive",
]
if os.environ.get("READTHEDOCS"):  # elsewhere the pages are built without the network
    extensions.append("sphinx.ext.intersphinx")
intersphinx_mapping = {
    name: (f"{place}/", None)
    for name, place in {
        "python": "https://docs.python.org/3",
        "numpy": "https://numpy.org/doc/stable",
        "scipy": "https://docs.scipy.org/doc/scipy",
        "sklearn": "https://scikit-learn.org/stable",
        "dask": "https://docs.dask.org/en/stable",
        "distributed": "https://distributed.dask.org/en/stable",
        "xarray": "https://docs.xarray.dev/en/stable",
        "zarr": "https://zarr.readthedocs.io/en/stable",
        "matplotlib": "https://matplotlib.org/stable",
    }.items()
}
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}  # autosummary writes the second
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates"]

myst_heading_anchors = 3
myst_fence_as_directive = {"math"}  # as GitHub writes formulas, too

# Docstrings put code in single backticks, as the pages in Markdown do; names of public objects become links.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say them in words
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
# MathML is set by every browser itself: without the network, without scripts.
html_math_renderer = "mathml"

# The gallery, whose fits say nothing of their passes.
logging.getLogger("dlatent").setLevel(logging.WARNING)
plot_include_source = True
plot_html_show_source_link = plot_html_show_formats = False
plot_formats = [("png", 110)]

html_theme = "furo"
html_title = f"dlatent {release}"
html_extra_path = ["llms.txt"]
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["dlatent.css"]


def visit_math(translator: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """Write LaTeX as MathML."""
    block = isinstance(node, nodes.math_block)
    try:
        mathml = tex2mathml(node.astext(), as_block=block)
    except MathError as error:
        raise ValueError(f"{error}: {node.astext()}") from error
    translator.body.append(f'<div class="math">{mathml}</div>' if block else mathml)
    raise nodes.SkipNode


def skip_foreign_members(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """What a class inherits from another library or from Python is documented there; fields of tuples say nothing."""
    if str(getattr(member, "__doc__", None)).startswith("Alias for field number"):
        return True
    owner = getattr(member, "__objclass__", None) or getattr(member, "fget", None) or member
    home = getattr(owner, "__module__", None)
    return True if isinstance(home, str) and home.split(".")[0] != "dlatent" else None


def hyperparameters(
    app: Sphinx, what: str, name: str, member: Any, options: Any, arguments: str | None, returns: str | None
) -> tuple[str, None] | None:
    """What a class takes, as Python says it; autodoc looks at `__new__`, which takes anything so as to refuse it."""
    if what != "class" or arguments != "(*args, **params)":
        return None
    given = inspect.signature(member).parameters.values()
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in given]
    return str(inspect.Signature(plain)), None


def write_tutorials(app: Sphinx, config: Config) -> None:
    """Write the notebooks of examples/ as pages, with what they printed and drew when they were run last."""
    folder = Path(app.srcdir, "tutorials")
    folder.mkdir(exist_ok=True)
    for notebook in Path(app.srcdir).parent.glob("examples/*.ipynb"):
        drawn = 0
        text = f"<!-- Written by conf.py from examples/{notebook.name}. -->\n\n"
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            text += source + "\n\n" if cell["cell_type"] == "markdown" else f"```python\n{source}\n```\n\n"
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                said = "".join(output.get("text", [] if "image/png" in data else data.get("text/plain", [])))
                text += f"```text\n{said.rstrip()}\n```\n\n" if said.strip() else ""
                if "image/png" in data:
                    drawn += 1
                    picture = folder / f"{notebook.stem}_{drawn}.png"
                    replace(picture, base64.b64decode(data["image/png"]))
                    text += f"![what the cell above draws]({picture.name})\n\n"
        replace(folder / f"{notebook.stem}.md", text.encode())


def replace(path: Path, content: bytes) -> None:
    """Write a file whose content has changed; others keep their time, so that Sphinx does not read them again."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


class ResultVariables(SphinxDirective):
    """A table of the variables that a stored result may have, from the list that checks them."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        from dlatent.stores.schema import COURSE, VARIABLES

        lines = [".. list-table::", "   :header-rows: 1", "", "   * - name", "     - dimensions", "     - meaning"]
        for name, dims, _, meaning in sorted((*VARIABLES, *COURSE)):
            lines += [f"   * - ``{name}``", f"     - {', '.join(dims.split())}", f"     - {meaning}"]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> None:
    """Sphinx calls this once, before it reads the pages."""
    app.add_directive("result-variables", ResultVariables)
    app.add_html_math_renderer("mathml", inline_renderers=(visit_math, None), block_renderers=(visit_math, None))
    app.connect("config-inited", write_tutorials)
    app.connect("autodoc-skip-member", skip_foreign_members)
    app.connect("autodoc-process-signature", hyperparameters)
