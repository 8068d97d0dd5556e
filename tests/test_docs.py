"""Code shown to users runs, docstrings are whole, and README's commands exist."""

import importlib
import inspect
import re
import runpy
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from numpydoc.validate import validate

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.rst")}
# A block of Python and, where one follows it directly, the block that says what it prints.
MARKDOWN = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
INDENTED = r"\.\. code-block:: {}\n\n((?:    .*\n|\n)+)"
RST = re.compile(INDENTED.format("python") + f"(?:{INDENTED.format('text')})?")
BLOCKS = {"README.md": MARKDOWN.findall(README)} | {
    name: RST.findall(page) for name, page in sorted(PAGES.items()) if "block:: python" in page
}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def without_digits(text):
    """Words of a text, of whose numbers only the decimal places are left."""
    return NUMBER.sub(lambda number: "." + "#" * len(number[0].partition(".")[2]), text).split()


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few epochs
def test_code_blocks_run_and_print_what_stands_below(name, capsys):
    namespace = {}
    for code, expected in BLOCKS[name]:
        exec(dedent(code), namespace)
        printed = capsys.readouterr().out
        assert without_digits(printed) == without_digits(expected)
        # Training on another machine may round otherwise; accuracies then differ a little.
        np.testing.assert_allclose(
            [float(number) for number in NUMBER.findall(printed)],
            [float(number) for number in NUMBER.findall(expected)],
            rtol=0.03, atol=0.02,
        )  # fmt: skip


def test_every_block_of_python_is_found():
    for name, text in {"README.md": README, **PAGES}.items():
        starts = text.count("```python") + text.count("code-block:: python")
        assert starts == len(BLOCKS.get(name, []))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_between_files_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)|src=\"([^\"]+)\"", text):
        path = "".join(target)
        assert path.startswith("https://") or (ROOT / path).is_file(), path


def test_every_example_is_in_the_gallery():
    gallery = runpy.run_path(str(ROOT / "docs/gallery.py"))
    names = [path.stem.removeprefix("plot_") for path in (ROOT / "examples").glob("plot_*.py")]
    assert sorted(gallery["EXAMPLES"]) == sorted(names)


def test_every_benchmark_is_named_run_and_shown():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for path in (ROOT / "benchmarks").glob("*.py"):
        if "writes results/" in path.read_text(encoding="utf-8").replace("\n", " "):
            assert f"benchmarks/{path.name}``" in PAGES["benchmarks.rst"]
            assert f"benchmarks/{path.name}\n" in makefile
    for path in (ROOT / "benchmarks/results").glob("*.md"):
        assert any(f".. results:: {path.name}" in page for page in PAGES.values()), path.name


def test_readme_commands_are_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^    make (\w+)$", README, re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in commands:
        assert f"\n{command}:" in makefile


def test_each_promise_is_held_by_tests_that_exist():
    promises = re.split(r"^   \* - ", PAGES["promises.rst"], flags=re.MULTILINE)[1:]
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
            for member in vars(thing):
                written_here = not re.match("_|set_.*_request$", member)  # or by scikit-learn
                if written_here and callable(getattr(thing, member)):
                    yield f"{name}.{member}"


@pytest.mark.parametrize("name", list(public_names()))
def test_docstring(name):
    assert not validate(name)["errors"]


@pytest.mark.parametrize("name", dict(public_objects()))
def test_every_public_object_has_an_example(name):
    assert ">>> " in dict(public_objects())[name].__doc__


@pytest.mark.parametrize("name", dict(public_objects()))
def test_every_public_object_is_in_the_reference(name):
    reference = (ROOT / "docs/api.rst").read_text(encoding="utf-8")
    assert re.search(rf"auto(class|function):: {re.escape(name)}$", reference, re.MULTILINE)
