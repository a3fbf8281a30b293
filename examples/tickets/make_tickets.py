"""Write a CSV of support tickets of an imaginary web shop, for the tutorial.

python examples/tickets/make_tickets.py tickets.csv --documents 2000
python examples/tickets/make_tickets.py new.csv --documents 500 --seed 1 --without-labels

The tickets are random words from a seed. A few labels are frequent and most are rare, some labels
imply others, texts use other words than the label names, and some labels are missing.
"""

from __future__ import annotations

import argparse
import csv
import random
from datetime import date, timedelta

# Label -> words that customers use for it, from the most frequent label to the rarest.
WORDS = {
    "order": "order ordered purchase basket bought item",
    "shipping": "parcel delivery courier shipment post arrive doorstep tracking",
    "billing": "charged charge paid amount card statement money",
    "account": "account profile settings username registered membership",
    "login": "login password sign locked access credentials forgot reset",
    "refund": "refund reimburse money back repay credited",
    "return": "return send back exchange label unwanted",
    "damaged": "broken cracked scratched damaged dented torn smashed",
    "late": "late delayed still waiting weeks overdue yesterday",
    "app": "app phone android iphone tablet install update screen",
    "invoice": "invoice receipt tax bill document accounting",
    "voucher": "voucher code discount coupon promotion percent",
    "wrong-item": "wrong different size colour instead received mistake",
    "warranty": "warranty guarantee repair stopped months fault",
    "website": "page website browser button error loading checkout",
    "email": "email newsletter unsubscribe spam message inbox confirmation",
    "payment-failed": "declined payment failed rejected transaction bank",
    "cancel": "cancel cancelled stop order withdraw mind",
    "missing-part": "missing screws manual cable part incomplete lid",
    "address": "address moved street postcode flat recipient",
    "double-charge": "twice double charged two statement duplicate",
    "gift-card": "gift card balance birthday present redeem",
    "privacy": "data privacy delete personal consent stored",
    "customs": "customs duty border import abroad fee",
    "stock": "stock sold out available restock again",
    "fraud": "fraud stolen someone unknown suspicious police",
    "accessibility": "screen reader contrast blind keyboard font",
    "recall": "recall safety overheats burn hazard notice",
    "wholesale": "wholesale bulk reseller quantity pallet quote",
    "press": "journalist article interview press quote photo",
}
BRINGS = {
    "double-charge": "billing",
    "refund": "billing",
    "late": "shipping",
    "customs": "shipping",
    "wrong-item": "return",
    "payment-failed": "billing",
    "fraud": "account",
    "missing-part": "order",
}
FILLER = (
    "hello please help i have a question about this and would like an answer soon thank you for "
    "your time my last message was not answered can you look into it the shop says nothing"
)
THINGS = "kettle lamp jacket chair headphones blender backpack keyboard tent mirror"
FORGOTTEN = 0.08
"""Share of the labels that are missing."""


def ticket(rng: random.Random) -> tuple[str, list[str]]:
    """The text of a ticket, and its labels."""
    names = list(WORDS)
    weights = [1 / (rank + 1.5) ** 1.1 for rank in range(len(names))]
    labels = set(rng.choices(names, weights, k=rng.choice((1, 1, 2))))
    labels |= {BRINGS[name] for name in sorted(labels) if name in BRINGS and rng.random() < 0.8}
    sentences = []
    for name in sorted(labels):
        words = rng.sample(WORDS[name].split(), rng.choice((1, 2, 2, 3)))
        # A word of another subject: people mention more than what they ask for.
        words += rng.choices(WORDS[rng.choice(names)].split(), k=rng.choice((0, 0, 1)))
        words += [*rng.sample(FILLER.split(), 6), *rng.sample(THINGS.split(), rng.choice((0, 1)))]
        rng.shuffle(words)
        sentences.append(" ".join(words).capitalize() + ".")
    rng.shuffle(sentences)
    kept = [name for name in sorted(labels) if rng.random() > FORGOTTEN]
    return " ".join(sentences), kept or sorted(labels)[:1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-labels", action="store_true")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    columns = ["id", "date", "text", "labels"][: 3 if arguments.without_labels else 4]
    with open(arguments.file, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for number in range(arguments.documents):
            text, labels = ticket(rng)
            day = date(2025, 1, 1) + timedelta(days=365 * number // arguments.documents)
            row = [f"T{number + 1}", day.isoformat(), text, ";".join(labels)]
            writer.writerow(row[: len(columns)])


if __name__ == "__main__":
    main()
