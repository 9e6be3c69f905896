"""Short texts of general English, by which ``tmln retention --texts general`` measures a model."""

GENERAL = (
    "Water boils when bubbles of vapour form inside it. At sea level that happens at about one hundred degrees "
    "Celsius; on a high mountain the air presses less, and the kettle boils earlier, which is why potatoes take "
    "longer there.",
    "Once upon a time there was a girl who lived at the edge of a forest. Every morning she fed the birds, and one "
    "winter, when the snow was deep, the birds came back and brought her berries from the other side of the hill.",
    "The train to the coast leaves from platform four at ten past nine. Passengers who want to change for the "
    "islands should sit in the first two carriages, because the others stay at the junction.",
    "To make a simple bread, mix flour, water, salt and a little yeast. Let the dough rest overnight, fold it "
    "twice, and bake it in a very hot oven until the crust is dark and the loaf sounds hollow when you knock on it.",
    "The committee met on Tuesday to discuss the budget for the library. Most members wanted longer opening hours, "
    "but the treasurer explained that there was only enough money for one more evening a week.",
    "A bicycle stays upright mainly because its rider steers, without noticing, into the direction of a fall. At "
    "walking pace this is hard; at speed small movements of the handlebars are enough.",
    "Dear Anna, thank you for your letter and for the photographs. The children have put the one with the dog on "
    "the kitchen wall. We hope to visit you in spring, when the roads are dry and the garden is green again.",
    "In a democracy citizens choose their government by voting. The law applies to those who govern as it does to "
    "everyone else, and courts that are independent of the government decide whether it has been broken.",
    "The heart is a muscle that pumps blood through the body. Blood that comes back from the organs is sent to the "
    "lungs, where it gives off carbon dioxide and takes up oxygen before it is pumped out again.",
    "If you lose your key, call the office before five o'clock. After that the night porter has a list of all "
    "rooms; he will ask for your name and a document with a picture, and then open the door for you.",
    "The price of coffee rose for the third month in a row. Traders said that a dry season had damaged the harvest, "
    "and that stocks in the large ports were lower than they had been for ten years.",
    "Tom and his brother wanted to build a boat. They found some planks behind the barn, borrowed a hammer from "
    "their neighbour, and worked until it was dark. In the morning the boat floated for a minute, and then it sank.",
    "A prime number can be divided without remainder only by one and by itself. There are infinitely many of them: "
    "if there were a last one, the product of all primes plus one would have a prime factor that is not on the "
    "list.",
    "The old bridge was closed in autumn after engineers had found cracks in two of its pillars. Until the repairs "
    "are finished, lorries have to take the road through the valley, which adds about twenty minutes.",
    "Plants make sugar from light, water and carbon dioxide. They do so in their green parts during the day; at "
    "night they use some of the sugar themselves, and breathe much as animals do.",
    "She opened the window and listened. Somewhere below, a door closed, and footsteps went quickly across the "
    "yard. Then there was nothing but the rain on the roof and the slow ticking of the clock in the hall.",
    "The home team scored in the first minute and then defended for almost the whole game. The visitors hit the "
    "post twice, but their goalkeeper could not stop the second goal shortly before the end.",
    "To install the program, download the archive, unpack it into an empty folder, and run the setup script. It "
    "checks which libraries are missing and asks before it changes anything on your computer.",
    "The city grew rich in the fourteenth century, when merchants brought wool, salt and spices through its "
    "harbour. Many of the tall brick houses along the canal were built in those years.",
    "Penguins are birds that cannot fly, but under water they move as if they did. Their wings have become stiff "
    "flippers, and thick layers of fat and feathers keep them warm in the cold sea.",
    "Please take one tablet in the morning with a glass of water. Do not take more than the doctor has prescribed, "
    "and ask a pharmacist if you feel dizzy or if you have forgotten a dose.",
    "The Earth moves round the Sun once a year, and turns round itself once a day. Because its axis is tilted, one "
    "half of the globe gets more light for some months, and the other half in the months that follow.",
    "My grandmother kept her recipes in a small tin box. None of them said how much of anything to take: a handful "
    "of this, a cup of that, and bake it until it smells right. Nobody else ever made them taste the same.",
    "The court found that the contract had not been signed by both parties and was therefore not valid. The company "
    "was ordered to return the deposit, and to pay the costs of the proceedings.",
)
