"""What a user gets without a GPU and without any flag: `longtail train` beside its peers.

    python benchmarks/default.py FOLDER... --out results/default-cpu.md
    python benchmarks/default.py pubmed_mesh --min-count pubmed_mesh=5 --only omikuji longtail

FOLDER holds train.jsonl(.gz), test.jsonl(.gz) and perhaps validation.jsonl(.gz). The documents are
read as `longtail train` reads them: without a validation file a stratified tenth of train is held
out. Labels are those of train, with `--min-count N` those of at least N documents, for
all systems. A document without labels is an example of none.

The peers of benchmarks/peers.py run in a virtual environment of their own (--peers-venv, made if
it is not there), all on the same TF-IDF features. LinearSVC, omikuji and the tree are fitted on
train; their scores have one global cut, the best for micro-F1 on the validation part, without
fitting again. LibMultiLabel's thresholding needs no such part: it is fitted on train and
validation, as longtail is, and chooses its thresholds by three folds.

Seconds, CPU seconds and peak memory are those of the process that learns, from its start to the
saved model: it reads, makes features, fits and tunes. Memory is resident memory, of it and its
children; pages that they share count in each. "predict" is a second process, which loads the model
and scores the test part. That part is evaluated once, by one function for all systems: F1 is 0 for
a label that is neither predicted nor there; head, medium and tail are terciles of train's counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data import ReadReport, TextData, load_data
from longtail.evaluation import Scores
from longtail.labels import GROUP_NAMES, label_groups
from longtail.metrics import Counts, count
from longtail.report.table import NONE, Cell, Strong, Table, plural, to_markdown
from longtail.reproduce.cells import LIBRARIES, commit, hardware

HERE = Path(__file__).parent
REQUIRED = ("omikuji==0.5.2", "libmultilabel==0.10.0")
SYSTEMS = {
    "svm": "LinearSVC + global shift",
    "omikuji": "omikuji",
    "tree": "LibMultiLabel tree",
    "thresholding": "LibMultiLabel thresholding",
    "longtail": "longtail train",
}
LISTED = ("scikit-learn", "omikuji", "libmultilabel", "liblinear-multicore")
COSTS = ("seconds", "CPU s", "peak MiB", "MB on disk", "predict, s")
TITLE = "Without a GPU and without flags"
POLL_SECONDS = 0.1
SPEED = """
import json, sys, time
from longtail import LongTailClassifier
start = time.perf_counter()
classifier = LongTailClassifier.from_pretrained(sys.argv[1])
loaded = time.perf_counter()
texts = [json.loads(line)["text"] for line in open(sys.argv[2], encoding="utf-8")]
classifier.predict(texts[:100])
start_of_texts = time.perf_counter()
classifier.predict(texts)
rate = len(texts) / (time.perf_counter() - start_of_texts)
print(f"longtail: loaded in {loaded - start:.1f} s, then {rate:,.0f} documents/s.")
"""


@dataclass
class Row:
    """One system on one corpus: costs in the order of COSTS, figures in percent."""

    system: str
    costs: list[float] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    trouble: str = ""
    """Why there are no figures."""
    note: str = ""


@dataclass(frozen=True)
class Corpus:
    """A folder as all systems see it; `columns` are its labels with training documents."""

    folder: Path
    reading: tuple[str, ...]
    sizes: Mapping[str, int]
    names: tuple[str, ...]
    train_counts: np.ndarray
    truth: sp.csr_matrix

    def figures(self, counts: Counts) -> dict[str, float]:
        """The one evaluation of all systems: F1 in percent, 0 where nothing is there to find."""
        if (counts.actual != np.asarray(self.truth.sum(axis=0)).ravel()).any():
            raise RuntimeError(f"{self.folder.name}: evaluated on other documents than the others")
        overall = Scores.of(counts, self.sizes["test"])
        f1 = {"micro": overall.micro_f1, "macro": overall.macro_f1}
        for name, mask in label_groups(self.train_counts).items():
            group = Counts(*(part[mask] for part in counts))
            f1[name] = Scores.of(group, self.sizes["test"]).macro_f1
        return {name: 100 * value for name, value in f1.items()}


def read_corpus(folder: Path, min_count: int, work: Path) -> Corpus:
    """Read the parts, and write them for the peers."""
    parts = load_data(folder, min_count=min_count, keep_unlabelled=True, report=ReadReport())
    train_counts = np.asarray(parts["train"].Y.sum(axis=0)).ravel()
    kept = np.flatnonzero(train_counts)
    for name, part in parts.items():
        write_part(part, sp.csr_matrix(part.Y[:, kept]), work / f"{name}.jsonl")
    (work / "labels.json").write_text(str(len(kept)), "utf-8")
    names = parts["train"].label_names
    return Corpus(
        folder.absolute(),
        ("--keep-unlabelled", *(("--min-count", str(min_count)) if min_count else ())),
        {name: len(part) for name, part in parts.items()},
        tuple(names[column] for column in kept),
        train_counts[kept],
        sp.csr_matrix(parts["test"].Y[:, kept]),
    )


def write_part(part: TextData, labels: sp.csr_matrix, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row, text in enumerate(part.texts):
            columns = labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()
            file.write(json.dumps({"text": text, "labels": columns}) + "\n")


def measure(command: Sequence[str], work: Path, limit: float) -> tuple[list[float], str]:
    """Run a command in a process group of its own, which is stopped at the limit in seconds.

    Returns seconds, CPU seconds and peak MiB, and why it did not finish, if it did not. What it
    prints goes to output.txt in `work`.
    """
    # The peers' Python must not see longtail; longtail must not see a GPU.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    if command[0] != sys.executable:
        environment.pop("PYTHONPATH", None)
    errors, before, start, peak, stopped = work / "errors.txt", os.times(), time.time(), 0.0, False
    with (work / "output.txt").open("w") as stdout, errors.open("w") as stderr:
        process = subprocess.Popen(
            command, cwd=work, stdout=stdout, stderr=stderr, env=environment, start_new_session=True
        )
        try:
            while process.poll() is None:
                peak = max(peak, resident_mib(process.pid))
                if not stopped and time.time() - start > limit:
                    os.killpg(process.pid, signal.SIGKILL)
                    stopped = True
                time.sleep(POLL_SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    trouble = f"stopped after {limit / 60:g} min" if stopped else ""
    if process.returncode and not stopped:
        lines = errors.read_text("utf-8", "replace").strip().splitlines()
        trouble = f"failed: {lines[-1] if lines else process.returncode}"
    return [time.time() - start, used, peak], trouble


def resident_mib(group: int) -> float:
    """Resident memory of the processes of a group, or the peak of one of them if that is more."""
    total, peak = 0, 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name, in parentheses, may hold spaces; state, parent and group follow.
                stat = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if int(stat[2]) == group and stat[0] != "Z":
                    status = (entry / "status").read_text("utf-8", "replace").splitlines()
                    kib = dict(line.split(":", 1) for line in status if line.startswith("Vm"))
                    total += int(kib["VmRSS"].split()[0])
                    peak = max(peak, int(kib["VmHWM"].split()[0]))
            except (OSError, KeyError):
                # It has ended.
                continue
    return max(total, peak) / 2**10


def run(system: str, corpus: Corpus, work: Path, peers: Path, limit: float) -> Row:
    """Fit in one process, predict in another, evaluate."""
    row, model = Row(SYSTEMS[system]), work / system
    data = (str(corpus.folder), *corpus.reading)
    if system == "longtail":
        own = (sys.executable, "-m", "longtail")
        fit = (*own, "train", *data, "--out", str(model))
        # All of the test part, as the others predict it: a few texts are in the training part too.
        flags = ("--split", "test", "--include-trained", "--json")
        predict = (*own, "evaluate", str(model), str(corpus.folder), *flags)
    else:
        script = str(HERE.absolute() / "peers.py")
        fit, predict = (
            (str(peers), script, verb, system, str(work)) for verb in ("fit", "predict")
        )
    row.costs, row.trouble = measure(fit, work, limit)
    if not row.trouble:
        size = sum(file.stat().st_size for file in model.rglob("*") if file.is_file()) / 1e6
        predicting, row.trouble = measure(predict, work, limit)
        row.costs += [size, predicting[0]]
    if not row.trouble:
        if system == "longtail":
            counts = counts_of(json.loads((work / "output.txt").read_text("utf-8")), corpus)
        else:
            counts = count(corpus.truth, sp.load_npz(model.with_suffix(".npz")))
        row.figures = corpus.figures(counts)
    if system == "longtail" and not row.trouble:
        command = (sys.executable, "-c", SPEED, str(model), str(work / "test.jsonl"))
        _, row.trouble = measure(command, work, limit)
        row.note = (work / "output.txt").read_text("utf-8").strip()
    shutil.rmtree(model, ignore_errors=True)
    return row


def counts_of(evaluated: dict[str, Any], corpus: Corpus) -> Counts:
    """Counts from what `longtail evaluate --json` prints, in the order of the corpus' labels."""
    by_name = {row["name"]: row for row in evaluated["labels"]}
    actual = np.asarray(corpus.truth.sum(axis=0)).ravel()
    # A label that the model does not know is never predicted.
    rows = [by_name.get(name, {}) for name in corpus.names]
    hits, predicted = (np.array([row.get(k, 0.0) for row in rows]) for k in ("hits", "predicted"))
    known = [row.get("actual", n) for row, n in zip(rows, actual, strict=True)]
    return Counts(hits, predicted, np.array(known))


def table_of(corpus: Corpus, rows: Sequence[Row]) -> Table:
    columns = ("micro", "macro", *GROUP_NAMES)
    written = [{name: f"{value:.2f}" for name, value in row.figures.items()} for row in rows]
    best = {name: max((float(row[name]) for row in written if row), default=0) for name in columns}
    cells: list[list[Cell]] = []
    for row, texts in zip(rows, written, strict=True):
        costs = [f"{value:,.{0 if value >= 1000 else 1}f}" for value in row.costs]
        costs += [NONE] * (len(COSTS) - len(costs))
        figures: list[Cell] = [
            (Strong(text),) if float(text) == best[name] else text for name, text in texts.items()
        ]
        cells.append([row.system, row.trouble or costs[0], *costs[1:], *(figures or [NONE] * 5)])
    sizes = ", ".join(f"{n:,} {name}" for name, n in corpus.sizes.items())
    note = f"{sizes} documents; {plural(len(corpus.names), 'label')} of train."
    notes = [note, *(row.note for row in rows if row.note)]
    header = ("system", *COSTS, "micro-F1", "macro-F1", *(f"{name}, macro" for name in GROUP_NAMES))
    return Table(corpus.folder.name, header, cells, notes=tuple(notes))


def make_environment(folder: Path) -> Path:
    """The Python of the peers' virtual environment, which is made if it is not there."""
    python = folder.absolute() / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "-c", "constraints.txt"]
        subprocess.run([*install, *REQUIRED], check=True, cwd=HERE.parent)
    return python


def peers_versions(python: Path) -> dict[str, str]:
    """Of the packages in the peers' environment."""
    code = "import sys; from importlib.metadata import version\nprint(*map(version, sys.argv[1:]))"
    answer = subprocess.run(
        [str(python), "-c", code, *LISTED], capture_output=True, text=True, check=True
    )
    return dict(zip(LISTED, answer.stdout.split(), strict=True))


def document(tables: Sequence[Table], python: Path, command: str) -> str:
    """The tables, then how, where and with what they were made."""
    versions = {name: metadata.version(name) for name in LIBRARIES}
    about = {"command": command, "hardware": hardware(()), "commit": commit(), **versions}
    peers = {f"{name} (peers)": version for name, version in peers_versions(python).items()}
    rows = [*about.items(), *peers.items()]
    made_with = Table("Made with", ("what", ""), rows, n_names=2)
    return "\n\n".join([f"# {TITLE}", *map(to_markdown, [*tables, made_with])]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument(
        "--min-count",
        action="append",
        default=[],
        metavar="NAME=COUNT",
        help="fewest training documents of a label, for the folder of this name",
    )
    parser.add_argument("--minutes", type=float, default=15, help="limit for fitting one system")
    parser.add_argument("--peers-venv", type=Path, help="default: a temporary folder")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    parser.add_argument("--json", type=Path, help="file of the unrounded figures to write")
    options = parser.parse_args()  # fmt: skip
    min_counts = dict(pair.split("=") for pair in options.min_count)
    words = ["python benchmarks/default.py", *(folder.name for folder in options.folders)]
    words += [f"--min-count {pair}" for pair in options.min_count]
    words += ["--only", *options.only] if options.only != list(SYSTEMS) else []
    command = " ".join([*words, f"--minutes {options.minutes:g}"])
    tables, raw = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        python = make_environment(options.peers_venv or Path(temporary) / "peers")
        for folder in options.folders:
            work = Path(temporary) / "work"
            work.mkdir()
            corpus = read_corpus(folder, int(min_counts.get(folder.name, 0)), work)
            rows: list[Row] = []
            for system in options.only:
                rows.append(run(system, corpus, work, python, 60 * options.minutes))
                print(folder.name, rows[-1], file=sys.stderr, flush=True)
                # After every row, since an evening of work may be interrupted.
                raw[folder.name] = [asdict(row) for row in rows]
                text = document([*tables, table_of(corpus, rows)], python, command)
                if options.out:
                    options.out.write_text(text, "utf-8")
                if options.json:
                    options.json.write_text(json.dumps(raw, indent=2), "utf-8")
            tables.append(table_of(corpus, rows))
            shutil.rmtree(work)
    print(text, end="")


if __name__ == "__main__":
    main()
