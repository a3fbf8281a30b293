"""Statistics of a corpus: each formula against a plain loop, and the known figures of Reuters."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics as stdlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import chi2_contingency

from longtail.analysis import linked_pairs, measures, stats
from longtail.analysis.measures import (
    imbalance_ratios,
    log_likelihood_ratio,
    proportion_z,
    scumble,
)
from longtail.data import TextData, load_data
from longtail.errors import InputError

from ..data.cases import peak_of

ROOT = Path(__file__).parents[2]
REUTERS = Path(os.environ.get("LONGTAIL_SHARED", ROOT.parent / "shared"), "corpora", "reuters")
NAMES = tuple("abcdef")
Lists = list[list[str]]
Documents = list[tuple[str, list[str]]]

label_lists = st.lists(st.lists(st.sampled_from(NAMES), unique=True), min_size=1, max_size=25)
documents = st.lists(
    st.tuples(
        st.sampled_from(["Gold up", "gold  UP", " gold\nup ", "tin", "", " ", "Straße", "STRASSE"]),
        st.lists(st.sampled_from(NAMES[:3]), unique=True).map(sorted),
    ),
    min_size=1,
    max_size=15,
)


def make(pairs: Documents, **more: Any) -> TextData:
    return TextData.from_lists([text for text, _ in pairs], [labels for _, labels in pairs], **more)


def from_labels(lists: Lists, names: tuple[str, ...] = NAMES) -> TextData:
    return TextData.from_lists([f"text {k}" for k in range(len(lists))], lists, names)


@given(documents)
def test_sizes_of_a_part(pairs: Documents) -> None:
    result = stats({"train": make(pairs, label_names=NAMES)})["parts"]["train"]
    numbers = [len(labels) for _, labels in pairs]
    words = sorted(len(text.split()) for text, _ in pairs)
    assert (result["documents"], result["assignments"]) == (len(pairs), sum(numbers))
    assert result["labels"] == len({name for _, labels in pairs for name in labels})
    assert (result["unlabelled"], result["single_label"]) == (numbers.count(0), numbers.count(1))
    assert result["multi_label"] == sum(number > 1 for number in numbers)
    assert result["cardinality"] == pytest.approx(sum(numbers) / len(pairs))
    assert result["density"] == pytest.approx(sum(numbers) / len(pairs) / len(NAMES))
    assert result["max_labels"] == max(numbers)
    assert result["label_sets"] == len({tuple(labels) for _, labels in pairs if labels})
    assert result["without_text"] == words.count(0)
    assert result["words"]["mean"] == pytest.approx(sum(words) / len(words))
    assert result["words"]["median"] == stdlib.median(words)
    assert result["words"]["max"] == words[-1]
    place = 0.95 * (len(words) - 1)
    low, high = words[math.floor(place)], words[math.ceil(place)]
    assert result["words"]["q95"] == pytest.approx(low + (high - low) * (place % 1))


@given(label_lists)
def test_imbalance_is_that_of_charte_et_al(lists: Lists) -> None:
    count = Counter(name for labels in lists for name in labels)
    assume(count)
    data = from_labels(lists)
    result = stats({"train": data})["labels"]
    ratio = {name: max(count.values()) / n for name, n in count.items()}
    counts = [count[name] for name in NAMES]
    assert imbalance_ratios(counts).tolist() == [ratio[name] for name in NAMES if name in ratio]
    assert result["mean_ir"] == pytest.approx(stdlib.mean(ratio.values()))
    assert result["max_ir"] == max(ratio.values())
    if len(ratio) > 1:
        expected = stdlib.stdev(ratio.values()) / stdlib.mean(ratio.values())
        assert result["cvir"] == pytest.approx(expected)
    else:
        assert result["cvir"] is None
    mixed = 0.0
    for labels in lists:
        if labels:
            values = [ratio[name] for name in labels]
            mixed += 1 - math.prod(values) ** (1 / len(values)) / stdlib.mean(values)
    assert result["scumble"] == pytest.approx(mixed / len(lists), abs=1e-12)
    assert scumble(data.Y.astype(bool)) == pytest.approx(result["scumble"])
    # Gini: half the mean absolute difference over the mean.
    apart = sum(abs(x - y) for x in counts for y in counts) / len(counts) ** 2
    assert result["gini"] == pytest.approx(apart / (2 * stdlib.mean(counts)))


def g2(both: int, a: int, b: int, n: int) -> float:
    table = [[both, a - both], [b - both, n - a - b + both]]
    return float(chi2_contingency(table, correction=False, lambda_="log-likelihood")[0])


@given(label_lists, st.integers(0, 20), st.sampled_from([1, 3, 10**6]))
def test_linked_pairs_are_the_strongest_by_a_plain_loop(
    lists: Lists, n_pairs: int, block: int
) -> None:
    count = Counter(name for labels in lists for name in labels)
    shared = Counter(pair for labels in lists for pair in itertools.combinations(sorted(labels), 2))
    expected = {
        pair: g2(both, count[pair[0]], count[pair[1]], len(lists))
        for pair, both in shared.items()
        if both * len(lists) > count[pair[0]] * count[pair[1]]
    }
    data = from_labels(lists)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "BLOCK_ELEMENTS", block)
        result = linked_pairs(data.Y, NAMES, n_pairs)
    strongest = sorted(expected.values(), reverse=True)[:n_pairs]
    assert [pair.g2 for pair in result] == pytest.approx(strongest, abs=1e-9)
    assert len({(pair.a, pair.b) for pair in result}) == len(result)
    for pair in result:
        key = tuple(sorted((pair.a, pair.b)))
        assert expected[key] == pytest.approx(pair.g2, abs=1e-9)  # type: ignore[index]
        assert (pair.count_a, pair.count_b) == (count[pair.a], count[pair.b])
        assert pair.count_a >= pair.count_b
        assert pair.shared == shared[key]  # type: ignore[index]
        assert pair.p_a_given_b == pytest.approx(pair.shared / pair.count_b)
        assert pair.p_b_given_a == pytest.approx(pair.shared / pair.count_a)


def test_neither_a_pair_seen_once_nor_frequent_labels_win() -> None:
    lists = [["metal", "nickel"]] * 8 + [["once", "alone"]] + [["big", "huge"]] * 60
    lists += [["big"]] * 200 + [["huge"]] * 40 + [["metal"]] * 4 + [[]] * 20
    names = tuple(sorted({name for labels in lists for name in labels}))
    result = linked_pairs(from_labels(lists, names).Y, names)
    assert [(pair.a, pair.b) for pair in result] == [("metal", "nickel"), ("alone", "once")]
    # big and huge would share 260 * 100 / 333 = 78 documents by chance: no association.
    assert log_likelihood_ratio(60, 260, 100, 333) > result[1].g2


def test_many_labels_need_no_dense_matrix() -> None:
    # A dense labels x labels matrix of 60,000 labels would take 28.8 GB.
    rng = np.random.default_rng(0)
    n_documents, n_labels = 4_000, 60_000
    columns = rng.integers(n_labels, size=30 * n_documents)
    rows = np.repeat(np.arange(n_documents), 30)
    Y = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(n_documents, n_labels))
    Y.data[:] = 1
    names = tuple(map(str, range(n_labels)))
    assert peak_of(lambda: linked_pairs(Y, names, 5)) < 160e6


def folded(text: str) -> str:
    return " ".join(text.casefold().split())


@given(documents, documents)
def test_duplicates_and_leaks(train: Documents, test: Documents) -> None:
    parts = {"train": make(train, label_names=NAMES), "test": make(test, label_names=NAMES)}
    result = stats(parts)["duplicates"]
    assert result["train"]["copies"] == len(train) - len({folded(text) for text, _ in train})
    assert result["train"]["in_train"] is None
    known = {folded(text) for text, _ in train}
    leaked = [row for row, (text, _) in enumerate(test) if folded(text) in known]
    assert result["test"]["in_train"] == len(leaked)
    both = {(folded(text), *labels) for text, labels in train}
    same = [row for row in leaked if (folded(test[row][0]), *test[row][1]) in both]
    assert result["test"]["in_train_same_labels"] == len(same)
    assert [leak["document"] for leak in result["test"]["examples"]] == leaked[:5]
    for leak in result["test"]["examples"]:
        assert isinstance(leak["document"], int) and isinstance(leak["train_document"], int)
        first = [folded(text) for text, _ in train].index(folded(test[leak["document"]][0]))
        assert leak["train_document"] == first
        assert leak["same_labels"] == (leak["document"] in same)
    assert result["test"]["repeated_ids"] is None and result["test"]["ids_in_train"] is None


def test_ids_and_labels_are_compared_across_label_sets() -> None:
    # The columns of the two parts differ in number and order; b is column 1 here, 0 there.
    train = make([("X", ["a", "b"]), ("y", ["b"])], ids=["1", "1"])
    test = make(
        [("x", ["b", "a"]), ("y", ["c"]), ("z", ["c"])],
        label_names=["c", "b", "a"],
        ids=["1", "7", "8"],
    )
    result = stats({"test": test, "train": train})
    assert list(result["parts"]) == ["train", "test"]
    copies = result["duplicates"]["test"]
    assert (copies["in_train"], copies["in_train_same_labels"]) == (2, 1)
    assert [tuple(leak.values()) for leak in copies["examples"]] == [
        ("1", "1", True),
        ("7", "1", False),
    ]
    assert result["duplicates"]["train"]["repeated_ids"] == 1
    assert (copies["repeated_ids"], copies["ids_in_train"]) == (0, 1)
    assert result["labels"]["labels"] == 2
    assert result["parts"]["test"]["density"] == pytest.approx(4 / 3 / 3)
    drift = result["drift"]["test"]
    assert (drift["new_labels"], drift["new_assignments"], drift["new_examples"]) == (1, 2, ["c"])


@given(label_lists, label_lists)
def test_labels_that_come_and_go(train: Lists, test: Lists) -> None:
    result = stats({"train": from_labels(train), "test": from_labels(test)})["drift"]["test"]
    before = Counter(name for labels in train for name in labels)
    after = Counter(name for labels in test for name in labels)
    new = [name for name in NAMES if after[name] and not before[name]]
    assert result["new_labels"] == len(new)
    assert result["new_assignments"] == sum(after[name] for name in new)
    assert list(result["new_examples"]) == sorted(new, key=lambda name: -after[name])[:5]
    assert result["absent_labels"] == sum(1 for name in NAMES if before[name] and not after[name])
    if not before or not after:
        assert result["js_distance"] is None and result["js_by_chance"] is None
        return
    p, q = ([counts[name] for name in NAMES] for counts in (before, after))
    # scipy gives NaN if rounding makes a divergence negative.
    assert result["js_distance"] == pytest.approx(np.nan_to_num(jensenshannon(p, q, 2)), abs=1e-7)
    assert result["js_by_chance"] is not None and 0 <= result["js_by_chance"] <= 1


@given(
    st.integers(1, 400),
    st.integers(1, 400),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5),
)
def test_z_scores(n_before: int, n_after: int, shares: list[tuple[float, float]]) -> None:
    before = np.array([round(share * n_before) for share, _ in shares], dtype=float)
    after = np.array([round(share * n_after) for _, share in shares], dtype=float)
    for x, y, z in zip(before, after, proportion_z(before, n_before, after, n_after), strict=True):
        pooled = (x + y) / (n_before + n_after)
        if min(pooled, 1 - pooled) * min(n_before, n_after) < 5:
            assert np.isnan(z)
            continue
        spread = math.sqrt(pooled * (1 - pooled) / n_before + pooled * (1 - pooled) / n_after)
        assert z == pytest.approx((y / n_after - x / n_before) / spread)


def test_drift_names_what_changed_and_by_how_much() -> None:
    train = [["a"]] * 500 + [["b"]] * 400 + [["c"]] * 100
    test = [["a"]] * 100 + [["b"]] * 320 + [["c"]] * 80
    names = ("a", "b", "c")
    parts = {"train": from_labels(train, names), "test": from_labels(test, names)}
    drift = stats(parts | {"validation": from_labels(train[::2], names)})["drift"]
    assert drift["validation"]["changed"] == 0
    assert drift["validation"]["js_distance"] == pytest.approx(0, abs=1e-7)
    changes = [(c["label"], c["train_share"], c["share"]) for c in drift["test"]["changes"]]
    assert changes == [("a", 0.5, 0.2), ("b", 0.4, 0.64), ("c", 0.1, 0.16)]
    assert drift["test"]["changes"][0]["z"] < -8 < 8 < drift["test"]["changes"][1]["z"]
    # c: 10 % to 16 %, z = 3.4, against a limit of 2.4 for three labels.
    assert drift["test"]["changed"] == 3
    assert drift["test"]["js_distance"] > 3 * drift["test"]["js_by_chance"]  # type: ignore[operator]


def test_a_random_split_has_the_distance_of_chance() -> None:
    rng = np.random.default_rng(1)
    names = tuple(f"l{k:03d}" for k in range(300))
    drifts = []
    for _ in range(10):
        lists = [[names[int(300 * rng.random() ** 3)]] for _ in range(1500)]
        first, second = from_labels(lists[:1200], names), from_labels(lists[1200:], names)
        drifts.append(stats({"train": first, "test": second})["drift"]["test"])
    seen, chance = (
        np.mean([drift[key] for drift in drifts]) for key in ("js_distance", "js_by_chance")
    )
    assert seen == pytest.approx(chance, rel=0.05)
    # One in twenty such splits may have a significant label by chance.
    assert sum(drift["changed"] for drift in drifts) <= 1


def test_the_smallest_data() -> None:
    data = TextData.from_lists(["\ud800"], [[]], ["never"])
    result = stats({"train": data, "test": data[:0]})
    labels, part = result["labels"], result["parts"]["test"]
    assert [labels[key] for key in ("mean_ir", "max_ir", "cvir")] == [None] * 3
    assert labels["groups"]["medium"]["share"] is None and labels["scumble"] == 0
    assert part["cardinality"] is None and part["words"]["q95"] is None
    drift = result["drift"]["test"]
    assert drift["js_distance"] is None and drift["changes"] == result["linked"] == []
    assert stats({"train": data})["drift"] == {}
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_unusable_parts_are_refused() -> None:
    data = from_labels([["a"]])
    for parts, cuts, message in (
        ({"test": data}, None, "expected a part named 'train', got test"),
        ({}, None, "got no parts"),
        ({"train": TextData.from_lists(["x"], [[]])}, None, "at least one label"),
        ({"train": data}, (3, 1), "in ascending order"),
    ):
        with pytest.raises(InputError, match=message):
            stats(parts, cuts=cuts)


@pytest.mark.skipif(not REUTERS.exists(), reason="set LONGTAIL_SHARED to where corpora/reuters is")
def test_the_known_figures_of_reuters() -> None:
    result = stats(load_data(REUTERS))
    parts = result["parts"]
    assert [part["documents"] for part in parts.values()] == [6769, 1000, 3019]
    assert sum(part["assignments"] for part in parts.values()) == 13328
    whole = sum(part["assignments"] for part in parts.values()) / 10788
    assert whole == pytest.approx(1.235446792732666)
    assert (parts["test"]["single_label"], parts["test"]["multi_label"]) == (2583, 436)
    assert parts["train"]["cardinality"] == pytest.approx(8337 / 6769)
    labels = result["labels"]
    assert (labels["labels"], labels["unseen"]) == (90, 0)
    assert list(labels["quantiles"]) == ["0.25", "0.33", "0.5", "0.66", "0.75"]
    assert list(labels["quantiles"].values()) == pytest.approx([5, 9, 17.5, 33.74, 59.75])
    sizes = {name: group["labels"] for name, group in labels["groups"].items()}
    assert sizes == {"head": 30, "medium": 31, "tail": 29}
    assert labels["mu"] == pytest.approx(0.9059, abs=1e-4) and labels["mu_source"] == "pairs"
    assert [(pair["a"], pair["b"]) for pair in result["linked"][:2]] == [
        ("grain", "wheat"),
        ("grain", "corn"),
    ]
    assert result["duplicates"]["test"]["in_train"] == 5
    assert result["drift"]["test"]["new_labels"] == 0
