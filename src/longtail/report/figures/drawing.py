"""Colours, formats and writing of figure files. matplotlib is imported only to draw."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from longtail.errors import InputError
from longtail.runs.files import MADE_BY, whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# No date, so that the same data gives the same bytes.
METADATA = {
    ".png": {"Software": MADE_BY},
    ".svg": {"Date": None, "Creator": MADE_BY},
    ".pdf": {"CreationDate": None, "Creator": MADE_BY},
}
# Okabe and Ito's palette, safe for colour blindness.
GROUP_COLOURS = {"head": "#0072B2", "medium": "#E69F00", "tail": "#CC79A7"}


def check_target(path: str | Path) -> Path:
    """Raise unless the suffix is that of a known format."""
    target = Path(path)
    if target.suffix.lower() not in METADATA:
        raise InputError(
            f"cannot draw {str(path)!r}: expected a name that ends in {', '.join(METADATA)}."
        )
    return target


def new_figure(width: float, height: float) -> Figure:
    """A figure of a size in inches, without pyplot, which keeps figures in memory."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure in the format of the suffix, atomically."""
    from matplotlib import rc_context

    with (
        whole_file(path) as temporary,
        warnings.catch_warnings(),
        rc_context({"svg.hashsalt": "longtail"}),
    ):
        # Characters that the font lacks are drawn as boxes: not worth a warning.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph", category=UserWarning)
        figure.savefig(temporary, dpi=150, metadata=METADATA[path.suffix.lower()])
