"""Code shown to users runs, docstrings are whole, and README's commands exist."""

import inspect
import re
from pathlib import Path

import pytest
from numpydoc.validate import validate

import skewc

ROOT = Path(__file__).parent.parent
PYTHON = {
    "README.md": re.compile(r"```python\n(.*?)```", re.DOTALL),
    "docs/index.rst": re.compile(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)"),
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
    assert len(accuracies) == 2
    assert min(accuracies) > 0.85


def test_readme_commands_are_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^    make (\w+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in commands:
        assert f"\n{command}:" in makefile


def public_names():
    for name in skewc.__all__:
        thing = getattr(skewc, name)
        if inspect.isclass(thing):
            yield f"skewc.{name}"
            for member, value in vars(thing).items():
                if inspect.isfunction(value) and not member.startswith("_"):
                    yield f"skewc.{name}.{member}"


@pytest.mark.parametrize("name", list(public_names()))
def test_docstring(name):
    # No need of an extended summary, of See Also, or of examples beside the class's own.
    optional = {"ES01", "SA01", "EX01"}
    errors = [error for error in validate(name)["errors"] if error[0] not in optional]
    assert not errors


def test_every_class_has_an_example():
    for name in skewc.__all__:
        thing = getattr(skewc, name)
        assert not inspect.isclass(thing) or ">>> " in thing.__doc__
