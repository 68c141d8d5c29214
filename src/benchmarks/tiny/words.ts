/** Words of some rows. No two sets share a noun, so that no function, module or repository occurs in both. */
export interface Words {
  verbs: string[];
  nouns: string[];
}

const list = (text: string): string[] => text.trim().split(/\s+/);

export const words: Record<'train' | 'extra' | 'test', Words> = {
  train: {
    verbs: list('count make find get build check pick scale merge total rank trim join load plan price weigh score'),
    nouns: list(`
      apple anchor badge barrel basket beacon bottle branch bridge bucket cabin candle carpet castle cattle cellar
      circle clock cloud copper corner cotton crane crate crown daisy desert dinner dragon drawer engine fabric falcon
      farmer feather fence ferry filter finger flower forest fossil garden ginger glove grape gravel guitar hammer
      harbor helmet hinge honey insect island jacket jungle kettle kitten ladder lantern lemon letter lizard locket
      magnet maple marble market meadow melon mirror monkey motor museum needle nickel onion orbit oyster paddle
      palace parcel parrot pasture pebble pencil pepper pillow pilot planet pocket potato powder puzzle rabbit radio
      ranger ribbon river rocket saddle salmon`),
  },
  extra: {
    verbs: list('count make find get build check pick scale merge total rank trim join load plan price weigh score'),
    nouns: list(`
      abbey acrobat album alley amber antler apron aspen aster atlas axle badger bakery balloon banjo barn basin
      bazaar beaver bellows bench berry bonnet bracket brandy brick broom brush buckle bugle bunker cabbage cable
      camera canoe canvas caravan cedar cello chalk chapel chariot charm chestnut chisel clarinet clove cobalt cobra
      cocoa collar colt condor cookie crayon cricket crow cuckoo cypress dahlia dairy delta diamond ditch dome drum
      easel echo elbow elder elm envelope fjord flask fleece flint foal fountain fox frost gallery gazelle geyser
      gopher gorge gourd grotto gull hamlet harp hawk hedge helm hill hive hood horn husk inkwell iris jaguar jasper
      jelly juniper kayak keel kiosk kite koala lace lake lark lava lilac lime linen lodge loom lynx`),
  },
  test: {
    verbs: list(
      'sum create search fetch form probe choose grow blend gather order clip link read draft cost measure grade',
    ),
    nouns: list(`
      acorn almond alpine armor arrow bamboo banner barley bishop blanket blossom border bronze bubble butter button
      cactus camel canal canyon carbon carrot cherry chimney cider cinema cliff clover coast coffee comet compass coral
      cousin cradle crystal curtain dagger dealer dolphin donkey eagle ember estate fiddle flame flute galaxy garlic
      glacier goblet granite gravy hazel heron hockey hunter igloo ivory jasmine jewel kennel kernel lagoon lettuce
      lobster lotus mango mantle mason medal mitten mosaic muffin nectar oasis olive orchid otter panther peach
      pelican pigeon plaza plum pony prism pumpkin quartz quiver raven saffron sailor scarf shovel silver spider
      spruce statue summit temple thunder timber tunnel turtle valley velvet violin walnut willow`),
  },
};
