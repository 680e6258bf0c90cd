"""The table of creatures."""

from __future__ import annotations

from games.expedition.schema import Creature, Effect

CREATURES = (
    Creature(
        name="adder",
        effect=Effect(energy=-2),
        meeting="an adder, which strikes at the ankle",
        text=(
            "Short, brown, and asleep in exactly the warm spot where a foot is about to be put. "
            "The adder of these lands seldom kills, but the leg swells and the march becomes a "
            "limp until evening. It lives where sun reaches bare ground, in heather and in sand, "
            "and it cannot be reasoned with, only heard too late. Stout cloth about the shins is "
            "all the answer it needs."
        ),
    ),
    Creature(
        name="aurochs",
        effect=Effect(west=True),
        meeting="a herd of aurochs, which will not let anybody pass",
        text=(
            "The wild cattle of the meadows, black, tall as a door, and of the opinion that the "
            "grass belongs to them. They do not gore a traveller who gives way; they merely "
            "advance, shoulder to shoulder, until the intruder is back where the sun goes down. "
            "A herd costs no strength, then, but it costs ground. On the western edge there is "
            "nowhere left to be driven to, and the meeting ends in staring."
        ),
    ),
    Creature(
        name="bats",
        effect=Effect(energy=-1),
        meeting="a cloud of bats, which leaves no peace until dawn",
        text=(
            "They hang under the overhangs of the gorges in their thousands and come out all at "
            "once. Nobody has been harmed by them, and nobody has slept through them: the "
            "evening goes into moving the camp, and moving it again. They avoid a light that is "
            "carried, and travellers who keep one burning hardly notice that the roof above them "
            "is alive."
        ),
    ),
    Creature(
        name="bear",
        effect=Effect(energy=-3),
        meeting="a bear, and leaves by the nearest tree",
        text=(
            "Not an enemy but an owner. The brown bear of the forests wants berries, honey and "
            "quiet, and resents whoever stumbles into them. A charge is nearly always a bluff; "
            "still, the flight that answers it, uphill, through timber, with a pack, is the most "
            "exhausting thing that any creature can do to a traveller. A bear that has been told "
            "of somebody's coming is gone before they arrive."
        ),
    ),
    Creature(
        name="bees",
        effect=Effect(energy=1),
        meeting="wild bees, and takes a comb of their honey",
        text=(
            "Where flowers are thick and an old trunk stands near, there is likely to be a nest. "
            "The bees of this country are mild as long as the smoke of a handful of damp grass "
            "is held before them, and leave a comb to those who ask in that manner. Honey does "
            "not keep in a pack on the march; it is eaten there and then, with the fingers."
        ),
    ),
    Creature(
        name="boar",
        effect=Effect(energy=-2),
        meeting="a boar, which charges out of the undergrowth",
        text=(
            "A boar hears ill, sees worse, and charges what it does not understand. In thickets "
            "and under old trees the warning is a crash, and after it there is time for a leap "
            "and for little else. The bruises are real. Like the bear, it would rather not have "
            "met anybody, and a sound that announces the traveller from afar is enough to send "
            "the whole sounder elsewhere."
        ),
    ),
    Creature(
        name="crane",
        effect=Effect(energy=1),
        meeting="cranes, and follows them to dry ground",
        text=(
            "Grey, grave and loud. Cranes sleep standing in shallow water and feed on firm banks, "
            "and every evening they walk from the one to the other by the only way there is. "
            "Whoever follows at a distance is led around the soft places of marsh and shore, and "
            "finds at the end a dry spot with a view. It is held to bring misfortune to disturb "
            "them, and no rule of this book allows it."
        ),
    ),
    Creature(
        name="eagle",
        effect=Effect(energy=-1),
        meeting="an eagle, which stoops again and again above its nest",
        text=(
            "The ridges belong to a pair every few miles, and to their young from spring until "
            "the first snow; in the other months the eagles defend the place out of habit. They "
            "do not touch a grown person. They come close enough, though, to make that person lie "
            "flat on the stones a dozen times in an hour, and flat on the stones is no way to "
            "get along. A loud blast of sound keeps them high."
        ),
    ),
    Creature(
        name="fox",
        effect=Effect(rations=-1),
        meeting="a fox, which has been in the pack before anybody woke",
        text=(
            "Seen at dusk, sitting at a polite distance with its brush about its feet. By "
            "morning the straps are undone and the best of the food is gone, and there is no "
            "other trace. A fox takes one thing at a time and wants nothing but food, so that a "
            "traveller who has no ration left loses nothing. What it cannot smell it does not "
            "look for."
        ),
    ),
    Creature(
        name="hermit",
        effect=Effect(rations=1),
        meeting="a hermit, who shares bread and asks for news",
        text=(
            "Somebody lives in the ruins, or several people do who resemble one another. The "
            "hermit bakes, keeps goats, has read everything that was left behind, and longs to "
            "hear how it goes on in the world. For an evening's talk the guest gets bread for the "
            "road. A pack that is already full is not made fuller, and the hermit, refused, talks "
            "all the longer."
        ),
    ),
    Creature(
        name="ibex",
        effect=Effect(energy=1),
        meeting="ibex, and learns from them where the ledges are",
        text=(
            "Horned, unhurried, and at home where a fall would be long. A herd of ibex moving "
            "along a face shows, better than any map, which ledge leads on and which ends in the "
            "air. They do not mind being followed, since they know that sooner or later they will "
            "jump across something that ends the pursuit. Until then they save the traveller a "
            "good deal of climbing up and back."
        ),
    ),
    Creature(
        name="leeches",
        effect=Effect(energy=-1),
        meeting="leeches, and notices them in the evening",
        text=(
            "They wait in standing and slow water and cannot be felt until they have finished. "
            "One is nothing; an evening spent removing them by the fire, and a night of itching "
            "and small wounds, is something. In a marsh no other meeting is likelier. Cloth that "
            "closes tightly below the knee keeps out what climbs from the mud, and nothing else "
            "has ever been found to help."
        ),
    ),
    Creature(
        name="lynx",
        effect=Effect(energy=-2),
        meeting="a lynx, whose eyes stay at the edge of the camp",
        text=(
            "The great cat of stones and snow does not attack people. It follows them, for days "
            "if need be, and at night the light of the fire comes back from its eyes. No one has "
            "ever slept in front of those eyes. The traveller who sits up until morning with a "
            "stick across the knees has lost what a night is for; a blast of noise, when it first "
            "appears, usually settles the matter."
        ),
    ),
    Creature(
        name="otter",
        effect=Effect(rations=1),
        meeting="an otter, and picks up the fish that it forgot",
        text=(
            "It fishes for sport and leaves on the bank more than it eats. A traveller who sits "
            "still while an otter is at play walks away with a fat trout, cleaned and packed in "
            "wet leaves, that keeps like any other ration. Otters are found along rivers and "
            "lakes wherever the water is clear. They are the best omen that the wet lands have, "
            "and the only one that can be eaten."
        ),
    ),
    Creature(
        name="raven",
        effect=Effect(rations=-1),
        meeting="a raven, which opens the pack as if it had been shown how",
        text=(
            "The ravens of gorge and ruin have watched people for longer than people have watched "
            "them. Buckles, knots and lids do not delay them; one talks to the traveller while "
            "the other works. As with the fox, what is lost is a ration, if there is one. A "
            "closed box without a smell bores them, and they fly off with remarks."
        ),
    ),
    Creature(
        name="wolves",
        effect=Effect(energy=-2),
        meeting="wolves, and keeps walking until they lose interest",
        text=(
            "First a voice, then an answer from the other side. A pack on the moor or the snow "
            "takes an interest in whatever moves alone, and keeps pace with it, just out of "
            "reach, to see whether it tires. It must not be seen to tire. Hours are walked that "
            "nobody had planned to walk. Wolves do not come near a steady light, and where one is "
            "carried their interest fades quickly."
        ),
    ),
)
