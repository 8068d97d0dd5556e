from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

import skewc

project = "skewc"
author = "The skewc developers"
copyright = "2026, The skewc developers"
version = release = skewc.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.extlinks",
    "numpydoc",
]
extlinks = {"arxiv": ("https://arxiv.org/abs/%s", "arXiv:%s")}
numpydoc_show_class_members = True
numpydoc_show_inherited_class_members = False
numpydoc_class_members_toctree = False
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Learning task after task without forgetting"}
nitpicky = False


class Results(SphinxDirective):
    """Show the table that a benchmark wrote: ``.. results:: name.md``."""

    required_arguments = 1

    def run(self):
        path = Path(__file__).parent.parent / "benchmarks" / "results" / self.arguments[0]
        self.env.note_dependency(str(path))
        text = []
        for line in path.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not line.startswith("|"):
                text += [f"**{line.lstrip('# ')}**" if line.startswith("#") else line, ""]
            elif set(line) <= set("|-"):
                text[-1:-1] = ["", ".. list-table::", "   :header-rows: 1", ""]
            else:
                text.append("   * - " + "\n     - ".join(cells))
        node = nodes.container()
        lines = "\n".join(text).splitlines()
        self.state.nested_parse(StringList(lines, source=self.arguments[0]), 0, node)
        return node.children


def setup(app):
    app.add_directive("results", Results)
