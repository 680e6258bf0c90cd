"""The full rulebook, written from the tables."""

from __future__ import annotations

from games.expedition import gazetteer
from games.expedition.examples import examples
from games.expedition.phrases import NUMBERS, listed
from games.expedition.reckoning import reckoning
from games.expedition.rules import (
    BITTER,
    DEEP_SLEEP,
    MARCHES,
    MEAL,
    NOBODY,
    PLAIN,
    RATION,
    RESTLESS,
    SOUND,
    STEPS,
)
from games.expedition.schema import Rules


def rulebook(rules: Rules) -> str:
    """Give the rulebook of some 55,000 characters; the same text for every map and seed."""
    chapters = (
        _journey(rules),
        _day(rules),
        _steps(rules),
        _energy(rules),
        _pack(rules),
        _maps(rules),
        gazetteer.lands(rules),
        gazetteer.weathers(rules),
        gazetteer.seasons(rules),
        gazetteer.creatures(rules),
        gazetteer.equipment(rules),
        reckoning(rules),
        examples(rules),
        _advice(rules),
    )
    numbered = [f"## {number}. {chapter}" for number, chapter in enumerate(chapters, 1)]
    return "\n\n".join(("# Expedition: the rulebook", *numbered)) + "\n"


def _journey(rules: Rules) -> str:
    measures = rules.measures
    most = measures.distance + measures.survival
    return f"""The journey

Expedition is a journey for one. The traveller stands at the western edge of a country that nobody \
has described very well and wants to be on the far side of it, which is the column of regions at \
the eastern edge of the map. There is a fixed number of days for this; the page that comes with \
each map says how many. Every day the traveller takes one step, and the country answers.

A journey ends in one of {NUMBERS[3]} ways. It ends at once when the traveller sets foot in a \
region of the far side: they have arrived. It ends at once, too, when energy falls to nothing: the \
traveller collapses, wherever that is. And it ends with the night of the last day, wherever the \
traveller is standing then. Nothing else ends a journey, and nobody can give one up.

When it has ended, the journey is worth points. Up to {measures.distance} of them are for \
distance: each column of the map between the western edge and the region where the journey ended \
counts the same, and the whole {measures.distance} go to those who end it on the far side. A \
further {measures.survival} are for survival: they are given whole to every traveller who has any \
energy left at the end, and not at all to one who has collapsed. The most that a journey can be \
worth is therefore {most} points, and its result is its points divided by {most}.

Three things follow, and are worth saying before any details. Distance is counted where the \
journey ends, not where it once was: a traveller who is driven back has lost those columns until \
they are walked again. Arriving early earns no more than arriving on the last day. And to stand \
still in the middle of the country with energy to spare is worth more than to collapse a column \
further on, unless that column is worth more than {measures.survival} points, which on no map \
larger than a garden it is.

Nothing in this game is hidden. The map lies open from the first day; the season, the equipment \
and the number of days are printed beside it; and the tables in this book say how likely \
everything is. Only chance is unknown, and of chance the odds are known exactly."""


def _day(rules: Rules) -> str:
    faces, slide = rules.measures.faces, rules.terrain("scree").trouble
    return f"""The day

A day consists of {NUMBERS[5]} turns, always in the same order, and each of them adds one entry to \
the journal. The traveller acts in one of them; chance acts in the other {NUMBERS[4]}.

1. The weather. Before anything else the day shows its weather. Each season knows three kinds, and \
chance picks one of them by the season's table in chapter 9. The weather of one day says nothing \
about the weather of the next: every morning is a new roll on the same table.
2. The step. The traveller, knowing the weather, takes one of {NUMBERS[len(STEPS)]} steps: a march \
in one of {NUMBERS[len(MARCHES)]} directions, a rest, or a day of foraging. Chapter 3 says what \
each of them does. What the step costs or gives is settled at once.
3. The ground. The region where the traveller now is answers the step. After a march, this is the \
terrain's trouble or its fortune, or neither ("{PLAIN["march"]}"); after a rest, the sleep of the \
day; after foraging, what was found. The chances stand in the terrain's entry in chapter 7.
4. The creature. Every terrain is the haunt of some creatures. Chance decides whether the \
traveller meets one of them, or {NOBODY}. This happens after every kind of step, since creatures \
do not care whether somebody marches, sleeps or picks mushrooms.
5. The night. Night falls on the region where the traveller is by then, which after certain \
meetings is not where the step had led. It is "{SOUND}", "{RESTLESS}" or "{BITTER}", by the \
season's table for the terrain's kind of shelter.

After the night the next day begins with its weather, unless it was the last.

Whatever chance decides is decided by one roll of a die with {faces} faces, all of them equally \
likely. The tables do not list faces one by one; they say on how many of the {faces} a thing \
happens. "{slide.name.capitalize()} on {slide.faces} of {faces}" means that {slide.faces} faces \
bring it. Where the faces named do not add up to {faces}, the remaining faces bring the plain \
result, which never has an effect. Every roll is independent of all rolls before it: a traveller \
who has been unlucky is not owed anything.

The turns of a day are carried out strictly one after another. In particular, energy that falls to \
nothing ends the journey at that very turn. A sound night would have come too late for somebody \
who met the bear that evening, and the fortune of the ground cannot be spent on the march that \
found it."""


def _steps(rules: Rules) -> str:
    measures = rules.measures
    return f"""The six steps

All {NUMBERS[len(STEPS)]} steps may be taken on every day, in every region and in every weather. \
There is no step that is forbidden, though there are many that are foolish.

### {listed([step.capitalize() for step in MARCHES])}

A march leads into the next region in its direction. Its cost depends on the region entered, never \
on the region left: it is the cost that the terrain's entry names, made less by equipment that \
eases this terrain, but never less than {measures.march_least}; and to this the weather of the day \
adds its extra, if it is hard on the terrain's kind of ground and no equipment shields from it. In \
short:

    cost of a march = the larger of {measures.march_least} and (cost of the terrain - ease) \
+ extra of the weather

Ease never touches the weather's extra, and shielding never touches the terrain's own cost. If \
{NUMBERS[2]} pieces of equipment ease the same terrain, both count.

The cost is paid from energy on arrival. A traveller may set out on a march that costs as much \
energy as they have, or more; they still reach the region, and collapse there. The distance of \
that region counts, survival does not. This holds for the far side too: whoever arrives there with \
nothing left has made the whole distance, and has not survived it.

The map has edges. A march north from the northernmost row, south from the southernmost, or west \
from the western edge finds no way on, and leads back into the region that it started from. The \
day is not given back: the march costs what a march into that region costs on that day, and the \
ground answers as it does to any march. East of the far side there is nothing to march to, since \
the journey has ended there.

### Rest

A rest gives the energy that the terrain's entry names for it. Energy never rises above \
{measures.energy_full}; what would go beyond is lost. After that, a traveller who carries a ration \
eats one, provided that nothing of it is wasted: it gives {measures.ration} energy, more with \
certain equipment, and is eaten only if energy then still does not exceed {measures.energy_full}. \
One rest uses at most one ration. Rest is the only step on which rations are eaten, and no weather \
has any influence on it.

The ground answers a rest with {DEEP_SLEEP} on {measures.deep_faces} of {measures.faces}, which \
gives {measures.deep} energy more, and with {PLAIN["rest"]} otherwise. This is the sleep of the \
day; the night is rolled separately, as on any other day.

### Forage

Foraging means a day spent looking for food in the region where the traveller is. It costs \
{measures.forage} energy, and in addition the weather's extra under the same conditions as a \
march, but no ease applies to it and the terrain's own cost does not matter. The ground then gives \
"{MEAL}", "{RATION}", or "{PLAIN["forage"]}", on the faces named in the terrain's entry. A meal is \
eaten on the spot and gives {measures.meal} energy, more with certain equipment. A ration goes \
into the pack; if the pack is full, it is left behind. As always, the cost is paid first: somebody \
whose energy it uses up collapses before anything is found."""


def _energy(rules: Rules) -> str:
    measures = rules.measures
    low = measures.energy_low
    return f"""Energy, and when it is low

Energy is a whole number from 0 to {measures.energy_full}. It stands at {measures.energy_start} \
when the journey begins. Marches and foraging take it, rest and food give it back; trouble, some \
creatures and bitter nights take it, fortune, other creatures and sound nights give it. Energy \
above {measures.energy_full} is lost as soon as it is gained, and energy at 0 ends the journey.

Energy is low when it is {low} or less. This is the whole definition: neither the weather, nor the \
terrain, nor the days that are left, nor a ration in the pack have any part in it. At {low} energy \
is low, at {low + 1} it is not. The journal does not say whether energy is low; it says how much \
there is, and this sentence does the rest.

The definition is drawn where it is for a reason. With more than {low} energy the traveller can, \
in most terrains and fair weather, afford a march and a mishap on the same day. With {low} or \
less it takes only one dear region, or one meeting of the worse kind, to end the journey. Low \
energy forbids nothing, however, and costs nothing in itself. It is a question that is asked, and \
an answer that should be right."""


def _pack(rules: Rules) -> str:
    measures = rules.measures
    return f"""The pack

The traveller carries two kinds of things, and they behave quite differently.

Rations are food that keeps. The pack has room for {measures.rations_most} at a time, and holds \
{measures.rations_start} when the journey begins. They come from foraging, from the fortune of \
certain terrains and from the friendlier creatures; they go when they are eaten during a rest, and \
when a thief gets at them. A ration that comes to a full pack is lost, and a thief who comes to an \
empty one goes away with nothing.

Equipment is not food and does not run out. For each journey {measures.items} pieces are chosen, \
all different, and named on the page of the map; the traveller has them from the first day to the \
last. They cannot be lost, sold, broken or exchanged, they weigh nothing that these rules would \
notice, and they need not be put to use: whatever a piece of equipment does, it does by itself \
whenever its occasion comes. Chapter 11 describes all of it. Equipment that is not named on the \
page of the map is not there."""


def _maps(rules: Rules) -> str:
    shares = sum(terrain.share for terrain in rules.terrains)
    return f"""Reading the map

A map is a grid of regions. Columns are lettered from west to east, beginning with A, and rows are \
numbered from north to south, beginning with 1; so B3 lies east of A3 and south of B2. The journey \
starts in column A, in the middle row, or in the more southern of the two middle rows if their \
number is even. The last column is the far side. Its regions have terrains like all others, and it \
costs as much to enter them, but what might happen in them no longer matters, since the journey is \
over on arrival.

The page that comes with a map names the season, the equipment, the number of days, the region of \
the start and the letter of the far side, and then lists the rows with the terrain of every \
region. All of this stays as it is for the whole journey. Below it the journal begins, which gains \
one entry for each turn. Last of all, below the journal, stand the facts of the moment: the day, \
the weather once it is known, the region, the columns that remain, energy and rations. Should \
earlier entries of the journal ever be left out to save space, one entry says so and sums up what \
matters; nothing that has been left out has any further influence.

How maps come about is no secret either. Every region is drawn by itself: of {shares} equal lots, \
each terrain holds as many as its entry in chapter 7 says. The season is drawn from the \
{NUMBERS[len(rules.seasons)]} seasons with equal chances, and the equipment from the list in \
chapter 11 likewise. No attempt is made to make a map fair. Some can be crossed by anybody who \
keeps walking; on others the best of travellers should be content with half the way."""


def _advice(rules: Rules) -> str:
    measures = rules.measures
    return f"""Disputes, and some advice

Does the weather's extra apply when the march leads back from the edge of the map? Yes. It is a \
march into the region where the traveller stands, in every respect.

Is trouble with the ground avoided by equipment that eases the terrain? No. Ease lowers the cost \
of the march and nothing else. The roll of the ground is the same for everybody.

Does a creature that is kept off count as met? It is entered in the journal, with the piece of \
equipment that kept it off, and has no effect. Friendly creatures are never kept off; there is no \
equipment against luck.

Which region's night is it, when cattle have driven the traveller west? The night of the region \
into which they were driven, with its own shelter. There is no march in this, hence no cost, and \
the ground does not answer again. In column A nobody can be driven further, and nothing happens.

May a ration be eaten during a march, or to prevent a collapse? No. Rations are eaten during a \
rest and at no other time. A traveller with {measures.energy_low} energy and a ration in the pack \
is as close to the edge as one without.

Is a ration eaten even if the traveller would rather keep it? Yes, whenever none of it would be \
wasted. Those who wish to keep it must not rest until they are hungry enough to be glad of it.

Can the night kill? If energy falls to 0 in a bitter night, the journey ends in that night like in \
any other turn, and survival is lost. To lie down exposed with the last of one's strength is to \
stake everything on a roll.

Are distance and direction the same? No. Only columns count, so marches north and south gain \
nothing by themselves. They are made for the sake of what lies beyond: a cheaper region to enter, \
or a better one to sleep in.

As for advice, the old hands agree on little but this. Plan by beds, not by marches: it matters \
less what a day costs than where it leaves one in the evening. Compare the price of waiting with \
the price of the weather, for a day is worth exactly as much as the map has days to spare. Count \
the days that remain against the columns that remain; when they are equal, every rest is a column \
lost. When they are fewer, the far side is out of reach, and the question is only how many columns \
can be had without paying for them with survival. And on the last day of all, nothing needs to be \
kept for tomorrow but a single point of energy, which must outlast the ground, the creature and \
the night."""
