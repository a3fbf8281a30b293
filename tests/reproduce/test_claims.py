"""The paper's claims: seen where figures bear them out, not seen where they do not."""

from __future__ import annotations

import pytest

from longtail.reproduce.claims import (
    CLAIMS,
    CONFUSED,
    LOSSES,
    Above,
    Between,
    Claim,
    GainsMore,
    Gap,
    Near,
    Seen,
    claims_about,
    paper_figures,
)

# What the paper says of PubMed and its own table does not show.
CONTRADICTED = (
    "All other losses (but BCE) are better than FL on medium and tail labels",
    "DB is the best loss in every set of labels",
)


@pytest.mark.parametrize("corpus", ["reuters", "pubmed"])
def test_the_papers_own_tables_bear_out_its_claims(corpus: str) -> None:
    pairs = {row: list(CONFUSED[corpus]) for row in LOSSES}
    errors = {row: 9.0 if row == "bce" else 3.0 for row in LOSSES}
    linked = dict.fromkeys(CONFUSED[corpus], 1)
    seen = Seen(paper_figures(corpus), pairs, errors, linked)
    for claim in claims_about(corpus):
        outcome = claim.judge(seen)
        assert outcome.seen is (claim.text not in CONTRADICTED), (claim.text, outcome.because)
        assert outcome.because


def test_the_contradictions_are_named_with_their_figures() -> None:
    seen = Seen(paper_figures("pubmed"))
    found = {claim.text: claim.judge(seen).because for claim in claims_about("pubmed")}
    assert "CB 24.50, FL 26.39 (medium micro)" in found[CONTRADICTED[0]]
    assert "DB 62.39, NTR-FL 63.15 (head micro)" in found[CONTRADICTED[1]]


@pytest.mark.parametrize("corpus", ["reuters", "pubmed"])
def test_where_all_rows_are_alike_no_lead_is_seen(corpus: str) -> None:
    groups = paper_figures(corpus)["db"]
    figures = {row: dict.fromkeys(groups, (50.0, 50.0)) for row in ("svm", *LOSSES)}
    pairs = {row: [("a", "b"), ("a", "c"), ("b", "c")] for row in LOSSES}
    linked = {("a", "b"): 1, ("a", "c"): 0, ("b", "c"): 2}
    seen = Seen(figures, pairs, dict.fromkeys(LOSSES, 1.0), linked)
    near = ("about", "similar", "close to")
    for claim in claims_about(corpus):
        assert claim.judge(seen).seen is any(word in claim.text for word in near), claim.text


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text[:40])
def test_missing_rows_leave_a_claim_open(claim: Claim) -> None:
    assert claim.judge(Seen({})).seen is None
    corpus = claim.corpora[0]
    some = {row: cells for row, cells in paper_figures(corpus).items() if row not in ("db", "bce")}
    outcome = claim.judge(Seen(some))
    # One claim is about neither.
    assert outcome.seen is None or claim.text.startswith(("All other", "CB-NTR"))


def test_checks_at_their_edges() -> None:
    figures = {"a": {"all": (60.0, 40.0), "tail": (10.0, 0.4)}, "b": {"all": (59.0, 41.0)}}
    seen = Seen(figures)
    assert Above(("a",), ("b",), ("all",), (0,))(seen).seen
    assert not Above(("a",), ("b",), ("all",), (0,), by=1)(seen).seen
    assert Above(("a",), ("b",), ("all",), (1,), by=-1.5)(seen).seen
    assert Near(("a",), ("b",), ("all",), 1.0)(seen).seen
    assert not Near(("a",), ("b",), ("all",), 0.9)(seen).seen
    assert Gap(("a",), 19)(seen).seen and not Gap(("a", "b"), 18)(seen).seen
    assert Between("a", ("tail",), high=0.5, measures=(1,))(seen).seen
    assert not Between("a", ("tail",), high=0.5)(seen).seen
    with pytest.raises(KeyError):
        GainsMore("a", "b", ("tail",), "all")(seen)
