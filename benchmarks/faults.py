"""Put small faults into a copy of the source and count how many the tests catch.

    python benchmarks/faults.py --count 30 --seed 0             # of all packages in turn
    python benchmarks/faults.py --package thresholds --count 10 --only-mirrored
    python benchmarks/faults.py --count 30 --save faults.jsonl  # draw only
    python benchmarks/faults.py --faults faults.jsonl --root OTHER  # the same in another tree

A fault changes one line: a sign, a bound, a number by one, a condition, or a check that is dropped.
It is caught when the tests of its package fail, or else any test at all. The tree is copied to a
temporary folder first, so that yours is never touched.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SWAPS = {
    ast.Add: "-", ast.Sub: "+", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in", ast.NotIn: "in", ast.Is: "is not",
    ast.IsNot: "is", ast.And: "or", ast.Or: "and",
}  # fmt: skip
TESTS = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header"]


@dataclass(frozen=True)
class Fault:
    """One line of the source and what it becomes; `line` helps where it stands several times."""

    file: str
    kind: str
    line: int
    old: str
    new: str


def faults_of(root: Path, path: Path) -> Iterator[Fault]:
    """All faults of one file that a change of a single line can make."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    file = str(path.relative_to(root))

    def changed(kind: str, node: ast.AST, start: int, stop: int, new: str) -> Iterator[Fault]:
        number = node.lineno  # type: ignore[attr-defined]
        old = lines[number - 1].encode()
        yield Fault(
            file, kind, number, old.decode(), (old[:start] + new.encode() + old[stop:]).decode()
        )

    for node in ast.walk(ast.parse(text)):
        if getattr(node, "lineno", None) != getattr(node, "end_lineno", 0):
            if isinstance(node, ast.If) and _only_raises(node) and node.test.lineno == node.lineno:
                test = node.test
                if test.end_lineno == node.lineno:
                    yield from changed(
                        "dropped check", node, test.col_offset, test.end_col_offset or 0, "False"
                    )
            continue
        pieces: list[ast.expr] = []
        operators: list[ast.AST] = []
        if isinstance(node, ast.BinOp):
            pieces, operators = [node.left, node.right], [node.op]
        elif isinstance(node, ast.Compare):
            pieces, operators = [node.left, *node.comparators], list(node.ops)
        elif isinstance(node, ast.BoolOp):
            pieces, operators = list(node.values), [node.op] * (len(node.values) - 1)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield from changed(
                "off by one", node, node.col_offset, node.end_col_offset or 0, str(node.value + 1)
            )
        elif isinstance(node, ast.Expr) and _is_check(node.value):
            yield from changed(
                "dropped check", node, node.col_offset, node.end_col_offset or 0, "pass"
            )
        for (left, right), operator in zip(itertools.pairwise(pieces), operators, strict=True):
            if swapped := SWAPS.get(type(operator)):
                between = lines[node.lineno - 1].encode()[left.end_col_offset : right.col_offset]
                opening = between.decode().strip()
                if opening.strip("()") == opening:
                    yield from changed(
                        type(operator).__name__,
                        node,
                        left.end_col_offset or 0,
                        right.col_offset,
                        f" {swapped} ",
                    )


def _only_raises(node: ast.If) -> bool:
    return len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse


def _is_check(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = getattr(value.func, "id", getattr(value.func, "attr", ""))
    return name.lstrip("_").startswith("check")


def draw(root: Path, package: str | None, count: int, seed: int) -> list[Fault]:
    """Faults of every package in turn, files and lines by chance."""
    source = root / "src" / "longtail"
    names = sorted({path.relative_to(source).parts[0] for path in source.rglob("*.py")})
    chance = random.Random(seed)
    queues = []
    for name in [package] if package else names:
        files = sorted((source / name).rglob("*.py")) if (source / name).is_dir() else []
        faults = [fault for file in files or [source / name] for fault in faults_of(root, file)]
        chance.shuffle(faults)
        # A kind in turn: comparisons would be most of them otherwise.
        kinds = sorted({fault.kind for fault in faults})
        chance.shuffle(kinds)
        by_kind = [[fault for fault in faults if fault.kind == kind] for kind in kinds]
        queues.append(
            [fault for row in itertools.zip_longest(*by_kind) for fault in row if fault is not None]
        )
    rows = itertools.zip_longest(*queues)
    return [fault for row in rows for fault in row if fault is not None][:count]


def place(root: Path, fault: Fault) -> tuple[Path, int] | None:
    """File and line of the fault in a tree where the line may have moved."""
    candidates = [root / fault.file, *sorted((root / "src").rglob("*.py"))]
    for path in candidates:
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            places = [i for i, line in enumerate(lines) if line.strip() == fault.old.strip()]
            if places:
                return path, min(places, key=lambda i: abs(i + 1 - fault.line))
    return None


def test_paths(root: Path, path: Path) -> list[str]:
    """The tests that mirror a source file."""
    name = path.relative_to(root / "src" / "longtail").parts[0]
    mirrors = [Path("tests") / name, Path("tests") / f"test_{name.removesuffix('.py')}.py"]
    return [str(mirror) for mirror in mirrors if (root / mirror).exists()]


def run_tests(root: Path, paths: list[str], timeout: float) -> str | None:
    """The first failure, or None."""
    environment = {
        **os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, *TESTS, *paths],
            cwd=root, env=environment, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "timeout"
    if done.returncode in (0, 5):
        return None
    failures = [
        line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
    ] or done.stdout.splitlines()[-1:]
    return (failures or ["?"])[0][:110]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--package")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=Path, help="a file written by --save")
    parser.add_argument("--save", type=Path, help="write the faults and stop")
    parser.add_argument("--only-mirrored", action="store_true", help="not the whole suite")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds per run of tests")
    arguments = parser.parse_args()
    if arguments.faults:
        lines = arguments.faults.read_text(encoding="utf-8").splitlines()
        faults = [Fault(**json.loads(line)) for line in lines]
    else:
        faults = draw(arguments.root, arguments.package, arguments.count, arguments.seed)
    if arguments.save:
        text = "".join(json.dumps(asdict(fault)) + "\n" for fault in faults)
        arguments.save.write_text(text, encoding="utf-8")
        return
    caught = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "*.pyc", ".*_cache", "gpu", ".hypothesis")
        shutil.copytree(arguments.root, root, ignore=ignored)
        for number, fault in enumerate(faults, 1):
            where = place(root, fault)
            if where is None:
                print(f"{number:3} NOT THERE  {fault.file}: {fault.old.strip()}", flush=True)
                continue
            path, index = where
            before = path.read_text(encoding="utf-8")
            lines = before.splitlines()
            indent = lines[index][: len(lines[index]) - len(lines[index].lstrip())]
            lines[index] = indent + fault.new.strip()
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            start = time.monotonic()
            mirrored = test_paths(root, path)
            failure = run_tests(root, mirrored, arguments.timeout) if mirrored else None
            if failure is None and not arguments.only_mirrored:
                failure = run_tests(root, [], arguments.timeout)
            path.write_text(before, encoding="utf-8")
            caught += failure is not None
            seconds = time.monotonic() - start
            print(
                f"{number:3} {'caught  ' if failure else 'SURVIVED'} {seconds:5.0f} s  "
                f"{path.relative_to(root)}:{index + 1} ({fault.kind})\n"
                f"      {fault.old.strip()}\n   -> {fault.new.strip()}\n      {failure or ''}",
                flush=True,
            )
    print(f"caught {caught} of {len(faults)}")


if __name__ == "__main__":
    main()
