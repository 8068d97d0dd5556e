"""Count how many small faults, put into a module on purpose, its tests see.

cosmic-ray (``pip install cosmic-ray``) makes the mutants, in an order that is random but
always the same: what an interrupted run has done is a random sample. All that the tests import
is loaded once; each mutant then costs a fork and the tests up to the first failure. The log
holds a line for each mutant and is gone on with; delete it when the module changes. A mutant
that takes three times the processor time of the module itself counts as killed. Left out are
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
from collections import Counter
from difflib import ndiff
from importlib.machinery import SourceFileLoader
from pathlib import Path
from time import monotonic

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
# Likeliest killers first; a stage is collected only if the one before killed nothing.
STAGES = {
    "_penalties": [["penalties"], ["kronecker"], ["architecture"]],
    "_curvature": [["curvature"], ["kronecker"]],
    "_losses": [["losses", "objective"], ["curvature"], ["kronecker"], ["architecture"]],
    "_network": [["network", "objective"], ["kronecker"], ["curvature"], ["architecture"]],
}
# Seconds each, and about the estimator as a whole.
LONG = "protects_better or old_predictions or all_solvers"


def run_tests(stage, *options):
    """Return whether some fail."""
    files = [str(ROOT / "tests" / f"test_{name}.py") for name in stage]
    options = ["-xqq", "--assert=plain", "-pno:cacheprovider", "-oaddopts=", *options]
    return bool(pytest.main([*options, f"-knot ({LONG})", *files]))


def load(module):
    """Import what the tests import, which forks share, and forget skewc and the tests."""
    run_tests(sum(STAGES[module], []), "--collect-only")
    ours = tuple(str(ROOT / folder) for folder in ("skewc", "tests"))
    for name, loaded in [*sys.modules.items()]:
        if (getattr(loaded, "__file__", None) or "").startswith(ours):
            del sys.modules[name]


def survives(module, source, seconds):
    """Whether the tests pass in a child whose module has this source."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    failed, original = True, SourceFileLoader.get_code

    def get_code(loader, name):
        if name == f"skewc.{module}":
            return compile(source, loader.path, "exec", dont_inherit=True)
        return original(loader, name)

    try:
        SourceFileLoader.get_code = get_code
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # ends the process
        resource.setrlimit(resource.RLIMIT_DATA, (2**32, 2**32))
        failed = any(map(run_tests, STAGES[module]))
    finally:
        os._exit(failed)


def meaning(source):
    """Return what Python runs, and mutations may change; None if it cannot be compiled."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.arguments):
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults = [*node.defaults, *filter(None, node.kw_defaults)]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
    return ast.dump(tree)


def mutations(source):
    """Return all (operator, occurrence), in random order."""
    nodes, found = list(ast_nodes(get_ast(source))), []
    for name in operator_names():
        if "Variable" not in name:  # these need to be told which
            places = get_operator(name)().mutation_positions
            found += [(name, k) for k in range(sum(len(list(places(node))) for node in nodes))]
    random.Random(0).shuffle(found)
    return found


def main(module, log, seconds, again):
    """Judge as many mutants as the time allows, and sum the log up."""
    source, start = (ROOT / "skewc" / f"{module}.py").read_text(), monotonic()
    lines = log.read_text().splitlines() if log.exists() else []
    results = {(r["operator"], r["occurrence"]): r for r in map(json.loads, lines)}
    load(module)
    if not survives(module, source, 600):
        raise SystemExit("The tests fail without any mutation.")
    usage, everything = resource.getrusage(resource.RUSAGE_CHILDREN), mutations(source)
    timeout = 3 * (usage.ru_utime + usage.ru_stime)
    for name, k in everything:
        known = results.get((name, k), {}).get("result")
        if monotonic() - start > seconds or (known and not (again and known == "survived")):
            continue
        mutant = mutate_code(source, get_operator(name)(), k)
        result = "left out"
        if meaning(mutant) not in (None, meaning(source)):
            result = "survived" if survives(module, mutant, timeout) else "killed"
        change = [d for d in ndiff(source.splitlines(), mutant.splitlines()) if d[0] in "-+"]
        record = {"operator": name, "occurrence": k, "change": change, "result": result}
        results[name, k] = record
        with log.open("a") as file:
            file.write(json.dumps(record) + "\n")
    for record in results.values():
        if record["result"] == "survived":
            print(record["operator"], *record["change"], sep="\n", end="\n\n")
    count = Counter(record["result"] for record in results.values())
    print(f"{module}: {len(results)} of {len(everything)} mutants: {dict(count)}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser()
    parser.add_argument("module", choices=STAGES)
    parser.add_argument("log", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--again", action="store_true")
    main(**vars(parser.parse_args()))
