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
from collections import Counter, defaultdict
from pathlib import Path

# Library threads would block forked processes and compete for two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from . import GOOD, Outcome

# Share of the time; the minimum number of cases is defined by each attack.
SHARES = dict(kills=0.25, folders=0.2, files=0.15, losses=0.2, threads=0.1, service=0.1)


def run(name: str, seconds: float, least: int, seed: int) -> list[Outcome]:
    """Run one attack and return its outcomes."""
    module = importlib.import_module(f"{__package__}.{name}")
    least = module.MINIMUM if least < 0 else least
    outcomes: list[Outcome] = []
    end = time.monotonic() + seconds
    shown = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="longtail-attack-") as scratch:
        for outcome in module.attack(seed, Path(scratch)):
            outcomes.append(outcome)
            if outcome.verdict not in GOOD:
                print(f"BROKEN {outcome.kind}: {outcome.verdict} ({outcome.detail})", flush=True)
            now = time.monotonic()
            if now - shown > 30:
                shown = now
                print(f"{name}: {len(outcomes):,} cases", file=sys.stderr, flush=True)
            if now >= end and len(outcomes) >= least:
                break
    return outcomes


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """Format the number of cases by attack, kind and verdict."""
    columns = (*GOOD, "BROKEN")
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for name, cases in outcomes.items():
        for case in sorted(cases):
            verdict = case.verdict if case.verdict in GOOD else "BROKEN"
            counts[name, case.kind][verdict] += 1
    counts["all", ""] = sum(counts.values(), Counter())
    lines = [f"{'attack':<11}{'kind':<44}" + "".join(f"{column:>11}" for column in columns)]
    for (name, kind), row in counts.items():
        lines.append(f"{name:<11}{kind[:43]:<44}" + "".join(f"{row[c]:>11,}" for c in columns))
    return "\n".join(lines)


def main() -> int:
    """Return exit code 0 if nothing was broken."""
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
    return int(any(one.verdict not in GOOD for each in outcomes.values() for one in each))


if __name__ == "__main__":
    sys.exit(main())
