"""Two corpora from Debian's own packages, of kinds that no other corpus here has.

python benchmarks/debian.py FOLDER
python benchmarks/debian.py FOLDER --language ja

packages   descriptions of packages with their debtags, which volunteers gave and left incomplete;
           `packages-short` has only the line of summary; `packages-ja` those that volunteers
           translated into Japanese, or into another language that the archive has
fortunes   quotations, jokes and riddles with the collection that they come from: very short,
           subjective, one label each

Needs Debian, `apt-get update`, and apt's ordinary access to its archive. A fifth of the documents
are the test part: those whose SHA-256 says so, and documents of equal text stay together.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

FORTUNES = ("fortunes", "fortunes-min")
MIN_DOCUMENTS = 3
WRAPPED = re.compile(r"(?<=[^\x00-\xff])\s*\n\s*(?=[^\x00-\xff])")
"""A line break between two characters of a script without spaces."""

Document = tuple[str, tuple[str, ...]]


def stanzas(text: str) -> Iterable[dict[str, str]]:
    """The fields of each paragraph of apt's lists; continued lines are joined."""
    for paragraph in text.split("\n\n"):
        fields, name = {}, ""
        for line in paragraph.split("\n"):
            if line[:1] in (" ", "\t"):
                fields[name] += "\n" + line[1:]
            elif ":" in line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        yield fields


def descriptions(language: str) -> dict[str, str]:
    """MD5 of a summary -> the whole description in a language, of the archive's Translation."""
    with tempfile.TemporaryDirectory() as folder:
        lists = f"Dir::State::lists={folder}"
        Path(folder, "partial").mkdir()
        apt = ["apt-get", "-o", f"Acquire::Languages={language}", "-o", lists, "update"]
        subprocess.run(apt, check=True, stdout=subprocess.DEVNULL)
        pattern = f"*_i18n_Translation-{language}*"
        helper = "/usr/lib/apt/apt-helper"
        files = sorted(Path(folder).glob(pattern))
        texts = [subprocess.check_output([helper, "cat-file", file], text=True) for file in files]
    found = {}
    for text in texts:
        for fields in stanzas(text):
            if "Description-md5" in fields:
                found[fields["Description-md5"]] = fields[f"Description-{language}"]
    return found


def packages(language: str, *, short: bool = False) -> list[Document]:
    """Each description once, with the tags of the first package that has it."""
    whole = {} if short else descriptions(language)
    available = subprocess.check_output(["apt-cache", "dumpavail"], text=True)
    documents: dict[str, tuple[str, ...]] = {}
    for fields in stanzas(available):
        tags = re.split(r"[,\s]+", fields.get("Tag", ""))
        name, md5 = fields.get("Package", ""), fields.get("Description-md5", "")
        text = whole.get(md5, fields.get("Description", "") if language == "en" else "")
        text = text if language == "en" else WRAPPED.sub("", text)
        text = re.sub(r"\s+", " ", text.replace("\n.\n", "\n")).strip()
        if any(tags) and text:
            kept = tuple(sorted(tag for tag in tags if tag and not tag.startswith("special::")))
            documents.setdefault(f"{name}: {text}", kept)
    return list(documents.items())


def fortunes() -> list[Document]:
    documents: dict[str, tuple[str, ...]] = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", *FORTUNES], cwd=folder, check=True)
        for archive in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
        for file in sorted(Path(folder, "usr/share/games/fortunes").glob("*")):
            if file.is_file() and not file.is_symlink() and file.suffix not in (".dat", ".u8"):
                for text in re.split(r"\n%\n", file.read_text("utf-8", "replace")):
                    text = re.sub(r"\s+", " ", text).strip()
                    if text:
                        documents.setdefault(text, (file.name,))
    return list(documents.items())


def write(folder: Path, documents: list[Document]) -> None:
    """train.jsonl and test.jsonl, with the labels of enough documents."""
    counts = Counter(label for _, labels in documents for label in labels)
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[str]] = {"train": [], "test": []}
    for text, labels in documents:
        kept = [label for label in labels if counts[label] >= MIN_DOCUMENTS]
        if kept:
            # Without its name a package may have the text of another.
            digest = hashlib.sha256((text.partition(": ")[2] or text).encode()).digest()
            part = "test" if digest[0] < 51 else "train"
            parts[part].append(json.dumps({"text": text, "labels": kept}) + "\n")
    for part, lines in parts.items():
        (folder / f"{part}.jsonl").write_text("".join(lines), "utf-8")
    sizes = ", ".join(f"{len(lines)} {part}" for part, lines in parts.items())
    n_labels = sum(count >= MIN_DOCUMENTS for count in counts.values())
    print(f"{folder}: {sizes}, {n_labels} labels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--language", default="en")
    arguments = parser.parse_args()
    folder, language = arguments.folder, arguments.language
    if language != "en":
        write(folder / f"packages-{language}", packages(language))
        return
    write(folder / "packages", packages("en"))
    write(folder / "packages-short", packages("en", short=True))
    write(folder / "fortunes", fortunes())


if __name__ == "__main__":
    main()
