"""The table of terrains."""

from __future__ import annotations

from games.expedition.schema import Effect, Happening, Haunt, Terrain

TERRAINS = (
    Terrain(
        name="meadow",
        ground="open",
        shelter="fair",
        cost=1,
        rest=1,
        trouble=Happening(name="a hidden ditch", faces=2, effect=Effect(energy=-1)),
        fortune=Happening(name="a drove road", faces=2, effect=Effect(energy=1)),
        meal=4,
        find=3,
        haunts=(Haunt(creature="aurochs", faces=2), Haunt(creature="bees", faces=3)),
        share=4,
        text=(
            "Knee-high grass, seed heads and the hum of small wings. A meadow asks little of a "
            "traveller: the line of march can be seen from one side to the other, and the few "
            "ditches that old farmers dug betray themselves only to those who look for rushes. "
            "Where cattle were once driven to market the turf is still short and firm, and a "
            "traveller who strikes such a drove road arrives fresher than they set out. Sorrel, "
            "mushrooms and birds' eggs make foraging worth a day."
        ),
    ),
    Terrain(
        name="moor",
        ground="open",
        shelter="exposed",
        cost=2,
        rest=0,
        trouble=Happening(name="a maze of peat hags", faces=3, effect=Effect(energy=-1)),
        fortune=Happening(name="a sheep path", faces=2, effect=Effect(energy=1)),
        meal=3,
        find=1,
        haunts=(Haunt(creature="wolves", faces=2), Haunt(creature="adder", faces=2)),
        share=3,
        text=(
            "Heather to the horizon, and under it peat cut by water into banks as high as a man. "
            "No march over the moor is straight: one hag leads into the next, and the way out is "
            "seldom the way ahead. Sheep have solved the puzzle better than people, and their "
            "paths, narrow as a hand, are worth following for as long as they last. There is "
            "nothing to sleep behind and little to eat but bilberries, so a wise traveller "
            "crosses the moor and does not stay."
        ),
    ),
    Terrain(
        name="birchwood",
        ground="wooded",
        shelter="sheltered",
        cost=1,
        rest=1,
        trouble=Happening(name="windfallen trunks", faces=2, effect=Effect(energy=-1)),
        fortune=Happening(name="a game trail", faces=2, effect=Effect(energy=1)),
        meal=5,
        find=2,
        haunts=(Haunt(creature="fox", faces=3), Haunt(creature="bear", faces=1)),
        share=3,
        text=(
            "Light woods of birch and rowan that have taken back the fields. The ground is dry, "
            "the trees stand wide, and the leaves let through enough of the sky to steer by. "
            "Only where a storm has laid the trunks across one another does the walking turn "
            "into climbing. Deer keep their trails open here through every season, and those go "
            "where feet wish to go. Sap, cap mushrooms and hazel make a fair table, and a bed of "
            "twigs under a leaning trunk is as good as many an inn."
        ),
    ),
    Terrain(
        name="old forest",
        ground="wooded",
        shelter="sheltered",
        cost=2,
        rest=2,
        trouble=Happening(name="lost bearings", faces=4, effect=Effect(energy=-1)),
        fortune=Happening(name="a hollow tree of honey", faces=2, effect=Effect(energy=2)),
        meal=5,
        find=3,
        haunts=(Haunt(creature="bear", faces=3), Haunt(creature="boar", faces=2)),
        share=3,
        text=(
            "Oak, yew and holly that no axe has touched. Under the crowns it is dusk at noon, "
            "moss grows on every side of every stem, and the traveller who trusts to landmarks "
            "passes the same fallen giant again before long. Yet the forest keeps whoever it "
            "confuses: nowhere is there deeper rest than among its roots, and nowhere does wind "
            "matter less. Nuts and roots are plenty, and now and then a hollow trunk drips with "
            "wild honey, which is eaten on the spot."
        ),
    ),
    Terrain(
        name="thicket",
        ground="wooded",
        shelter="sheltered",
        cost=3,
        rest=1,
        trouble=Happening(name="a wall of thorns", faces=4, effect=Effect(energy=-1)),
        fortune=Happening(name="ripe brambles", faces=3, effect=Effect(energy=1)),
        meal=6,
        find=2,
        haunts=(Haunt(creature="boar", faces=3), Haunt(creature="bees", faces=2)),
        share=2,
        text=(
            "Blackthorn, bramble and wild rose, grown together until a hare must think about it. "
            "Every yard is bought with cloth and skin, and a gap that looks like a passage often "
            "closes behind the next bend, so that the traveller must back out the way they came. "
            "The same thorns keep out wind and wolves, and where the sun reaches in, the fruit "
            "hangs in handfuls. A traveller with time to spare eats well in a thicket; one in a "
            "hurry goes round."
        ),
    ),
    Terrain(
        name="marsh",
        ground="wet",
        shelter="exposed",
        cost=3,
        rest=0,
        trouble=Happening(name="quaking sod", faces=4, effect=Effect(energy=-2)),
        fortune=Happening(name="a sunken causeway", faces=2, effect=Effect(energy=1)),
        meal=4,
        find=3,
        haunts=(Haunt(creature="leeches", faces=4), Haunt(creature="crane", faces=2)),
        share=2,
        text=(
            "Reeds, black water, and a green skin over it that bears a heron and not a traveller. "
            "One foot sinks while the other is pulled out, and where the sod begins to quake a "
            "whole day's strength can go into the mud at once. Somebody long ago laid stones and "
            "split logs just under the surface; whoever feels them underfoot should follow them "
            "and thank the dead. Frogs, cattail roots and eggs are there for the patient. Sleep "
            "is damp and the wind has nothing to stop it."
        ),
    ),
    Terrain(
        name="river",
        ground="wet",
        shelter="fair",
        cost=2,
        rest=1,
        trouble=Happening(name="a strong current", faces=4, effect=Effect(energy=-2)),
        fortune=Happening(name="a basket of smoked fish", faces=1, effect=Effect(rations=1)),
        meal=5,
        find=4,
        haunts=(Haunt(creature="otter", faces=3), Haunt(creature="leeches", faces=2)),
        share=3,
        text=(
            "A broad, quick water over gravel, to be waded where it splits around its islands. "
            "The cold is felt first and the current later, usually in the middle; a traveller who "
            "loses their feet comes ashore far downstream and has the bank to walk back. The "
            "people of the lower valleys hang baskets of smoked fish in the alders for whoever "
            "passes, and do not always come back for them. With a line and some patience few go "
            "hungry here, and the gravel makes a dry bed."
        ),
    ),
    Terrain(
        name="lakeshore",
        ground="wet",
        shelter="fair",
        cost=1,
        rest=2,
        trouble=Happening(name="a flooded inlet", faces=3, effect=Effect(energy=-1)),
        fortune=Happening(name="a stranded boat", faces=2, effect=Effect(energy=1)),
        meal=5,
        find=3,
        haunts=(Haunt(creature="crane", faces=3), Haunt(creature="otter", faces=2)),
        share=3,
        text=(
            "Sand and flat stones between the alders and the water. The shore is a road that "
            "nobody had to build, broken only by inlets that have to be walked around, sometimes "
            "for hours, within a shout of the other side. Boats tear loose in the autumn storms, "
            "and one that still floats carries a traveller along the shore while they sit. Fish, "
            "mussels and firewood lie together as if by design, which makes the lakeshore one of "
            "the best places in the country to do nothing."
        ),
    ),
    Terrain(
        name="scree",
        ground="stony",
        shelter="exposed",
        cost=3,
        rest=0,
        trouble=Happening(name="a stone slide", faces=4, effect=Effect(energy=-2)),
        fortune=Happening(name="a goat track", faces=3, effect=Effect(energy=1)),
        meal=2,
        find=1,
        haunts=(Haunt(creature="ibex", faces=3), Haunt(creature="lynx", faces=2)),
        share=2,
        text=(
            "Broken rock lying as steeply as broken rock can lie. Each step up is half a step "
            "back, and now and then the whole slope remembers that it was on its way down and "
            "takes the traveller along. Goats cross it on ledges that are invisible from below; "
            "to come upon their track in the middle of the worst of it is a relief that the legs "
            "feel at once. A few saxifrages bloom between the blocks. They are beautiful, and "
            "hardly anything else here can be eaten either."
        ),
    ),
    Terrain(
        name="gorge",
        ground="stony",
        shelter="sheltered",
        cost=2,
        rest=1,
        trouble=Happening(name="falling rocks", faces=4, effect=Effect(energy=-2)),
        fortune=Happening(name="an old rope bridge", faces=2, effect=Effect(energy=1)),
        meal=3,
        find=1,
        haunts=(Haunt(creature="bats", faces=3), Haunt(creature="raven", faces=2)),
        share=2,
        text=(
            "Two walls, a strip of sky and a stream that talks all night. The floor of the gorge "
            "is level enough, and one has it to oneself, but frost and goats keep loosening what "
            "hangs above, and there is nowhere to step aside. Hunters have slung bridges where "
            "the stream bends, to save themselves the crossings; those that still hold save them "
            "for anybody. Under the overhangs the ground is dry and the wind only a sound, so the "
            "nights are better than the days."
        ),
    ),
    Terrain(
        name="ridge",
        ground="high",
        shelter="exposed",
        cost=2,
        rest=0,
        trouble=Happening(name="a false summit", faces=4, effect=Effect(energy=-1)),
        fortune=Happening(name="a cairned path", faces=3, effect=Effect(energy=1)),
        meal=2,
        find=1,
        haunts=(Haunt(creature="eagle", faces=3), Haunt(creature="ibex", faces=2)),
        share=3,
        text=(
            "The long bare back of the hills, with a valley falling away on either hand. The way "
            "cannot be missed and yet deceives: what looked like the top turns out to be a "
            "shoulder, and behind it stands the next. Shepherds have set cairns along the better "
            "line, and in clear air one leads the eye to another. There is neither wood nor water "
            "up here, and nothing at all between a sleeper and the weather, so that few who have "
            "spent a night on the ridge speak of it as rest."
        ),
    ),
    Terrain(
        name="snowfield",
        ground="high",
        shelter="exposed",
        cost=3,
        rest=0,
        trouble=Happening(name="a crevasse", faces=3, effect=Effect(energy=-3)),
        fortune=Happening(name="a firm crust", faces=4, effect=Effect(energy=1)),
        meal=1,
        find=1,
        haunts=(Haunt(creature="lynx", faces=2), Haunt(creature="wolves", faces=3)),
        share=2,
        text=(
            "Snow that outlasts the summer, white on top and blue where it opens. It opens where "
            "it likes: a crevasse is found with the leg, and the climb out of it costs more than "
            "any other mishap of the ground. On mornings when the crust has frozen hard a "
            "traveller can walk over it as over a floor, and should. To lie still here is only to "
            "grow colder. Whatever can be foraged was dropped by somebody else."
        ),
    ),
    Terrain(
        name="dunes",
        ground="open",
        shelter="exposed",
        cost=2,
        rest=0,
        trouble=Happening(name="running sand", faces=4, effect=Effect(energy=-1)),
        fortune=Happening(name="a hidden spring", faces=2, effect=Effect(energy=2)),
        meal=2,
        find=1,
        haunts=(Haunt(creature="adder", faces=3), Haunt(creature="fox", faces=2)),
        share=2,
        text=(
            "Hills of sand that move when nobody looks. The crest is firm and the flank is not, "
            "and since crests never lead where one wants to go, most of the day is spent on "
            "flanks, climbing what runs away underfoot. Between the dunes, where a few willows "
            "mark it, lies here and there a spring of sweet water, and whoever has drunk from one "
            "walks on like another person. Hardly a thing grows. The wind rakes out every "
            "footprint by morning, the traveller's own among them."
        ),
    ),
    Terrain(
        name="ruins",
        ground="stony",
        shelter="sheltered",
        cost=1,
        rest=2,
        trouble=Happening(name="a fallen vault", faces=3, effect=Effect(energy=-2)),
        fortune=Happening(name="a forgotten cellar", faces=2, effect=Effect(rations=1)),
        meal=2,
        find=3,
        haunts=(Haunt(creature="raven", faces=3), Haunt(creature="hermit", faces=2)),
        share=2,
        text=(
            "A town whose name is on no map. Its streets still run straight, its walls still turn "
            "the wind, and in some houses a hearth can be lit that was last warm before anybody's "
            "grandmother was born. What has not fallen yet is the danger: vaults wait for a step "
            "above them, and digging out is slow. In the cellars beneath, things in sealed jars "
            "have kept. Of wild food there is little, but the gardens have seeded themselves, and "
            "those who know where people stored things often find a ration's worth."
        ),
    ),
)
