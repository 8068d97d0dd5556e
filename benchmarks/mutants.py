"""Count how many small faults, put into a module on purpose, its tests see.

cosmic-ray (``pip install cosmic-ray``) makes the mutants, in an order that is random but
always the same: what an interrupted run has done is a random sample. Everything the package
imports is loaded once; each mutant then costs a fork and the tests up to the first failure.
The log holds a line for each mutant and is gone on with; delete it when the module changes.
A mutant that takes three times as long as the module itself counts as killed. Left out are
annotations, which nothing reads, the ``*`` of signatures, and what Python cannot compile. ::

    OMP_NUM_THREADS=1 python benchmarks/mutants.py _losses mutants.jsonl [--seconds S] [--again]

``--again`` runs the survivors of the log once more.
"""

import argparse
import ast
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from difflib import ndiff
from importlib.abc import MetaPathFinder
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
# Likeliest killers first; a stage is collected only if the one before killed nothing.
STAGES = {
    "_penalties": [["penalties"], ["kronecker"]],
    "_curvature": [["curvature"], ["kronecker"]],
    "_losses": [["losses", "objective"], ["curvature", "kronecker"]],
    "_network": [["network", "objective"], ["curvature", "kronecker"]],
}
# Seconds each, and about the estimator as a whole.
LONG = "protects_better or old_predictions or all_solvers"


class Mutated(SourceFileLoader, MetaPathFinder):
    """Import a module from the source given."""

    def __init__(self, name, path, source):
        super().__init__(name, path)
        self.source = source

    def find_spec(self, fullname, path, target=None):
        """Find this module only."""
        if fullname == self.name:
            return spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname):
        """Compile, past all caches."""
        return compile(self.source, self.path, "exec", dont_inherit=True)


def files(stage):
    """Return paths of test files."""
    return [str(ROOT / "tests" / f"test_{name}.py") for name in stage]


def load(module):
    """Import what the tests import, which forks share, and forget skewc and the tests."""
    pytest.main(["--collect-only", "-qqq", "-oaddopts=", *files(sum(STAGES[module], []))])
    ours = tuple(str(ROOT / folder) for folder in ("skewc", "tests"))
    for name, loaded in [*sys.modules.items()]:
        if (getattr(loaded, "__file__", None) or "").startswith(ours):
            del sys.modules[name]


def survives(module, source, timeout):
    """Whether the tests pass in a child whose module has this source."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        signal.setitimer(signal.ITIMER_REAL, timeout)  # ends the process
        resource.setrlimit(resource.RLIMIT_DATA, (2**32, 2**32))
        path = str(ROOT / "skewc" / f"{module}.py")
        sys.meta_path.insert(0, Mutated(f"skewc.{module}", path, source))
        options = ["-xq", "--assert=plain", "-pno:cacheprovider", "-oaddopts=", f"-knot ({LONG})"]
        failed = True
        try:
            for stage in STAGES[module]:
                failed = bool(pytest.main([*options, *files(stage)]))
                if failed:
                    break
        finally:
            os._exit(failed)
    return os.waitpid(child, 0)[1] == 0


class Plain(ast.NodeTransformer):
    """Drop the annotations of functions, and how their arguments must be handed over."""

    def visit_FunctionDef(self, node):  # noqa: N802
        """Drop what is behind the arrow."""
        node.returns = None
        return self.generic_visit(node)

    def visit_arguments(self, node):
        """Drop the star, and the slash that a mutation makes of it."""
        node.args, node.posonlyargs, node.kwonlyargs = (
            [*node.posonlyargs, *node.args, *node.kwonlyargs], [], []
        )  # fmt: skip
        node.defaults, node.kw_defaults = [*node.defaults, *filter(None, node.kw_defaults)], []
        return self.generic_visit(node)

    def visit_arg(self, node):
        """Drop what is behind the colon."""
        node.annotation = None
        return node


def read(source):
    """Return what Python runs of a source; None where it cannot be compiled."""
    try:
        return ast.dump(Plain().visit(ast.parse(source)))
    except SyntaxError:
        return None


def specifications(source):
    """Return all (operator, occurrence), in random order."""
    nodes, found = list(ast_nodes(get_ast(source))), []
    for name in operator_names():
        if "Variable" not in name:  # these need to be told which
            places = get_operator(name)().mutation_positions
            found += [(name, k) for k in range(sum(len(list(places(node))) for node in nodes))]
    random.Random(0).shuffle(found)
    return found


def judged(module, source, mutant, timeout):
    """Return what became of a mutant."""
    what = read(mutant)
    if what is None or what == read(source):
        return "left out"
    return "survived" if survives(module, mutant, timeout) else "killed"


def main():
    """Judge as many mutants as the time allows, and sum the log up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module", choices=STAGES)
    parser.add_argument("log", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--again", action="store_true")
    arguments = parser.parse_args()
    module, log = arguments.module, arguments.log
    source = (ROOT / "skewc" / f"{module}.py").read_text()
    lines = log.read_text().splitlines() if log.exists() else []
    results = {(r["operator"], r["occurrence"]): r for r in map(json.loads, lines)}
    load(module)
    start = time.monotonic()
    if not survives(module, source, 600):
        raise SystemExit("The tests fail without any mutation.")
    timeout = 3 * (time.monotonic() - start)
    everything = specifications(source)
    for key in everything:
        if time.monotonic() - start > arguments.seconds:
            break
        if key in results and not (arguments.again and results[key]["result"] == "survived"):
            continue
        mutant = mutate_code(source, get_operator(key[0])(), key[1])
        changed = [d for d in ndiff(source.splitlines(), mutant.splitlines()) if d[0] in "-+"]
        record = dict(zip(("operator", "occurrence"), key, strict=True))
        record |= {"change": changed, "result": judged(module, source, mutant, timeout)}
        results[key] = record
        with log.open("a") as file:
            file.write(json.dumps(record) + "\n")
    for record in results.values():
        if record["result"] == "survived":
            print(*record["change"], sep="\n", end="\n\n")
    count = Counter(record["result"] for record in results.values())
    print(f"{module}: {len(results)} of {len(everything)} mutants: {dict(count)}")


if __name__ == "__main__":
    main()
