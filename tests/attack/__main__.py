"""`python -m tests.attack --minutes 20`: every attack for its share of the time, and the counts.

Each attack goes on until it has its least number of cases and its share of the time is over.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

# Threads of libraries would wait for each other in processes that are forked, and share two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from .outcome import GOOD, Outcome

# Share of the time of each; the least number of cases is the attack's own.
SHARES = {
    "kills": 0.25,
    "folders": 0.2,
    "files": 0.15,
    "losses": 0.25,
    "threads": 0.1,
    "downloads": 0.05,
}


def run(name: str, seconds: float, least: int, seed: int) -> list[Outcome]:
    """The outcomes of one attack."""
    module = importlib.import_module(f"{__package__}.{name}")
    least = module.MINIMUM if least < 0 else least
    found: list[Outcome] = []
    end = time.monotonic() + seconds
    shown = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="longtail-attack-") as scratch:
        for outcome in module.attack(seed, Path(scratch)):
            found.append(outcome)
            if outcome.verdict not in GOOD:
                print(f"BROKEN {outcome.kind}: {outcome.verdict} ({outcome.detail})", flush=True)
            now = time.monotonic()
            if now - shown > 30:
                shown = now
                print(f"{name}: {len(found):,} cases", file=sys.stderr, flush=True)
            if now >= end and len(found) >= least:
                break
    return found


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """Cases by attack, kind and verdict."""
    lines = [f"{'attack':<11}{'kind':<44}" + "".join(f"{v:>11}" for v in (*GOOD, "BROKEN"))]
    for name, found in outcomes.items():
        for kind in sorted({one.kind for one in found}):
            verdicts = Counter(one.verdict for one in found if one.kind == kind)
            good = [verdicts[v] for v in GOOD]
            counts = (*good, verdicts.total() - sum(good))
            lines.append(f"{name:<11}{kind[:43]:<44}" + "".join(f"{n:>11,}" for n in counts))
    total = Counter(one.verdict for found in outcomes.values() for one in found)
    good = [total[v] for v in GOOD]
    counts = (*good, total.total() - sum(good))
    lines.append(f"{'all':<55}" + "".join(f"{n:>11,}" for n in counts))
    return "\n".join(lines)


def main() -> int:
    """Exit code 0 if nothing was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=list(SHARES), help="some of the attacks")
    parser.add_argument("--least", type=int, default=-1, help="cases of each; default: its own")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = given.only or list(SHARES)
    whole = sum(SHARES[name] for name in chosen)
    outcomes = {}
    for name in chosen:
        seconds = 60 * given.minutes * SHARES[name] / whole
        outcomes[name] = run(name, seconds, given.least, given.seed)
    print(table(outcomes))
    return int(any(one.verdict not in GOOD for found in outcomes.values() for one in found))


if __name__ == "__main__":
    sys.exit(main())
