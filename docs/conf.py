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
