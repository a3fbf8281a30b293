"""The words of the made newswire: families of topics that share a vocabulary.

A family lists its topics from frequent to rare. `name:term,term` gives a topic and other words for
it; the nouns and scenes belong to the whole family, so they tell the family but not the topic.
"""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    name: str
    terms: tuple[str, ...]


class Family(NamedTuple):
    name: str
    topics: tuple[Topic, ...]
    nouns: tuple[str, ...]
    scenes: tuple[str, ...]
    leads: tuple[str, ...]


# What a story says about its topic; {term} is a word for the topic, {noun} one of its family.
QUANTITIES = (
    "{actor} said {term} {noun} {moved} {percent} pct in {period}",
    "{actor} expects {term} {noun} to stay firm until {period}",
    "{term} {noun} {moved} {percent} pct in {period}, {actor} said",
    "{actor} announced higher {term} {noun} at {place}",
    "{actor} reported {term} {noun} above last year's level",
)
EVENTS = (
    "{actor} said {term} {noun} will be settled in {place}",
    "{actor} expects news of {term} {noun} by {period}",
    "{term} {noun} dominated the week in {place}, {actor} said",
    "{actor} announced new {term} {noun} at {place}",
    "{actor} gave details of {term} {noun} in {place}",
)


def _family(
    name: str, topics: str, nouns: str, scenes: str, leads: tuple[str, ...] = QUANTITIES
) -> Family:
    parsed = []
    for entry in topics.split():
        topic, _, others = entry.partition(":")
        words = [topic, *others.split(",")] if others else [topic]
        parsed.append(Topic(topic, tuple(word.replace("-", " ") for word in words)))
    return Family(
        name,
        tuple(parsed),
        tuple(nouns.split(", ")),
        tuple(scenes.split(" | ")),
        leads,
    )


FAMILIES: tuple[Family, ...] = (
    _family(
        "earnings",
        "earnings:net-profit,quarterly-result dividend:payout,interim-distribution "
        "buyback:share-repurchase,treasury-stock writedown:impairment,asset-charge "
        "stock-split:bonus-shares,share-subdivision restatement:amended-accounts,audit-revision",
        "figures, guidance, outlook, statement, target, forecast",
        "Turnover at the group {moved} {percent} pct over the year | "
        "Shareholders will vote at the annual meeting in {place} | "
        "The board met in {place} to approve the accounts | "
        "Analysts had looked for a stronger quarter from the group",
    ),
    _family(
        "deals",
        "acquisition:takeover,purchase-agreement merger:combination,share-exchange "
        "divestiture:asset-sale,spin-off joint-venture:partnership,shared-company "
        "tender-offer:cash-bid,bid-for-shares leveraged-buyout:management-buyout,debt-funded-bid",
        "talks, terms, proposal, agreement, plan, document",
        "Completion is expected by {period}, subject to approval | "
        "Lawyers for both sides met in {place} | "
        "The stake would give the buyer {percent} pct of the voting shares | "
        "Regulators in {place} have asked for more papers",
        EVENTS,
    ),
    _family(
        "money",
        "interest:lending-rate,base-rate money-supply:broad-money,monetary-growth "
        "treasury-bill:bill-tender,short-paper reserves:foreign-holdings,reserve-assets "
        "discount-rate:rediscount,window-rate repo:repurchase-deal,overnight-funding",
        "policy, operations, conditions, target, decision, data",
        "The central bank in {place} drained liquidity for a second day | "
        "Overnight funds traded {percent} pct higher in early dealings | "
        "Money brokers expected a small shortage | "
        "Commercial banks took up most of the offered amount",
    ),
    _family(
        "trade",
        "trade:trade-balance,commerce tariff:customs-duty,import-levy "
        "export-subsidy:export-refund,restitution quota:import-ceiling,allocation "
        "embargo:sanctions,trade-ban dumping:unfair-pricing,injury-finding",
        "measures, dispute, talks, accord, ruling, proposal",
        "Ministers meeting in {place} made little progress | "
        "Exports from {place} {moved} {percent} pct in {period} | "
        "The trade delegation will return home tomorrow | "
        "Officials warned of retaliation by major partners",
        EVENTS,
    ),
    _family(
        "energy",
        "crude:oil-barrels,sweet-barrels natural-gas:gas-pipeline,liquefied-gas "
        "gasoline:motor-fuel,pump-fuel coal:colliery,steam-coal "
        "heating-oil:distillate,gasoil naphtha:cracker-feed,light-feedstock",
        "output, prices, supplies, stocks, demand, deliveries",
        "The refinery at {place} will close for repairs in {period} | "
        "Producers meeting in {place} kept their ceiling unchanged | "
        "Spot cargoes for {period} loading {moved} {percent} pct | "
        "Rigs at work in the {place} basin {moved} by {percent} pct",
    ),
    _family(
        "grains",
        "wheat:milling-grain,durum corn:maize,feed-grain barley:malting-grain,brewing-grain "
        "sorghum:milo,feed-millet oats:oat-crop,porridge-grain rye:ryegrain,black-bread-grain",
        "harvest, exports, prices, plantings, stocks, yields",
        "Farmers around {place} have finished most field work | "
        "The board bought grain for {period} shipment | "
        "Silos at {place} are {percent} pct full | "
        "Traders expected tenders from North African buyers",
    ),
    _family(
        "currency",
        "dollar:greenback,us-currency yen:japanese-currency,tokyo-currency "
        "sterling:pound,cable mark:bundesbank-currency,german-unit "
        "franc:paris-unit,swiss-unit rand:financial-rand,pretoria-unit",
        "rate, level, dealings, trading, movements, positions",
        "Central banks were seen selling in {place} | "
        "Dealers in {place} covered short positions before the weekend | "
        "Finance ministers want stable exchange rates | "
        "The currency index {moved} {percent} pct on the day",
    ),
    _family(
        "shipping",
        "shipping:vessels,fleet port-strike:dock-stoppage,stevedore-walkout "
        "freight-rates:charter-rates,hire-rates tanker:crude-carrier,very-large-carrier "
        "canal:waterway,lock-passage dry-dock:shipyard,hull-repair",
        "traffic, services, volume, schedules, costs, bookings",
        "Berths at {place} were crowded this week | "
        "Owners laid up {percent} pct of idle tonnage | "
        "Insurers raised cover for calls at {place} | "
        "Containers are being sent by way of {place}",
    ),
    _family(
        "metals",
        "copper:cathode,red-metal gold:bullion,gold-bars zinc:galvanising-metal,zinc-slab "
        "silver:silver-ounces,white-bullion nickel:ferronickel,nickel-matte "
        "palladium:catalyst-metal,palladium-sponge",
        "output, prices, concentrate, stocks, smelting, ore grades",
        "The smelter at {place} resumed work after repairs | "
        "Miners at the {place} pit return to work in {period} | "
        "Warehouse stocks in {place} {moved} {percent} pct | "
        "The refinery treats ore from the {place} belt",
    ),
    _family(
        "indicators",
        "inflation:consumer-prices,cost-of-living jobs:unemployment,payrolls "
        "gdp:national-output,economic-growth retail-sales:shop-sales,store-turnover "
        "housing-starts:new-homes,building-permits industrial-output:factory-output,plant-output",
        "figures, index, data, estimate, survey, trend",
        "The statistics office in {place} revised the earlier month | "
        "Economists in {place} had expected a smaller change | "
        "The seasonally adjusted series {moved} {percent} pct | "
        "The government kept its forecast for {period}",
    ),
    _family(
        "softs",
        "sugar:raws,white-sugar coffee:arabica,robusta cocoa:cocoa-beans,bean-crop "
        "cotton:lint,cotton-bales rubber:latex,ribbed-sheet tea:leaf-auction,tea-gardens",
        "exports, prices, crop, quotas, shipments, stocks",
        "Growers near {place} hold back old-crop supplies | "
        "The producers' pact will be discussed in {place} | "
        "Roasters and mills bought for {period} only | "
        "Arrivals at {place} {moved} {percent} pct from a year ago",
    ),
    _family(
        "public-finance",
        "budget:spending-plan,fiscal-plan bond-issue:debenture,eurobond "
        "debt:rescheduling,creditor-banks tax:levy-on-income,revenue-bill "
        "privatisation:state-share-sale,public-flotation pension:retirement-fund,annuities",
        "plan, proposal, terms, package, deficit, programme",
        "Parliament in {place} debates the measure in {period} | "
        "The finance ministry expects a gap of {percent} pct | "
        "Lead managers met investors in {place} | "
        "The opposition called the plan unworkable",
        EVENTS,
    ),
    _family(
        "oilseeds",
        "soybean:soya,soybean-meal palm-oil:palm-olein,oil-palm rapeseed:canola,colza "
        "sunflower:sunseed,sunflower-oil coconut:copra,lauric-oil linseed:flaxseed,flax",
        "crushing, exports, prices, plantings, stocks, shipments",
        "Crushers at {place} cut their runs by {percent} pct | "
        "Oilseed importers in {place} waited for lower offers | "
        "The meal was sold for {period} delivery | "
        "Vegetable oil stocks {moved} {percent} pct last month",
    ),
    _family(
        "technology",
        "computers:workstations,mainframes semiconductors:memory-chips,wafers "
        "telecoms:telephone-network,exchange-lines software:programs,operating-system "
        "satellites:orbital-craft,transponders robotics:factory-robots,robot-arms",
        "orders, sales, shipments, contracts, prices, capacity",
        "The plant at {place} will hire engineers in {period} | "
        "Makers in {place} face tougher competition | "
        "The new line runs {percent} pct faster than the old | "
        "Patents on the design are held in {place}",
    ),
    _family(
        "livestock",
        "cattle:steers,beef-herd hogs:pork-bellies,pig-herd poultry:broilers,chicken-flocks "
        "wool:fleece,greasy-wool lamb:mutton,sheepmeat fishmeal:anchovy-catch,fish-oil",
        "slaughter, prices, exports, numbers, sales, supplies",
        "The auction yard at {place} reported brisk trade | "
        "Feed costs around {place} {moved} {percent} pct | "
        "Packers bought light supplies for {period} | "
        "Veterinary officers lifted controls near {place}",
    ),
    _family(
        "weather",
        "drought:dry-spell,rain-shortage frost:cold-snap,freeze flood:high-water,swollen-rivers "
        "hurricane:tropical-storm,gale-warning earthquake:tremor,seismic-shock "
        "wildfire:bush-fire,forest-blaze",
        "damage, losses, warnings, claims, relief, reports",
        "Roads north of {place} were closed to traffic | "
        "Insurers put the loss at {percent} pct of cover | "
        "Relief teams reached {place} late in {period} | "
        "The weather bureau in {place} sees no change",
        EVENTS,
    ),
)  # fmt: skip

ACTORS = (
    "Halden Resources", "Corvel Group", "Marlow and Pike", "Tessin Holdings", "Brandt Meyer",
    "Ostrava Trading", "Lakeland Industries", "Quill Corp", "Norden Kredit", "Pacific Ambry",
    "the finance ministry", "the statistics office", "the industry council", "Dunmore Brothers",
    "the central bank", "a trade official", "the growers' union", "Sable Partners",
    "Verity Commodities", "the regional chamber",
)  # fmt: skip

PLACES = (
    "Port Lorne", "Keldim", "San Averro", "Westmark", "Ulvik", "Tarrago", "New Brandon",
    "Ostmark", "Caldera", "Linfield", "Maravel", "Dunholm", "Sorrento Bay", "Hallam", "Vesk",
    "Arden Cross", "Pontavia", "Gelder", "Rostock Haven", "Mira Sul",
)  # fmt: skip

PERIODS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December", "the first quarter", "the second quarter",
    "the third quarter", "the fourth quarter",
)  # fmt: skip

MOVES = (
    "rose", "fell", "climbed", "slipped", "gained", "eased", "improved", "declined", "firmed",
    "weakened",
)  # fmt: skip

# Words about another topic in passing: the story is not about it.
ASIDES = (
    "{term} was little changed",
    "{actor}, which also follows {term}, gave no further detail",
    "The report did not mention {term}",
    "Elsewhere {term} attracted small interest",
    "It had sold its {term} business in an earlier year",
)

FILLERS = (
    "A spokesman declined to comment further",
    "No other details were given",
    "The statement was issued in {place}",
    "The announcement came after the close",
    "{actor} could not be reached",
)

SYLLABLES = (
    "ba", "cor", "del", "fen", "gar", "hol", "jan", "kel", "lor", "mar", "nor", "pel", "ros",
    "sel", "tor", "var", "wen", "yar", "zel", "bri",
)  # fmt: skip


def invented_place(number: int) -> str:
    """A place name for every number, without end and without repeats: Delba, Corfen, ..."""
    digits = []
    while True:
        number, digit = divmod(number, len(SYLLABLES))
        digits.append(SYLLABLES[digit])
        if number == 0:
            break
    return ("".join(digits) + "ia").capitalize()
