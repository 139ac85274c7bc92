"""The house rules that a machine can hold: who imports whom, plug-in files, docstrings, start-up."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import collc
from collc import registry
from collc.cli import COMMANDS

PACKAGE = Path(collc.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted(Path(__file__).parent.glob("*.py"))

# Layer -> layers of collc it may import; its own always, unless it is one of the wings below.
LOW = {"errors", "units"}
MAY_IMPORT = {
    "errors": set(),
    "units": {"errors"},
    "ir": LOW,
    "runtimes": {"errors"},
    "solve": {"errors"},
    "kernels": LOW,
    "symmetry": set(),
    "cost": LOW | {"ir", "solve", "kernels", "symmetry"},
    "fast": LOW | {"ir", "cost"},
    "synth": LOW
    | {"ir", "solve", "kernels", "symmetry", "cost", "runtimes", "fast", "design", "deadline", "progress", "workers"},
    "passes": LOW | {"ir", "solve", "cost", "runtimes"},
    "backend": LOW | {"ir", "solve", "cost", "runtimes", "fast"},
    "design": LOW | {"ir", "solve", "cost"},
    "machine": LOW | {"ir"},
    "topology": LOW | {"ir"},
    "files": LOW,
    "cache": set(),
    "deadline": {"errors"},
    "progress": set(),
    "workers": {"errors", "deadline", "cluster"},
    "cluster": {"errors", "deadline", "cache", "workers"},
    "verify": LOW | {"ir", "runtimes"},
    "launch": LOW | {"ir", "runtimes", "verify"},
    "registry": LOW,
}
# Plug-ins of one folder do not import each other; what they share is private to the folder.
WINGS = ("synth", "passes", "backend")
HEAVY = {"ortools", "numpy", "networkx", "highspy", "numba", "lxml", "rich", "yaml", "scipy", "distributed"}
LONGEST_FILE = 450


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of modules that a tree imports, also inside functions."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "imports name the module in full"
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def run_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported: everything but the bodies of functions and of TYPE_CHECKING."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from run_at_import(child)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_layer_may(path):
    layer = layer_of(path)
    if layer not in MAY_IMPORT:  # the pipeline and what serves it stand on everything but the command line
        assert layer in ("cli", "__main__") or not any(name.startswith("collc.cli") for name in imported(parse(path)))
        return
    for name in imported(parse(path)):
        parts = name.split(".")
        if parts[0] != "collc" or len(parts) == 1:
            continue
        target = parts[1]
        if (PACKAGE / target).is_dir() or (PACKAGE / f"{target}.py").exists():
            assert target in MAY_IMPORT[layer] | {layer}, f"{layer} may not import {name}"
        if layer in WINGS and target == layer:
            own = path.relative_to(PACKAGE / layer).parts[0].removesuffix(".py")
            assert parts[2] == own or parts[2].startswith("_"), f"{own} imports its neighbour {parts[2]}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_packages_are_imported_when_used(path):
    for statement in run_at_import(parse(path)):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names = {name.partition(".")[0] for name in imported(statement)}
            assert not names & HEAVY, f"line {statement.lineno}: {names & HEAVY} at import"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_follows_the_house_rules(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST_FILE
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no module docstring"
    for item in ast.walk(tree):
        match item:
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                pytest.fail("star import")
            case ast.Call(func=ast.Name(id="print" | "eval" | "exec")):
                pytest.fail(f"line {item.lineno}: {item.func.id}")
            case ast.Attribute(attr="load" | "full_load" | "unsafe_load", value=ast.Name(id="yaml")):
                pytest.fail(f"line {item.lineno}: yaml.{item.attr}")
            case ast.ExceptHandler(type=None):
                pytest.fail(f"line {item.lineno}: bare except")
    assert "TODO" not in text
    assert "FIXME" not in text


def public_items(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for item in body:
        if isinstance(item, ast.FunctionDef | ast.ClassDef) and not item.name.startswith("_"):
            yield prefix + item.name, item
            if isinstance(item, ast.ClassDef):
                yield from public_items(item.body, f"{item.name}.")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_public_names_are_documented(path):
    bare = [name for name, item in public_items(parse(path).body) if not ast.get_docstring(item)]  # type: ignore[arg-type]
    assert bare == []


@pytest.mark.parametrize("path", FILES + TESTS, ids=lambda path: path.name)
def test_forbidden_words_name_no_module(path):
    assert path.stem not in {"utils", "util", "helpers", "helper", "base", "common", "core", "misc"}


PLUGINS = [(kind, name) for kind in registry.KINDS for name in registry.names(kind)]
METHODS = {"synth": ("supports", "run"), "passes": ("run",), "backend": ("emit",)}


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[f"{kind}/{name}" for kind, name in PLUGINS])
def test_a_plugin_is_one_documented_frozen_dataclass(kind, name):
    cls = registry.plugin(kind, name)
    assert is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    for method in METHODS[kind]:
        assert callable(getattr(cls, method)), f"no method {method}"
    told = registry.describe(kind, name)
    assert told["summary"]
    if kind == "synth":
        assert {"guarantee", "supports", "source"} <= set(told), "docstring lines Guarantee:, Supports: and Source:"
        cls()  # every option a user may set has a default


def test_help_starts_at_once_and_imports_nothing_heavy():
    """Under 0.2 s of CPU is the contract; the limit here is lenient for slow machines."""
    code = (
        "import sys, time, resource\n"
        "from collc.cli import main\n"
        "try: main()\n"
        "except SystemExit as leaving: assert not leaving.code, leaving.code\n"
        f"assert not set(sys.modules) & {HEAVY!r}, set(sys.modules) & {HEAVY!r}\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_utime, file=sys.stderr)\n"
    )
    for words in ([], *([name] for name in COMMANDS), ["topo", "bound"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Usage: collc")
        assert float(done.stderr) < 1.0
