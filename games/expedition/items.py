"""The table of equipment."""

from __future__ import annotations

from games.expedition.schema import Item

ITEMS = (
    Item(
        name="rope",
        eases=("scree", "gorge"),
        ease=1,
        text=(
            "A coil of hemp, which is heavy, and a habit of looking for something to tie it "
            "to, which is not. On broken rock a fixed line turns scrambling into walking, and in "
            "the gorges it saves the detours around every step in the stream bed. It does not "
            "hold back stones that have decided to fall."
        ),
    ),
    Item(
        name="snowshoes",
        eases=("snowfield",),
        ease=2,
        text=(
            "Bent ash and rawhide, as broad as a tray. Without them no ground on any map is dearer "
            "than the snowfield; with them it is a walk, if a graceless one. They spread the "
            "traveller's weight over the crust but not over a gap, so that crevasses are found "
            "as often as before."
        ),
    ),
    Item(
        name="waders",
        eases=("marsh", "river"),
        ease=1,
        text=(
            "Greased leather to the hip. Mud lets go of it, cold water stays outside, and what "
            "used to be a crossing becomes a way. They are too loose to keep out small things "
            "that swim, and in a strong current they fill like any other boot."
        ),
    ),
    Item(
        name="billhook",
        eases=("thicket", "old forest"),
        ease=1,
        text=(
            "A hooked blade on a short handle, the tool of hedgers. With it the thicket is cut "
            "instead of suffered, and in the old forest fallen branches and holly give way where "
            "one wishes to go. It opens a path; it does not tell anybody where the path should "
            "lead."
        ),
    ),
    Item(
        name="staff",
        eases=("moor", "ridge"),
        ease=1,
        text=(
            "Ash, shod with iron, a head taller than its owner. It sounds the peat before the "
            "foot trusts it, and along the ridge it is the third leg that makes the difference "
            "between walking and balancing. Every shepherd has one, and no shepherd can say what "
            "it is for."
        ),
    ),
    Item(
        name="oilskin",
        shields=("rain", "thunderstorms"),
        text=(
            "A long coat of oiled linen that smells of fish and keeps out anything that falls "
            "from the sky as water. Its wearer walks on through rain, and through thunder too, "
            "trusting perhaps too much in cloth; by the rules, however, the trust is always "
            "rewarded."
        ),
    ),
    Item(
        name="fur coat",
        shields=("hard frost", "snowfall", "blizzard"),
        text=(
            "Reindeer, hair inside, sewn with sinew. The three weathers of winter lose their "
            "price for whoever wears it, which makes the fur coat the finest thing to own between "
            "the first snow and the last, and so much weight for the remainder of the year. It "
            "warms the march and not the bed: nights are as they are."
        ),
    ),
    Item(
        name="gauze veil",
        eases=("dunes",),
        ease=1,
        shields=("heat",),
        text=(
            "A few yards of pale stuff, worn over the hat. It keeps off the sun, so that hot days "
            "cost nothing more than others, and in the dunes it keeps blown sand out of eyes and "
            "mouth, which is half the labour of walking there. It weighs less than anything else "
            "in this chapter."
        ),
    ),
    Item(
        name="lantern",
        shields=("fog",),
        guards=("wolves", "bats"),
        text=(
            "Horn panes, a tin hood, oil for the whole way. In fog its circle of light is small "
            "but it is the same circle everywhere, and one can steer by what passes through it. "
            "Wolves keep away from it and bats go round it. Nothing else in the wild seems to "
            "have an opinion about lanterns."
        ),
    ),
    Item(
        name="bell",
        guards=("bear", "boar"),
        text=(
            "A goat's bell, tied to the pack so that it speaks at every step. It is the most "
            "tiresome piece of equipment that has ever been thought of, and it works: large "
            "animals which prefer to be left alone hear it in time and leave first. Those that "
            "mean to come closer anyway are not discouraged."
        ),
    ),
    Item(
        name="horn",
        guards=("aurochs", "lynx", "eagle"),
        text=(
            "A cow's horn with a silver lip and a note that carries over valleys. Aurochs take it "
            "for a bull greater than theirs and open their ranks; the lynx slips off; the eagle "
            "stays aloft. It is blown once, at the right moment, and the traveller is assumed to "
            "know when that is."
        ),
    ),
    Item(
        name="gaiters",
        guards=("adder", "leeches"),
        text=(
            "Boiled felt from the instep to the knee, laced so tightly that a fang does not "
            "come through and a leech does not get in. They are put on in the morning, before "
            "anybody knows whether they will be needed, and this is the whole art of wearing "
            "gaiters."
        ),
    ),
    Item(
        name="sealed tin",
        guards=("fox", "raven"),
        text=(
            "A box with a lid that screws, made for tea, and large enough for all the food that "
            "the rules let anybody carry. It cannot be smelled and cannot be opened without "
            "thumbs. Neither the fox nor the raven has thumbs, though the ravens are said to be "
            "thinking about it."
        ),
    ),
    Item(
        name="snare",
        meal=1,
        text=(
            "Loops of horsehair, set in the evening along whatever small feet have trodden. The "
            "snare does not make food out of an empty country: it finds nothing more often than "
            "bare hands do. But when foraging ends in a meal it makes it a larger one, in any "
            "terrain and any season."
        ),
    ),
    Item(
        name="cooking pot",
        ration=1,
        text=(
            "Black iron with three short legs. A dry ration gnawed on the march is one thing, and "
            "the same ration simmered for an hour with herbs is another; the pot is the "
            "difference between them. It can do nothing for food that is eaten where it was "
            "found."
        ),
    ),
    Item(
        name="tent",
        warmth=1,
        text=(
            "Waxed silk, two poles, and pegs of which one is always missing. It turns the worst "
            "of the wind and keeps a little of the day's warmth, so that bitter nights bite less "
            "deep, wherever it is pitched. It makes no night sound which would not have been "
            "sound without it."
        ),
    ),
)
