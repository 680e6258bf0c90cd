"""The tables of weathers and seasons."""

from __future__ import annotations

from games.expedition.schema import Chance, Nights, Season, Weather

WEATHERS = (
    Weather(
        name="clear sky",
        hard_on=(),
        extra=0,
        text=(
            "A high sky with a light wind under it. Nothing is made harder anywhere, which is "
            "worth saying only because it is so easily wasted: a clear day spent asleep in good "
            "shelter is a march over bad ground that will have to be made later, in something "
            "worse. Old travellers look at the map first and at their bed afterwards."
        ),
    ),
    Weather(
        name="rain",
        hard_on=("wet", "stony"),
        extra=1,
        text=(
            "Steady, soft and without end. What is wet already swells, and what is stony turns "
            "slick, so that fords, marshes, shores and broken rock all cost more than on a dry "
            "day. Grass and trees shrug it off, and so do the heights, which are above the worst "
            "of it or used to it. A wet day is a good day for the woods."
        ),
    ),
    Weather(
        name="fog",
        hard_on=("wet", "high"),
        extra=1,
        text=(
            "A grey room that moves along with whoever is in it. Fog lies longest over water and "
            "hangs longest on heights; there every landmark is gone, and the time goes into "
            "standing still and listening. In the woods nobody sees far on any day, and on "
            "grassland or stones a straight line can be held by feel, so that the fog matters "
            "little there."
        ),
    ),
    Weather(
        name="heat",
        hard_on=("open", "stony"),
        extra=1,
        text=(
            "Air that trembles over the ground, and no bird to be heard from noon to dusk. Where "
            "there is no shade the sun is carried like a load, and stones give back at once what "
            "they receive. Under leaves, along the water and up where a breeze goes, it is merely "
            "a fine day. The heat does not trouble sleepers, who have found the shade already."
        ),
    ),
    Weather(
        name="thunderstorms",
        hard_on=("open", "high"),
        extra=2,
        text=(
            "Towers of cloud by mid-morning and the first crack soon after. Nobody who can be the "
            "tallest thing in sight should be walking: on grass and on the heights most of the "
            "day is spent crouching in hollows, and the march is made in the hours between, at a "
            "run. Woods, water and rock are disagreeable but passable, and the storms are usually "
            "gone when the next day's weather comes."
        ),
    ),
    Weather(
        name="gale",
        hard_on=("open", "high"),
        extra=1,
        text=(
            "A wind to lean on that sometimes steps aside. Wherever nothing breaks it, on grass, "
            "sand and heather as on the tops, the traveller walks bent, and at each gust not at "
            "all. Among trees there is more noise than harm, and in hollows between rocks one "
            "hears it passing overhead like traffic on a bridge."
        ),
    ),
    Weather(
        name="hard frost",
        hard_on=("high",),
        extra=1,
        text=(
            "Silence, blue shadows, and breath that falls as powder. In the lowlands a hard frost "
            "is nearly a kindness, since it makes floors out of bogs that are bogs no less for "
            "the reckoning of these rules. On the heights it finds every seam. It is the best "
            "that winter has to offer, and a winter's march is planned around such days."
        ),
    ),
    Weather(
        name="snowfall",
        hard_on=("open", "wooded", "high"),
        extra=1,
        text=(
            "Large flakes, falling as if there were time. They fill grass and undergrowth to the "
            "knee and hide the edge of every drop on the heights. Along running water and among "
            "bare rocks the snow does not lie deep enough to be counted, and the roads of winter "
            "therefore follow streams and old stones."
        ),
    ),
    Weather(
        name="blizzard",
        hard_on=("open", "wet", "stony", "high"),
        extra=2,
        text=(
            "Snow and wind together, from the side. There is no distance any more and no "
            "direction but away. Only woods break it enough for ordinary going; everywhere else "
            "a march costs what two would, and is best not begun by anybody who has a choice. "
            "Those who lie in their blankets lose the day, but nothing beyond the day."
        ),
    ),
)

SEASONS = (
    Season(
        name="spring",
        weathers=(
            Chance(weather="clear sky", faces=5),
            Chance(weather="rain", faces=4),
            Chance(weather="fog", faces=3),
        ),
        nights=(
            Nights(shelter="sheltered", sound=5, bitter=1),
            Nights(shelter="fair", sound=4, bitter=2),
            Nights(shelter="exposed", sound=2, bitter=4),
        ),
        bitter=1,
        text=(
            "The snow has left the valleys and the water it left behind is everywhere. Days of "
            "sun alternate with days of rain, and in the mornings fog stands over rivers and "
            "tops. Nights are cool without being cruel. Spring punishes wet ground, by rain and "
            "by fog alike, and spares grass and trees, so that its best lines run from wood to "
            "meadow and its worst along a shore."
        ),
    ),
    Season(
        name="summer",
        weathers=(
            Chance(weather="clear sky", faces=6),
            Chance(weather="heat", faces=4),
            Chance(weather="thunderstorms", faces=2),
        ),
        nights=(
            Nights(shelter="sheltered", sound=6, bitter=1),
            Nights(shelter="fair", sound=5, bitter=1),
            Nights(shelter="exposed", sound=4, bitter=2),
        ),
        bitter=1,
        text=(
            "Long light, short nights, and the easiest sleep of the year even without a roof. "
            "What summer has against the traveller comes from above and falls on open land: heat "
            "on grass, sand and stones, thunder on grass and heights. Water is never harder in "
            "summer than it looks, and neither are the woods, which is why summer journeys hug "
            "shores and forests and hurry over the rest on clear days."
        ),
    ),
    Season(
        name="autumn",
        weathers=(
            Chance(weather="clear sky", faces=4),
            Chance(weather="gale", faces=4),
            Chance(weather="rain", faces=4),
        ),
        nights=(
            Nights(shelter="sheltered", sound=5, bitter=2),
            Nights(shelter="fair", sound=3, bitter=3),
            Nights(shelter="exposed", sound=2, bitter=5),
        ),
        bitter=1,
        text=(
            "Red woods, full larders, and a sky that cannot decide. Clear days, gales and rain "
            "are equally likely, so that no kind of ground but the wooded is safe from all of "
            "them. The nights grow sharp wherever there is no shelter. An autumn traveller does "
            "well to end each day under trees or behind walls, and to leave tops and grass for "
            "the mornings on which nothing blows."
        ),
    ),
    Season(
        name="winter",
        weathers=(
            Chance(weather="hard frost", faces=6),
            Chance(weather="snowfall", faces=4),
            Chance(weather="blizzard", faces=2),
        ),
        nights=(
            Nights(shelter="sheltered", sound=4, bitter=2),
            Nights(shelter="fair", sound=2, bitter=4),
            Nights(shelter="exposed", sound=1, bitter=6),
        ),
        bitter=2,
        text=(
            "The country closed for repairs. Frost is the fair weather; snow clogs woods and "
            "grass; and a blizzard stops nearly everything. What makes winter winter, however, is "
            "the night: a bitter one takes more than at any other time of year, and without "
            "shelter no other kind of night is likelier. Winter journeys are short marches "
            "between good beds, and not all of them arrive."
        ),
    ),
)
