"""Lines of code: of src, tests and every package; the longest files and functions.

python benchmarks/size.py [COMMIT ...]
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def python_files(commit: str | None, folder: str) -> dict[str, str]:
    """Path -> text, of a commit or of the working tree."""
    if commit is None:
        paths = git("ls-files", "--cached", "--others", "--exclude-standard", folder).split()
    else:
        paths = git("ls-tree", "-r", "--name-only", commit, folder).split()
    paths = [path for path in paths if path.endswith(".py")]
    if commit is None:
        return {path: open(path, encoding="utf-8").read() for path in paths}
    return {path: git("show", f"{commit}:{path}") for path in paths}


def functions(text: str) -> dict[str, int]:
    """Name -> lines of every function."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in nodes}


def main() -> None:
    for commit in sys.argv[1:] or [None]:
        print(f"== {commit or 'working tree'}")
        for folder in ("src", "tests"):
            files = {p: t for p, t in python_files(commit, folder).items() if t}
            lines = {path: text.count("\n") for path, text in files.items()}
            packages = Counter[str]()
            for path, count in lines.items():
                parts = path.removeprefix("src/longtail/").removeprefix("tests/").split("/")
                packages[parts[0] if len(parts) > 1 else "(files)"] += count
            longest = max(lines, key=lines.__getitem__)
            sizes = {(p, f): n for p, t in files.items() for f, n in functions(t).items()}
            function = max(sizes, key=sizes.__getitem__)
            print(f"{folder}: {sum(lines.values()):,} lines, {len(files)} files")
            print("  " + ", ".join(f"{name} {count:,}" for name, count in packages.most_common()))
            print(f"  longest file: {longest} ({lines[longest]}); over 400 lines: ", end="")
            print(sum(count > 400 for count in lines.values()))
            print(f"  longest function: {function[1]} in {function[0]} ({sizes[function]} lines)")


if __name__ == "__main__":
    main()
