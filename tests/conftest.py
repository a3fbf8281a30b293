"""Shared settings of the tests, a tiny encoder, and processes that may be killed."""

from __future__ import annotations

import json
import os
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

# A shared machine may be slow at any moment: no test fails for its time, and the same examples run
# everywhere. HYPOTHESIS_PROFILE=explore draws new ones.
slow_is_fine = [HealthCheck.too_slow]
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=slow_is_fine
)
settings.register_profile("explore", deadline=None, suppress_health_check=slow_is_fine)
settings.register_profile("quick", settings.get_profile("steady"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Left out by `make quick`: tests that start processes, compile, draw, fit many models, read large
# files, or use an encoder.
SLOW_FOLDERS = ("attack", "cli", "examples", "reproduce")
SLOW_FILES = (
    "classifier/test_odd_inputs.py",
    "classifier/test_predict.py",
    "corpora/test_pubmed.py",
    "data/test_corpus_formats.py",
    "data/test_damaged_files.py",
    "data/test_limits.py",
    "data/test_parallel.py",
    "losses/test_distributed.py",
    "losses/test_kernels.py",
    "losses/test_torch_manners.py",
    "models/test_new_kind.py",
    "report/test_figures.py",
    "report/test_page.py",
    "runs/test_model.py",
    "test_documents.py",
    "test_imports.py",
    "thresholds/test_selection.py",
    "training/test_processes.py",
)
SLOW_FIXTURES = {"children", "tiny_bert", "tiny_tokenizer", "shared"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        fixtures = set(getattr(item, "fixturenames", ()))
        if path.startswith(SLOW_FOLDERS) or path in SLOW_FILES or fixtures & SLOW_FIXTURES:
            item.add_marker("slow")


TINY_WORDS = ("and", "copper", "fell", "nickel", "of", "rose", "the", "tin", "wheat", "zinc")


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Callable[[], Any]:
    """Makes a Hugging Face tokenizer that knows TINY_WORDS: [CLS] words [SEP]."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}

    def make() -> Any:
        words = [*special.values(), *TINY_WORDS]
        core = Tokenizer(WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
        core.pre_tokenizer = Whitespace()
        core.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        names = {f"{name}_token": token for name, token in special.items()}
        return PreTrainedTokenizerFast(tokenizer_object=core, **names)

    return make


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Callable[[], Any]) -> Path:
    """The folder of a BERT with random weights that reads TINY_WORDS: no download."""
    import torch
    from transformers import BertConfig, BertModel

    folder: Path = tmp_path_factory.mktemp("tiny-bert")
    tiny_tokenizer().save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=4 + len(TINY_WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    return folder


class Children:
    """Jobs of children.py, each in a process."""

    def __init__(self, encoder: Path) -> None:
        program = Path(__file__).with_name("children.py")
        self.server = subprocess.Popen(
            [sys.executable, str(program), str(encoder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

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
