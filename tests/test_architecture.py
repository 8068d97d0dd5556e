"""Imports run downward, private scikit-learn names stay in one file, and state is frozen."""

import ast
import sys
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

import skewc

PACKAGE = Path(skewc.__file__).parent
# From the bottom to the top; a module may import only from those before it.
LAYERS = [
    "_layout", "_compat", "_inputs", "_rows", "_products", "_losses", "_network", "_penalties",
    "_objective", "_curvature", "_memory", "_readout", "_solvers", "_training", "_stream",
    "_validation", "_learning", "_callbacks", "_classifier", "dask", "pipeline", "__init__",
]  # fmt: skip
# Mathematics that must not know what is above or beside it.
APART = {
    "_solvers": set(),
    "_penalties": {"_inputs", "_network"},
    "_losses": set(),
    "_products": {"_inputs"},
    "_network": {"_products"},
    "_curvature": {"_inputs", "_losses", "_network", "_products", "_rows"},
    "_memory": {"_inputs", "_layout", "_network", "_rows"},
    "_readout": {"_curvature", "_inputs", "_layout", "_network", "_products", "_rows"},
    "_callbacks": set(),
    "_layout": set(),
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda p: p.stem)
def test_layers(path):
    assert path.stem in LAYERS, f"{path.name} has no place in the layers"
    own = {m.split(".")[1] for m, _ in imports(path) if m.startswith("skewc.")}
    above = set(LAYERS[LAYERS.index(path.stem) :])
    assert not own & above, f"{path.name} imports from its own layer or above"
    if path.stem in APART:
        assert own <= APART[path.stem]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_private_scikit_learn_is_in_one_file(path):
    private = [
        (module, names)
        for module, names in imports(path)
        if module.startswith("sklearn")
        and any(part.startswith("_") for part in [*module.split("."), *names])
    ]
    assert not private or path.stem == "_compat"


def test_what_several_threads_may_read_cannot_change():
    """Only what one training run leaves behind is written as it comes."""
    for layer in LAYERS[:-1]:
        import_module(f"skewc.{layer}")
    ours = [module for name, module in sys.modules.items() if name.startswith("skewc.")]
    found = {thing for module in ours for thing in vars(module).values() if is_dataclass(thing)}
    assert len(found) > 10
    changeable = [cls.__name__ for cls in found if not cls.__dataclass_params__.frozen]
    assert changeable == ["History"]
