"""One optimizer step of Hugging Face's Trainer is the same however it is cut into micro-batches.

The Trainer sums what `compute_loss_func` returns and never divides by the number of micro-batches;
`as_hf` has to know. Each step is compared with one made by hand on the whole batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from longtail.labels import LabelStats
from longtail.losses import build_loss
from longtail.losses.modules import MultiLabelLoss

N_DOCUMENTS, N_LABELS = 8, 5
STATS = LabelStats.from_counts([7, 1, 30, 3, 20], n_samples=40)
CUTS = [(8, 1), (2, 4)]
LEARNING_RATE = 0.5


def make_model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=N_LABELS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForSequenceClassification(config)


def make_documents() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 32, (N_DOCUMENTS, 6), generator=generator)
    return tokens, (torch.rand(N_DOCUMENTS, N_LABELS, generator=generator) < 0.4).float()


def trainer_step(
    folder: Path,
    compute_loss: Callable[..., Tensor],
    tokens: Tensor,
    labels: Tensor,
    cut: tuple[int, int],
) -> dict[str, Tensor]:
    """The model's weights after one step of the Trainer over all documents."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    arguments = TrainingArguments(
        str(folder),
        max_steps=1,
        per_device_train_batch_size=cut[0],
        gradient_accumulation_steps=cut[1],
        max_grad_norm=0.0,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    documents: Any = [
        {"input_ids": row, "labels": target} for row, target in zip(tokens, labels, strict=True)
    ]
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=documents,
        optimizers=(optimizer, constant),
        compute_loss_func=compute_loss,
    )
    trainer.train()
    assert trainer.state.global_step == 1
    return model.state_dict()


def step_by_hand(
    loss: MultiLabelLoss, tokens: Tensor, labels: Tensor, mask: Tensor | None = None
) -> dict[str, Tensor]:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loss(model(input_ids=tokens).logits, labels, mask=mask).backward()
    optimizer.step()
    return model.state_dict()


def check_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    before = make_model().state_dict()
    moved = 0.0
    for name, weight in expected.items():
        torch.testing.assert_close(actual[name], weight, rtol=1e-4, atol=1e-6, msg=name)
        moved = max(moved, float((weight - before[name]).abs().max()))
    # A step that moves nothing would agree with anything.
    assert moved > 1e-3


def uneven_mask() -> Tensor:
    """Documents with every label ignored, documents with none ignored, and all between."""
    shape = (N_DOCUMENTS, N_LABELS)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(4)) < 0.5
    mask[:2], mask[-2:] = False, True
    return mask


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(
    ("name", "reduction", "ignored"),
    [
        ("bce", "mean", False),
        ("db", "mean", False),
        ("db", "batchmean", False),
        ("db", "sum", False),
        ("zlpr", "mean", False),
        # Labels of -100.
        ("db", "mean", True),
        ("db", "sum", True),
        ("asl", "mean", True),
    ],
)
def test_a_step_is_the_same_however_it_is_cut(
    name: str, reduction: str, ignored: bool, cut: tuple[int, int], tmp_path: Path
) -> None:
    loss = build_loss(name, STATS, reduction=reduction)
    tokens, labels = make_documents()
    mask = uneven_mask() if ignored else None
    expected = step_by_hand(loss, tokens, labels, mask)
    marked = labels if mask is None else torch.where(mask, labels, -100.0)
    check_same(trainer_step(tmp_path, loss.as_hf(), tokens, marked, cut), expected)


@pytest.mark.parametrize("cut", CUTS)
def test_the_trainer_counts_what_the_loss_counts(cut: tuple[int, int], tmp_path: Path) -> None:
    loss = build_loss("db", STATS)
    tokens, labels = make_documents()
    mask = uneven_mask()
    as_hf, counts, values = loss.as_hf(), [], []

    def recorded(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        value = as_hf(outputs, labels, num_items_in_batch=num_items_in_batch)
        counts.append(int(num_items_in_batch))
        values.append(value.detach().clone())
        return value

    trainer_step(tmp_path, recorded, tokens, torch.where(mask, labels, -100.0), cut)
    assert counts == [int(mask.sum())] * cut[1]
    with torch.no_grad():
        whole = loss(make_model()(input_ids=tokens).logits, labels, mask=mask)
    torch.testing.assert_close(torch.stack(values).sum(), whole)


def test_the_mark_of_ignored_labels_is_the_trainers_alone() -> None:
    # Another mark would be masked here and counted there.
    assert not inspect.signature(build_loss("db", STATS).as_hf).parameters


@pytest.mark.parametrize("labels_dtype", [torch.float32, torch.int64])
def test_a_step_with_nothing_known_changes_nothing(
    labels_dtype: torch.dtype, tmp_path: Path
) -> None:
    tokens, _ = make_documents()
    unknown = torch.full((N_DOCUMENTS, N_LABELS), -100).to(labels_dtype)
    after = trainer_step(tmp_path, build_loss("db", STATS).as_hf(), tokens, unknown, (2, 4))
    for name, weight in make_model().state_dict().items():
        assert torch.equal(after[name], weight), name


def test_outside_the_trainer_the_loss_is_the_plain_one() -> None:
    loss = build_loss("db", STATS, reduction="batchmean")
    logits = torch.randn(3, N_LABELS, generator=torch.Generator().manual_seed(3))
    _, labels = make_documents()
    for outputs in ({"logits": logits}, (logits,)):
        assert torch.equal(loss.as_hf()(outputs, labels[:3]), loss(logits, labels[:3]))
