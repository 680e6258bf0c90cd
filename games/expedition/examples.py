"""The rulebook's worked examples, each carried out by the rules."""

from __future__ import annotations

from textwrap import indent

from games.expedition import narration
from games.expedition import rules as law
from games.expedition.layouts import PLAIN
from games.expedition.phrases import listed, mean_energy, signed, table
from games.expedition.rules import Situation
from games.expedition.schema import Rules
from games.expedition.world import Size, World


def examples(rules: Rules) -> str:
    """Write the chapter of worked examples."""
    return "\n\n".join(
        (
            "Worked examples\n\nThe numbers in these examples follow from the entries and tables "
            "above. Where an example and a rule seem to disagree, the example has been misread.",
            _price_of_a_march(rules),
            _rest_with_a_ration(rules),
            _chances(rules),
            _journal(rules),
            _points(rules),
            _low(rules),
        )
    )


def _price_of_a_march(rules: Rules) -> str:
    measures, ridge, fog = rules.measures, rules.terrain("ridge"), rules.weather("fog")
    staff, lantern = rules.item("staff"), rules.item("lantern")
    field, snowshoes = rules.terrain("snowfield"), rules.item("snowshoes")
    bare = law.march_cost(measures, ridge, fog, ())
    eased = law.march_cost(measures, ridge, fog, (staff,))
    shielded = law.march_cost(measures, ridge, fog, (lantern,))
    both = law.march_cost(measures, ridge, fog, (staff, lantern))
    snow = law.march_cost(measures, field, rules.weather("snowfall"), (snowshoes,))
    forage = law.forage_cost(measures, ridge, fog, (staff,))
    return f"""### The price of a march

It is foggy, and the way leads onto a ridge. The ridge costs {ridge.cost}; its ground is \
{ridge.ground}, on which fog is hard, so that the extra of {fog.extra} is added: {bare} energy. A \
traveller with a {staff.name}, which eases the ridge by {staff.ease}, pays {eased}. One with a \
{lantern.name}, which shields from fog, pays {shielded}. One with both pays {both}.

Snow is falling on a snowfield, and the traveller has {snowshoes.name}. The snowfield costs \
{field.cost}, the {snowshoes.name} take off {snowshoes.ease} of it, and what remains is at least \
{measures.march_least} as every march must be. They do nothing about the falling snow, whose extra \
of {rules.weather("snowfall").extra} is paid like anybody's. The march costs {snow}.

The traveller on the foggy ridge, with the {staff.name}, decides to forage there instead. This \
costs {measures.forage} and the extra of the fog, {forage} in all; a {staff.name} eases marches, \
and foraging is none."""


def _rest_with_a_ration(rules: Rules) -> str:
    measures, shore = rules.measures, rules.terrain("lakeshore")
    pot = rules.item("cooking pot")
    rows = []
    for energy in range(1, measures.energy_full + 1):
        row = [str(energy)]
        for kit in ((), (pot,)):
            after, rations = law.rested(measures, shore, kit, energy, 1)
            row.append(f"{after}, ration {'kept' if rations else 'eaten'}")
        rows.append(row)
    return f"""### A rest with a ration in the pack

A day of rest on a lakeshore gives {shore.rest} energy. Whether the ration is eaten as well \
depends on whether all of its {law.ration_gain(measures, ())} energy fits under \
{measures.energy_full}; with a {pot.name} it gives {law.ration_gain(measures, (pot,))} and must \
fit likewise. For each energy before the rest, the table gives the energy after it, before the \
sleep of the day is rolled.

{table(("energy", "without pot", "with pot"), rows)}"""


def _chances(rules: Rules) -> str:
    measures, marsh, season = rules.measures, rules.terrain("marsh"), rules.season("autumn")
    ground = law.ground(measures, marsh, (), "march")
    met = law.creatures(rules, marsh, ())
    nights = law.nights(measures, season, (), marsh.shelter)
    quiet = ground[0].faces * met[0].faces
    square = measures.faces**2
    worst = min(h.effect.energy for h in ground) + min(h.effect.energy for h in met)
    worst -= season.bitter
    mean = sum(mean_energy(roll) for roll in (ground, met, nights))
    guarded = law.creatures(rules, marsh, (rules.item("gaiters"),))
    cost = law.march_cost(measures, marsh, rules.weather("clear sky"), ())
    return f"""### The odds of an autumn day in the marsh

After a march into a marsh the ground is clear on {ground[0].faces} of {measures.faces} faces, and \
afterwards nobody is met on {met[0].faces} of {measures.faces}. Both together happen in \
{ground[0].faces} times {met[0].faces}, or {quiet}, of {square} cases, {quiet / square:.0%}. That \
leaves the night: in an autumn marsh, whose shelter is {marsh.shelter}, {listed(_odds(nights))}.

The average of the three rolls is {mean_energy(ground):+.2f} energy from the ground, \
{mean_energy(met):+.2f} from the creatures and {mean_energy(nights):+.2f} from the night, together \
{mean:+.2f}. The worst that they can do is {worst:+d}. Under a clear sky the march costs {cost}, \
so that only a traveller who sets out with {cost - worst + 1} energy or more can be certain to see \
the next morning. With gaiters the creatures' average rises to {mean_energy(guarded):+.2f}, for \
the leeches are then met without effect and the cranes as before."""


def _odds(happenings: tuple[law.Happening, ...]) -> list[str]:
    return [f"{some.name} on {some.faces} ({signed(some.effect)})" for some in happenings]


def _journal(rules: Rules) -> str:
    land = ("old forest", "river", "moor", "ruins", "lakeshore", "meadow", "scree", "ridge")
    world = World(
        rules,
        Size(columns=4, rows=2, days=6),
        rules.season("spring"),
        (rules.item("bell"),),
        tuple(rules.terrain(name) for name in land),
    )
    # A number chooses among `rules.actions`: rain, clear going, aurochs, a restless night, ...
    days: tuple[tuple[int | str, ...], ...] = (
        (1, "east", 0, 1, 0),
        (2, "north", 2, 1, 1),
        (0, "east", 0, 1, 2),
        (1, "rest", 1, 2, 1),
        (2, "forage", 1, 0, 0),
    )
    situation, lines = law.start(world), []
    for turn in (turn for day in days for turn in day):
        if situation.phase == "over":  # other tables may end it earlier
            break
        action = turn if isinstance(turn, str) else law.actions(world, situation)[turn]
        after = law.advance(world, situation, action)
        lines.append(narration.turn(PLAIN, world, situation, action, after))
        situation = after
    where = world.name(situation.cell)
    return f"""### The journal of five days

This is how the page of a small map and the journal below it look.

{indent(narration.map_page(world) + "".join(lines), "    ")}
On the first day the march into the meadow was paid for and then undone by the cattle; the night \
was spent at the lake, and by its shelter. On the second, fog lay on the country, but not on \
wooded ground, and the bear heard the bell. On the third the otter's fish came to a pack that was \
full and had to be left. On the fourth there was room for the whole ration, so it was eaten; the \
rain did not matter to the sleeper. On the fifth the fog did matter, since the river is wet and \
foraging pays the weather's extra. The traveller is now in {where}, has {situation.energy} energy \
and {"a" if situation.rations else "no"} ration, and has made one column in all."""


def _points(rules: Rules) -> str:
    world = World(
        rules,
        Size(columns=10, rows=1, days=16),
        rules.seasons[0],
        (),
        (rules.terrains[0],) * 10,
    )
    cases = (
        ("arrives with energy left", 9, 2),
        ("reaches the far side and collapses on arrival", 9, 0),
        ("stands in column G when the days are over", 6, 1),
        ("collapses in column G", 6, 0),
        ("never left column A, and is well", 0, rules.measures.energy_full),
    )
    rows = []
    for told, cell, energy in cases:
        end = Situation("over", world.days, cell, energy, 0)
        points, share = law.points(world, end), law.share_of_points(world, end)
        rows.append((told, f"{points:.1f}", f"{share:.3f}"))
    return f"""### What journeys are worth

On a map of {world.size.columns} columns, A to {world.name(world.last_column)[0]}, each column is \
worth {rules.measures.distance / world.last_column:.2f} points of distance.

{table(("the traveller", "points", "result"), rows)}"""


def _low(rules: Rules) -> str:
    measures = rules.measures
    told = [
        f"{energy}: {'low' if law.energy_low(measures, energy) else 'not low'}"
        for energy in range(measures.energy_full + 1)
    ]
    return f"""### Is energy low?

For every energy there is: {"; ".join(told)}. A traveller with {measures.energy_low} energy, a \
ration and a day's rest ahead has low energy; one with {measures.energy_low + 1}, deep in a \
snowfield with a blizzard rising, has not."""
