"""The paper's claims: seen where figures support them, and only there."""

from __future__ import annotations

import pytest

from longtail.reproduce.claims import (
    CLAIMS,
    CONFUSED,
    LOSSES,
    Evidence,
    decide,
    evaluate_claims,
    paper_figures,
)

# Claims about PubMed that the paper's own table contradicts, with the deciding figures.
CONTRADICTED = {
    "All other losses (but BCE) are better than FL on medium and tail labels": (
        "CB 24.50, FL 26.39 (medium micro)"
    ),
    "DB is the best loss in every set of labels": "DB 62.39, NTR-FL 63.15 (head micro)",
}


@pytest.mark.parametrize("corpus", ["reuters", "pubmed"])
def test_the_papers_own_tables_bear_out_its_claims(corpus: str) -> None:
    pairs = {row: list(CONFUSED[corpus]) for row in LOSSES}
    errors = {row: 9.0 if row == "bce" else 3.0 for row in LOSSES}
    linked = dict.fromkeys(CONFUSED[corpus], 1)
    evidence = Evidence(paper_figures(corpus), pairs, errors, linked)
    for claim in evaluate_claims(corpus, evidence):
        assert claim["seen"] is (claim["claim"] not in CONTRADICTED), claim
        assert claim["because"] and CONTRADICTED.get(claim["claim"], "") in claim["because"]


@pytest.mark.parametrize("corpus", ["reuters", "pubmed"])
def test_where_all_rows_are_alike_no_lead_is_seen(corpus: str) -> None:
    groups = paper_figures(corpus)["db"]
    figures = {row: dict.fromkeys(groups, (50.0, 50.0)) for row in ("svm", *LOSSES)}
    pairs = {row: [("a", "b"), ("a", "c"), ("b", "c")] for row in LOSSES}
    linked = {("a", "b"): 1, ("a", "c"): 0, ("b", "c"): 2}
    evidence = Evidence(figures, pairs, dict.fromkeys(LOSSES, 1.0), linked)
    near = ("about", "similar", "close to")
    for claim in evaluate_claims(corpus, evidence):
        assert claim["seen"] is any(word in claim["claim"] for word in near), claim


def test_missing_rows_leave_a_claim_open() -> None:
    for text, (check, corpora) in CLAIMS.items():
        assert decide(check, Evidence({})) == (None, ""), text
        paper = paper_figures(corpora[0])
        some = {row: cells for row, cells in paper.items() if row not in ("db", "bce")}
        # Two claims involve neither.
        assert decide(check, Evidence(some))[0] is None or text.startswith(("All other", "CB-NTR"))


def test_checks_at_their_edges() -> None:
    figures = {"a": {"all": (60.0, 40.0), "tail": (10.0, 0.4)}, "b": {"all": (59.0, 41.0)}}
    evidence = Evidence(figures)
    above = (("a",), ("b",), ("all",))
    assert evidence.above(*above, (0,))[0]
    assert not evidence.above(*above, (0,), by=1)[0]
    assert evidence.above(*above, (1,), by=-1.5)[0]
    assert evidence.near(*above, 1.0)[0] and not evidence.near(*above, 0.9)[0]
    assert evidence.gap(("a",), 19)[0] and not evidence.gap(("a", "b"), 18)[0]
    assert evidence.between("a", ("tail",), high=0.5, measures=(1,))[0]
    assert not evidence.between("a", ("tail",), high=0.5)[0]
    with pytest.raises(KeyError):
        evidence.gains_more("a", "b", ("tail",), "all")
