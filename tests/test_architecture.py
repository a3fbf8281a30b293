"""Imports go one way: a module imports only from packages above its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import longtail

SOURCE = Path(longtail.__file__).parent
# In order: a module may import from its package and from those before it.
PACKAGES = (
    "errors",
    "checks",
    "settings",
    "progress",
    "runs",
    "labels",
    "data",
    "corpora",
    "losses",
    "fused",
    "training",
    "models",
    "metrics",
    "thresholds",
    "evaluation",
    "analysis",
    "report",
    "classifier",
    "reproduce",
    "demo",
    "serve",
    "cli",
)


def package_of(module: str) -> str | None:
    """longtail.losses.modules -> losses; None for the package itself and for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "longtail" and len(parts) > 1 else None


def imported_modules(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "longtail":
                yield from (f"longtail.{alias.name}" for alias in node.names)


def wrong_imports(package: str, source: str) -> list[str]:
    """Imports from packages further down, or from packages that are not in PACKAGES."""
    wrong = []
    for module in imported_modules(source):
        other = package_of(module)
        if other is None or other.startswith("__"):
            continue
        if other not in PACKAGES or PACKAGES.index(other) > PACKAGES.index(package):
            wrong.append(f"{package} imports {module}")
    return wrong


# The package itself and `python -m longtail` may import from anywhere.
ENTRY_POINTS = (SOURCE / "__init__.py", SOURCE / "__main__.py")
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path not in ENTRY_POINTS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert package in PACKAGES, f"add {package} to PACKAGES"
    assert wrong_imports(package, path.read_text("utf-8")) == []


def test_a_wrong_import_is_detected() -> None:
    for source in (
        "from longtail.training.loop import train",
        "import longtail.training",
        "from longtail import cli",
        "def late():\n    from longtail.classifier import LongTailClassifier",
    ):
        assert len(wrong_imports("losses", source)) == 1, source
    assert wrong_imports("losses", "from longtail.labels import LabelStats\nimport torch") == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_has_a_docstring(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert docstring, f"{path} has no docstring"
    assert len(docstring.splitlines()) <= 8


def test_evaluation_needs_numpy_and_scipy_only() -> None:
    packages = ("labels", "data", "corpora", "metrics", "thresholds", "evaluation", "analysis")
    for path in MODULES:
        if path.relative_to(SOURCE).parts[0].removesuffix(".py") in packages:
            roots = {m.split(".")[0] for m in imported_modules(path.read_text("utf-8"))}
            assert not roots & {"torch", "transformers", "sklearn"}, path
