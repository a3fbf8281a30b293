"""Reading at PubMed's size: newswire as JSON Lines to TextData, memory, and label encoding.

    python benchmarks/data.py                       # 225,000 documents x 18,211 labels
    python benchmarks/data.py --documents 20000     # a quicker look

Every figure is measured in this one run; memory is the peak of a fresh process that only reads.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import joblib

from longtail.corpora.newswire import Newswire
from longtail.labels import encode_labels

LIMIT_GIB = 2.0
LIMIT_RATIO = 100
DENSE_SAMPLE = 300


def write_shard(wire: Newswire, start: int, stop: int, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(start, stop):
            story = wire[number]
            record = {"id": story.id, "text": story.text, "labels": story.labels}
            file.write(json.dumps(record) + "\n")


def write_medline(wire: Newswire, start: int, stop: int, path: Path) -> None:
    """The same stories in the form of MEDLINE, the label names as headings."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        file.write("<PubmedArticleSet>\n")
        for number in range(start, stop):
            title, _, body = wire[number].text.partition("\n")
            headings = "".join(
                f'<MeshHeading><DescriptorName MajorTopicYN="N">{escape(name)}</DescriptorName>'
                "</MeshHeading>\n"
                for name in wire[number].labels
            )
            file.write(
                f'<PubmedArticle><MedlineCitation><PMID Version="1">{number}</PMID>\n<Article>'
                "<Journal><JournalIssue><PubDate><Year>2020</Year></PubDate></JournalIssue>"
                f"</Journal>\n<ArticleTitle>{escape(title)}</ArticleTitle>\n<Abstract>"
                f"<AbstractText>{escape(body)}</AbstractText></Abstract></Article>\n"
                f"<MeshHeadingList>{headings}</MeshHeadingList></MedlineCitation></PubmedArticle>\n"
            )
        file.write("</PubmedArticleSet>\n")


def write_files(
    write: Callable[..., None], wire: Newswire, n_documents: int, paths: list[Path]
) -> list[Path]:
    """Equal shares of the first documents in each file."""
    bounds = [n_documents * k // len(paths) for k in range(len(paths) + 1)]
    joblib.Parallel(n_jobs=-1)(
        joblib.delayed(write)(wire, start, stop, path)
        for start, stop, path in zip(bounds, bounds[1:], paths, strict=False)
    )
    return paths


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def in_fresh_process(*arguments: object) -> dict[str, float]:
    """Run this file again for one reading, so that its memory is its own."""
    command = [sys.executable, __file__, "--read", *map(str, arguments)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(answer.stdout)
    return measured


def read_here(paths: list[str]) -> None:
    """In the fresh process: read, and print seconds, peak memory and what was read."""
    from longtail.data import read_data

    seconds, data = timed(lambda: read_data(paths))
    # Linux counts in KiB.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    measured = {
        "seconds": seconds,
        "peak_gib": peak,
        "documents": len(data),
        "labels": len(data.label_names),
        "assignments": data.Y.nnz,
        "text_gib": sum(map(len, data.texts)) / 2**30,
    }
    print(json.dumps(measured))


def encoding_times(wire: Newswire) -> tuple[float, float]:
    """Seconds per document: our encoder over all documents, and dense Python rows over a few."""
    names = wire.label_names()
    step = max(1, len(wire) // 20_000)
    lists = [list(wire[number].labels) for number in range(0, len(wire), step)]
    # The better of a few, for both: these machines are shared.
    ours = min(timed(lambda: encode_labels(lists, names))[0] for _ in range(3)) / len(lists)
    few = lists[:DENSE_SAMPLE]

    def dense() -> list[list[int]]:
        return [[1 if label in document else 0 for label in names] for document in few]

    return ours, min(timed(dense)[0] for _ in range(3)) / len(few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=225_000)
    parser.add_argument("--labels", type=int, default=18_211)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--read", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_here(options.read)
        return
    wire = Newswire(options.documents, options.labels, mean_labels=12.3)
    print(f"newswire, {options.documents:,} documents x {options.labels:,} labels")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = [folder / f"train-{k:04d}.jsonl" for k in range(options.shards)]
        making, shards = timed(lambda: write_files(write_shard, wire, len(wire), names))
        whole = folder / "all.jsonl"
        with whole.open("wb") as file:
            for shard in shards:
                file.write(shard.read_bytes())
        size = whole.stat().st_size
        print(f"made in {making:.0f} s, {size / 2**30:.2f} GiB of JSON Lines")
        one = in_fresh_process(whole)
        names = [folder / f"medline{k}.xml.gz" for k in range(4)]
        citations = write_files(write_medline, wire, min(len(wire), 40_000), names)
        xml = in_fresh_process(*citations)
    ours, dense = encoding_times(wire)
    rows = [
        ("documents, labels seen", f"{one['documents']:,.0f}, {one['labels']:,.0f}"),
        ("labels per document", f"{one['assignments'] / one['documents']:.2f}"),
        ("JSONL to TextData, one file", f"{one['seconds']:.1f} s"),
        ("  rate", f"{size / 2**20 / one['seconds']:.0f} MiB/s"),
        ("  text alone", f"{one['text_gib']:.2f} GiB"),
        ("  peak memory of the process", f"{one['peak_gib']:.2f} GiB (limit {LIMIT_GIB:g})"),
        ("40,000 citations of MEDLINE XML", f"{xml['seconds']:.1f} s"),
        ("encoding a document's labels", f"{ours * 1e6:.2f} us"),
        ("  dense Python row", f"{dense * 1e6:,.0f} us"),
        ("  ratio", f"{dense / ours:,.0f} x (limit {LIMIT_RATIO})"),
    ]
    for what, value in rows:
        print(f"{what:<36}{value}")
    good = one["peak_gib"] < LIMIT_GIB and dense / ours >= LIMIT_RATIO
    print("within both limits" if good else "NOT within the limits")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
