import sys
import zlib
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util.docutils import SphinxDirective

import skewc

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for gallery.py
project = "skewc"
author = "The skewc developers"
copyright = "2026, The skewc developers"
version = release = skewc.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.extlinks",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
nitpicky = True
# numpydoc links the attributes that a class inherits to pages of their own, which there are not.
nitpick_ignore = [
    ("py:obj", f"{name}_") for name in ("classes", "n_features_in", "feature_names_in")
]
exclude_patterns = ["_build"]
extlinks = {"arxiv": ("https://arxiv.org/abs/%s", "arXiv:%s")}
numpydoc_show_class_members = False

default_role = "literal"
highlight_language = "none"  # of literal blocks, which hold formulas and commands
html_theme = "pydata_sphinx_theme"
html_title = f"skewc {version}"
html_static_path = ["_static"]
html_css_files = ["skewc.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "quickstart", "api", "benchmarks", "contributing")}
html_theme_options = {
    "logo": {"text": "skewc"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
}
html_math_renderer = "mathml"


def local_inventories():
    """Map other projects to the inventories of the names that we refer to.

    A build fetches nothing: ``inventories/NAME.txt`` holds the address of a project and lines
    of Sphinx's own format, which are packed here as it wants them.
    """
    build = HERE / "_build" / "inventories"
    build.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for path in sorted((HERE / "inventories").glob("*.txt")):
        address, names = path.read_text(encoding="utf-8").split("\n", 1)
        head = f"# Sphinx inventory version 2\n# Project: {path.stem}\n# Version: \n# zlib\n"
        packed = build / f"{path.stem}.inv"
        packed.write_bytes(head.encode() + zlib.compress(names.encode()))
        mapping[path.stem] = (address, str(packed))
    return mapping


intersphinx_mapping = local_inventories()

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": "gallery.Order",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("skewc",),
    "reference_url": {"skewc": None},
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib", "gallery.reset"),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 0,
    "remove_config_comments": True,
}


class Results(SphinxDirective):
    """Show the table that a benchmark wrote: ``.. results:: name.md``, or its first columns."""

    required_arguments = 1
    option_spec = {"columns": directives.positive_int}

    def run(self):
        path = HERE.parent / "benchmarks" / "results" / self.arguments[0]
        self.env.note_dependency(str(path))
        text = []
        for line in path.read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            cells = cells[: self.options.get("columns")]
            if not line.startswith("|"):
                text += [f"**{line.lstrip('# ')}**" if line.startswith("#") else line, ""]
            elif set(line) <= set("|- "):
                text[-1:-1] = ["", ".. list-table::", "   :header-rows: 1", ""]
            else:
                text.append("   * - " + "\n     - ".join(cells))
        node = nodes.container()
        lines = "\n".join(text).splitlines()
        self.state.nested_parse(StringList(lines, source=self.arguments[0]), 0, node)
        return node.children


def mark_cells(app, doctree):
    """Name the cells of tables that must not break, and those that must not become slivers."""
    for cell in doctree.findall(nodes.entry):
        length, in_head = len(cell.astext()), isinstance(cell.parent.parent, nodes.thead)
        if length <= (8 if in_head else 16):
            cell["classes"].append("short")
        elif length > 24 and not in_head:
            cell["classes"].append("long")


# Formulas as MathML, which browsers draw by themselves: no script, and nothing to fetch.


def inline_math(writer, node):
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block_math(writer, node):
    formula = tex2mathml(node.astext().strip(), as_block=True)
    writer.body.append(f'<div class="formula">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app):
    app.add_directive("results", Results)
    app.connect("doctree-read", mark_cells)
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
