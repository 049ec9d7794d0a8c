"""Which emoji show an animal and which show food, by their English names."""

from __future__ import annotations

_ANIMALS = """
T-Rex, ant, baby chick, badger, bat, bear, beaver, beetle, bird, bison, blowfish, boar, bug, butterfly, camel, cat,
cat face, chicken, chipmunk, cockroach, cow, cow face, cricket, crocodile, deer, dodo, dog, dog face, dolphin,
donkey, dove, duck, eagle, elephant, ewe, fish, flamingo, fly, fox, frog, front-facing baby chick, giraffe, goat,
goose, gorilla, guide dog, hamster, hatching chick, hedgehog, hippopotamus, honeybee, horse, horse face, jellyfish,
kangaroo, koala, lady beetle, leopard, lion, lizard, llama, mammoth, monkey, monkey face, moose, mosquito, mouse,
mouse face, octopus, orangutan, otter, owl, ox, panda, parrot, peacock, penguin, pig, pig face, poodle, rabbit,
rabbit face, raccoon, ram, rat, rhinoceros, rooster, sauropod, scorpion, seal, shark, skunk, sloth, snail, snake,
spider, spouting whale, swan, tiger, tiger face, tropical fish, turkey, turtle, two-hump camel, unicorn, water
buffalo, whale, wolf, worm, zebra
"""

_FOOD = """
avocado, bacon, bagel, baguette bread, banana, beans, bell pepper, bento box, birthday cake, blueberries, bread,
broccoli, burrito, butter, candy, canned food, carrot, cheese wedge, cherries, chestnut, chocolate bar, coconut,
cooked rice, cookie, cooking, croissant, cucumber, cupcake, curry rice, custard, dango, doughnut, dumpling, ear of
corn, egg, eggplant, falafel, fish cake with swirl, flatbread, fondue, fortune cookie, french fries, fried shrimp,
garlic, ginger root, grapes, green apple, green salad, hamburger, honey pot, hot dog, hot pepper, ice cream, kiwi
fruit, leafy green, lemon, lollipop, mango, meat on bone, melon, moon cake, mushroom, oden, olive, onion, pancakes,
pea pod, peach, peanuts, pear, pie, pineapple, pizza, popcorn, pot of food, potato, poultry leg, pretzel, red apple,
rice ball, rice cracker, roasted sweet potato, salt, sandwich, shallow pan of food, shaved ice, shortcake, soft ice
cream, spaghetti, steaming bowl, strawberry, stuffed flatbread, sushi, taco, takeout box, tamale, tangerine, tomato,
waffle, watermelon
"""

ANIMALS = tuple(" ".join(name.split()) for name in _ANIMALS.split(","))
FOOD = tuple(" ".join(name.split()) for name in _FOOD.split(","))
