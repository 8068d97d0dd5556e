"""Code shown to users runs, docstrings are whole, and README's commands exist."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
from numpydoc.validate import validate

ROOT = Path(__file__).parent.parent
PYTHON = {
    "README.md": re.compile(r"```python\n(.*?)```", re.DOTALL),
    **{
        f"docs/{path.name}": re.compile(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)")
        for path in sorted((ROOT / "docs").glob("*.rst"))
        if "code-block:: python" in path.read_text(encoding="utf-8")
    },
}


@pytest.mark.parametrize("name", PYTHON)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few epochs
def test_code_blocks_run(name, capsys):
    blocks = PYTHON[name].findall((ROOT / name).read_text(encoding="utf-8"))
    assert blocks
    namespace = {}
    for block in blocks:
        lines = block.splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        exec("\n".join(line[indent:] for line in lines), namespace)
    accuracies = [float(a) for a in capsys.readouterr().out.split()]
    assert len(accuracies) == sum(block.count("score(") for block in blocks if "print(" in block)
    assert min(accuracies) > 0.85


def test_readme_commands_are_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^    make (\w+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in commands:
        assert f"\n{command}:" in makefile


def test_each_promise_is_held_by_tests_that_exist():
    page = (ROOT / "docs/promises.rst").read_text(encoding="utf-8")
    promises = re.split(r"^   \* - ", page, flags=re.MULTILINE)[1:]
    for promise in promises:
        tests = re.findall(r"``(tests/\w+\.py)::(\w+)``", promise)
        assert tests or promise.startswith("promise\n"), promise
        for path, name in tests:
            source = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^def {name}\(", source, re.MULTILINE), f"{path}::{name}"
    assert len(promises) > 20


MODULES = [
    importlib.import_module(name)
    for name in (
        "skewc", "skewc.pipeline", "skewc.model_selection", "skewc.metrics", "skewc.datasets",
        "skewc.dask",
    )
]  # fmt: skip


def public_objects():
    for module in MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                yield f"{module.__name__}.{name}", thing


def public_names():
    for name, thing in public_objects():
        yield name
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if inspect.isfunction(value) and not member.startswith("_"):
                    yield f"{name}.{member}"


@pytest.mark.parametrize("name", list(public_names()))
def test_docstring(name):
    # No need of an extended summary, of See Also, or of examples beside the class's own.
    optional = {"ES01", "SA01", "EX01"}
    errors = [error for error in validate(name)["errors"] if error[0] not in optional]
    assert not errors


@pytest.mark.parametrize("name", dict(public_objects()))
def test_every_public_object_has_an_example(name):
    assert ">>> " in dict(public_objects())[name].__doc__


@pytest.mark.parametrize("name", dict(public_objects()))
def test_every_public_object_is_in_the_reference(name):
    reference = (ROOT / "docs/api.rst").read_text(encoding="utf-8")
    assert re.search(rf"auto(class|function):: {re.escape(name)}$", reference, re.MULTILINE)
