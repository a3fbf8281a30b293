"""LOSSES, the table of losses by name, and `build_loss`.

The paper's eight rows are eight settings of one module. A new loss is one row here, plus a module
in `modules` if its maths is new; the command, docs/losses.md and the tests follow. The table
imports no torch, so that the command checks names fast.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from longtail.errors import InputError, UnknownNameError, known_name
from longtail.settings import Grid, Range, Searched

if TYPE_CHECKING:
    from longtail.labels import LabelStats
    from longtail.losses.base import MultiLabelLoss

__all__ = ["CONSTANTS", "LOSSES", "LossRow", "build_loss", "list_losses"]

# The paper's constants by corpus; they differ only in mu.
CONSTANTS: Mapping[str, Mapping[str, float]] = {
    corpus: dict(gamma=2, cb_beta=0.9, alpha=0.1, beta=10, mu=mu, kappa=0.05, lambda_=2)
    for corpus, mu in (("reuters", 0.9), ("pubmed", 0.05))
}

# What a search tries for the constants of the paper's family: from off, or a tenth, to twice or ten
# times the paper's value; cb_beta as in Cui et al.; mu from the data, or from one to the other of
# the paper's two.
SEARCHED: Mapping[str, Searched] = {
    "gamma": Range(0.0, 4.0),
    "cb_beta": Grid((0.9, 0.99, 0.999, 0.9999)),
    "alpha": Range(0.01, 1.0, log=True),
    "beta": Range(1.0, 100.0, log=True),
    "mu": Grid(("auto", 0.05, 0.25, 0.5, 0.75, 0.9)),
    "kappa": Range(0.005, 0.5, log=True),
    "lambda_": Range(1.0, 4.0),
}

HUANG = "Huang et al., EMNLP 2021"
CUI = "Cui et al., CVPR 2019"
WU = "Wu et al., ECCV 2020"


@dataclass(frozen=True)
class LossRow:
    """A row of LOSSES: a module, its constants and its description."""

    title: str
    formula: str
    paper: str
    when: str
    class_name: str = "BalancedLoss"
    constants: Mapping[str, Any] = field(default_factory=dict)
    needs_stats: bool = False
    published: bool = False
    """Whether CONSTANTS apply; the kappa of another loss is not the paper's."""
    searched: Mapping[str, Searched] = field(default_factory=dict)
    """What `longtail search` tries for the constants."""

    @property
    def is_ablation(self) -> bool:
        """Whether it is a loss of the paper without the focal factor, which gamma=0 gives too."""
        return self.published and self.needs_stats and not self.constants["gamma"]

    @property
    def module(self) -> type[MultiLabelLoss]:
        """The class of `longtail.losses.modules`."""
        from longtail.losses import modules

        loss: type[MultiLabelLoss] = getattr(modules, self.class_name)
        return loss


def _balanced(
    title: str, formula: str, paper: str, when: str, *, focal: bool = True, ntr: bool = False,
    weighting: str = "none",
) -> LossRow:  # fmt: skip
    """Return a row of the paper's family: three switches with the paper's constants."""
    constants: dict[str, Any] = {"gamma": 2.0 if focal else 0.0, "weighting": weighting}
    if ntr:
        constants |= {"kappa": 0.05, "lambda_": 2.0}
    if weighting == "class-balanced":
        constants |= {"cb_beta": 0.9}
    if weighting == "rebalanced":
        constants |= {"alpha": 0.1, "beta": 10.0, "mu": "auto"}
    needs_stats = ntr or weighting != "none"
    searched = {key: SEARCHED[key] for key in constants if key in SEARCHED}
    if not focal:
        del searched["gamma"]
    return LossRow(
        title, formula, paper, when, "BalancedLoss", constants, needs_stats, True, searched
    )


LOSSES: Mapping[str, LossRow] = {
    "bce": _balanced(
        "binary cross-entropy", "-log p | -log(1-p)", "standard",
        "a baseline; labels of similar frequency", focal=False,
    ),
    "fl": _balanced(
        "focal loss", "-(1-p)^g log p | -p^g log(1-p)", "Lin et al., ICCV 2017",
        "many easy negatives; label counts unavailable",
    ),
    "cb": _balanced(
        "class-balanced focal loss", "r_CB x fl", CUI,
        "different label counts; labels that seldom co-occur", weighting="class-balanced",
    ),
    "r-fl": _balanced(
        "rebalanced focal loss", "r_DB x fl", WU,
        "rare labels that co-occur with frequent ones", weighting="rebalanced",
    ),
    "ntr-fl": _balanced(
        "negative-tolerant focal loss", "fl on q = sigmoid(z - v) | sigmoid(l (z - v)) / l", WU,
        "rare labels dominated by negatives", ntr=True,
    ),
    "db-0fl": _balanced(
        "distribution-balanced loss without focal factor", "r_DB x ntr-bce", HUANG,
        "an ablation of db", focal=False, ntr=True, weighting="rebalanced",
    ),
    "cb-ntr": _balanced(
        "class-balanced negative-tolerant focal loss", "r_CB x ntr-fl", HUANG,
        "a long tail; best micro-F1 in the paper", ntr=True, weighting="class-balanced",
    ),
    "db": _balanced(
        "distribution-balanced loss", "r_DB x ntr-fl", f"{WU}; {HUANG}",
        "a long tail with co-occurring labels; the default of encoders",
        ntr=True, weighting="rebalanced",
    ),
    "cb-bce": _balanced(
        "class-balanced binary cross-entropy", "r_CB x bce", CUI,
        "an ablation of cb", focal=False, weighting="class-balanced",
    ),
    "r-bce": _balanced(
        "rebalanced binary cross-entropy", "r_DB x bce", WU,
        "an ablation of r-fl", focal=False, weighting="rebalanced",
    ),
    "ntr-bce": _balanced(
        "negative-tolerant binary cross-entropy", "bce on q, as in ntr-fl", WU,
        "an ablation of ntr-fl", focal=False, ntr=True,
    ),
    "asl": LossRow(
        "asymmetric loss", "-(1-p)^g+ log p | -p_m^g- log(1-p_m), p_m = max(p-m, 0)",
        "Ridnik et al., ICCV 2021", "very many easy negatives per document", "AsymmetricLoss",
        {"gamma_positive": 1.0, "gamma_negative": 4.0, "margin": 0.05},
        searched={
            "gamma_positive": Range(0.0, 2.0), "gamma_negative": Range(0.0, 8.0),
            "margin": Range(0.0, 0.1),
        },
    ),
    "hill": LossRow(
        "Hill loss", "-(1-p')^g log p', p' = sigmoid(z-1) | (1.5-p) p^2",
        "Zhang et al., arXiv:2112.07368", "labels missing from the annotation", "HillLoss",
        {"gamma": 2.0, "margin": 1.0, "peak": 1.5},
        searched={
            "gamma": SEARCHED["gamma"], "margin": Range(0.0, 2.0), "peak": Range(1.0, 3.0),
        },
    ),
    "zlpr": LossRow(
        "zero-bounded log-sum-exp pairwise rank loss",
        "log(1 + sum_neg e^z) + log(1 + sum_pos e^-z)", "Su et al., arXiv:2208.02955",
        "ranking; predictions without tuned thresholds", "ZLPRLoss",
    ),
    "two-way": LossRow(
        "two-way multi-label loss",
        "softplus(T- lse_neg(z/T-) + T+ lse_pos(-z/T+)), over labels and over documents",
        "Kobayashi, CVPR 2023", "large batches with several documents per label", "TwoWayLoss",
        {"positive_temperature": 4.0, "negative_temperature": 1.0},
        searched={
            "positive_temperature": Range(0.4, 40.0, log=True),
            "negative_temperature": Range(0.1, 10.0, log=True),
        },
    ),
    "dice": LossRow(
        "soft Dice loss", "1 - (2 sum p y + s) / (sum p^2 + sum y^2 + s)",
        "Milletari et al., 3DV 2016; Li et al., ACL 2020",
        "fine-tuning for F1 after another loss", "DiceLoss", {"smooth": 1.0},
        searched={"smooth": Range(0.1, 10.0, log=True)},
    ),
    "logit-adjusted": LossRow(
        "logit-adjusted binary cross-entropy", "bce on z + tau logit(n/N)",
        "Menon et al., ICLR 2021",
        "macro-averaged metrics, at the cost of micro-F1", "BalancedLoss",
        {"gamma": 0.0, "weighting": "none", "kappa": 1.0}, needs_stats=True,
        searched={"tau": Range(0.0, 2.0)},
    ),
    "pw-bce": LossRow(
        "propensity-weighted binary cross-entropy", "-(2/p_i - 1) log p | -log(1-p)",
        "Qaraei et al., WWW 2021", "rare labels missing from the annotation; PSP@k",
        "BalancedLoss",
        {"weighting": "propensity", "propensity_a": 0.55, "propensity_b": 1.5}, needs_stats=True,
    ),
    "squared-hinge": LossRow(
        "squared hinge loss", "max(0, 1 - z)^2 | max(0, 1 + z)^2", "Fan et al., JMLR 2008",
        "a linear head on sparse features, like a linear SVM", "SquaredHingeLoss",
    ),
}  # fmt: skip


def list_losses() -> list[str]:
    """Return the names of all losses, the paper's rows first."""
    return list(LOSSES)


def build_loss(
    name: str, stats: LabelStats | None = None, *, constants: str | None = None, **overrides: Any
) -> MultiLabelLoss:
    """Build a loss by name.

    Args:
        name: a name of `list_losses()`, in any case.
        stats: LabelStats of the training documents, required by balancing losses.
        constants: "reuters" or "pubmed" for the paper's exact constants. Default: the same, but mu
            from the data: (mean(r) + median(r)) / 2 over all positive pairs of a document and a
            label, or, if stats come from counts alone, n_samples / total count.
        overrides: any argument of the module, such as gamma=1, reduction="batchmean". `tau` is the
            strength of "logit-adjusted".

    Example:
        >>> import torch
        >>> from longtail import LabelStats, build_loss
        >>> stats = LabelStats.from_counts([900, 9], n_samples=1000)
        >>> loss = build_loss("db", stats, reduction="batchmean")
        >>> loss(torch.zeros(4, 2), torch.tensor([[1, 0]] * 4)).shape
        torch.Size([])
    """
    from longtail.labels import LabelStats
    from longtail.losses.base import MultiLabelLoss

    name = known_name("loss", name, LOSSES)
    row = LOSSES[name]
    if stats is not None and not isinstance(stats, LabelStats):
        raise InputError(
            f"stats must be a LabelStats, got {type(stats).__name__}. Use "
            "LabelStats.from_matrix(Y), .from_lists(labels) or .from_counts(counts, n_samples)."
        )
    settings = dict(row.constants)
    if constants is not None:
        if constants not in CONSTANTS:
            raise UnknownNameError("set of constants", constants, CONSTANTS)
        if not row.published:
            raise InputError(
                f"the constants of {constants!r} are those of the paper's losses; {name!r} has "
                "others. Leave constants out."
            )
        # Only constants of switches that the row turns on.
        settings |= {k: v for k, v in CONSTANTS[constants].items() if settings.get(k)}
    if name == "logit-adjusted" and "tau" in overrides:
        overrides["kappa"] = overrides.pop("tau")
    known = {
        *inspect.signature(row.module).parameters,
        *inspect.signature(MultiLabelLoss).parameters,
    }
    known -= {"label_counts", "n_samples", "common"}
    for key in overrides.keys() - known:
        raise UnknownNameError(f"argument of loss {name!r}:", key, known)
    settings |= overrides
    if row.class_name == "BalancedLoss":
        if settings["weighting"] == "rebalanced":
            settings.setdefault("mu", "auto")
        if isinstance(mu := settings.get("mu"), str) and mu == "auto":
            # Without statistics the module itself asks for them.
            settings["mu"] = 0.0 if stats is None else stats.mu
        if stats is not None:
            settings |= {"label_counts": stats.label_counts, "n_samples": stats.n_samples}
    loss = row.module(**settings)
    # Also for losses without counts: the statistics fix the label set.
    return loss if stats is None else loss.for_labels(stats.n_labels)
