"""Every program under examples/ runs as a user runs it, and its loss falls."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import longtail

EXAMPLES = Path(__file__).parents[2] / "examples"
# The package that these tests see, installed or not, from any working directory.
HOME = str(Path(longtail.__file__).resolve().parents[1])
NEEDS = {"lightning_module.py": "lightning"}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_the_loss_falls(name: str, tmp_path: Path) -> None:
    package = NEEDS.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install {package}")
    # No network: a download would fail instead of going unnoticed.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": HOME}
    child = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    losses = re.search(r"first loss ([\d.]+), last loss ([\d.]+)", child.stdout)
    assert losses, child.stdout
    first, last = map(float, losses.groups())
    assert 0 < last < 0.9 * first
    assert not list(tmp_path.iterdir()), "an example leaves files behind"


def test_examples_are_short_and_say_what_they_show() -> None:
    programs = sorted(EXAMPLES.glob("*.py"))
    assert len(programs) >= 3
    for path in programs:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 70, path.name
        assert text.startswith('"""') and f"python examples/{path.name}" in text, path.name
