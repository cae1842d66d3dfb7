// The classes of the picture sets, in the order of their labels.
#include "apps/data/cifar.h"
#include "runtime/error.h"

namespace weft {
namespace {

using Names = std::vector<std::string>;

const Names cifar_10 = {"airplane", "automobile", "bird",  "cat",  "deer",
                        "dog",      "frog",       "horse", "ship", "truck"};

const Names cifar_100 = {
    "apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
    "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
    "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
    "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
    "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
    "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
    "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
    "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
    "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
    "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
    "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
    "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
    "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
    "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
    "table",       "tank",          "telephone", "television", "tiger",        "tractor",
    "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
    "willow_tree", "wolf",          "woman",     "worm"};

const Names cifar_100_coarse = {"aquatic_mammals",
                                "fish",
                                "flowers",
                                "food_containers",
                                "fruit_and_vegetables",
                                "household_electrical_devices",
                                "household_furniture",
                                "insects",
                                "large_carnivores",
                                "large_man-made_outdoor_things",
                                "large_natural_outdoor_scenes",
                                "large_omnivores_and_herbivores",
                                "medium_mammals",
                                "non-insect_invertebrates",
                                "people",
                                "reptiles",
                                "small_mammals",
                                "trees",
                                "vehicles_1",
                                "vehicles_2"};

const Names builtin = {"disc",  "ring",    "square", "frame",   "triangle",
                       "cross", "saltire", "rows",   "columns", "checks"};

}  // namespace

const Names& class_names(const std::string& set) {
  if (set == "cifar-10") return cifar_10;
  if (set == "cifar-100") return cifar_100;
  if (set == "cifar-100-coarse") return cifar_100_coarse;
  require(set == "builtin", "there is no set of pictures '{}'", set);
  return builtin;
}

}  // namespace weft
