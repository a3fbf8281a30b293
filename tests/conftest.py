"""Shared settings of the tests, a tiny encoder, and processes that may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Several test processes share few cores; torch's threads would wait for each other. Set before
# torch is imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A shell ignores SIGINT in what it runs in the background, and child processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A shared machine may be slow at any moment: no test fails for its time, and the same examples run
# everywhere. HYPOTHESIS_PROFILE=explore draws new ones.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", patient)
settings.register_profile("steady", patient, derandomize=True)
settings.register_profile("quick", patient, derandomize=True, max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Left out by `make quick`: tests that start processes, compile, draw, fit many models, read large
# files, or use an encoder.
SLOW_FOLDERS = ("attack", "cli", "documents", "engines", "examples", "reproduce", "search")
SLOW_FILES = {
    "classifier": ("export", "odd_inputs", "predict"),
    "corpora": ("pubmed",),
    "data": ("corpus_formats", "damaged_files", "limits", "parallel"),
    "losses": ("distributed", "kernels", "torch_manners"),
    "models": ("new_kind", "onnx"),
    "report": ("figures", "page"),
    "runs": ("model",),
    "serve": ("clients", "command", "fuzz", "processes"),
    "": ("documents", "imports"),
    "thresholds": ("selection",),
    "training": ("processes",),
}
SLOW_FIXTURES = {"browser", "children", "shared", "steady_bert", "tiny_bert", "tiny_tokenizer"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(Path(__file__).parent)
        folder, name = path.parts[-2:] if len(path.parts) > 1 else ("", path.name)
        in_slow_file = name.removeprefix("test_").removesuffix(".py") in SLOW_FILES.get(folder, ())
        fixtures = set(getattr(item, "fixturenames", ()))
        if folder in SLOW_FOLDERS or in_slow_file or fixtures & SLOW_FIXTURES:
            item.add_marker("slow")


TINY_WORDS = ("and", "copper", "fell", "nickel", "of", "rose", "the", "tin", "wheat", "zinc")


def make_tokenizer() -> Any:
    """A Hugging Face tokenizer that knows TINY_WORDS: [CLS] words [SEP]."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}
    words = [*special.values(), *TINY_WORDS]
    core = Tokenizer(WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    core.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": token for name, token in special.items()}
    return PreTrainedTokenizerFast(tokenizer_object=core, **names)


def save_bert(folder: Path, **settings: Any) -> Path:
    """A BERT with random weights that reads TINY_WORDS: no download."""
    import torch
    from transformers import BertConfig, BertModel

    make_tokenizer().save_pretrained(folder)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    sizes["max_position_embeddings"] = 32
    config = BertConfig(vocab_size=4 + len(TINY_WORDS), **sizes, **settings)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Callable[[], Any]:
    return make_tokenizer


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny BERT."""
    return save_bert(tmp_path_factory.mktemp("tiny-bert"))


@pytest.fixture(scope="session")
def steady_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without dropout, which differs between numbers of processes."""
    folder = tmp_path_factory.mktemp("steady-bert")
    return save_bert(folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The corpora beside the project."""
    folder = Path(os.environ.get("LONGTAIL_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "corpora").is_dir():
        pytest.skip("no corpora: set LONGTAIL_SHARED to a folder that has them")
    return folder / "corpora"


class Children:
    """Jobs of children.py, each in a process."""

    def __init__(self, encoder: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("children.py")), str(encoder)]
        pipe = subprocess.PIPE
        self.server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def start(self, job: str, **settings: Any) -> int:
        """Start a job; return its process id."""
        return self._send({"job": job, **settings})

    def wait(self, process: int) -> int:
        """The exit code of a job, minus the number of the signal that ended it."""
        return self._send({"wait": process})

    def run(self, job: str, **settings: Any) -> int:
        return self.wait(self.start(job, **settings))

    def _send(self, message: dict[str, Any]) -> int:
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(message) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())


@pytest.fixture(scope="session")
def children(tiny_bert: Path) -> Iterator[Children]:
    started = Children(tiny_bert)
    with started.server:
        yield started
        assert started.server.stdin is not None
        started.server.stdin.close()
