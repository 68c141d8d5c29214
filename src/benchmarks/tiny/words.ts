import type { Random } from './random.ts';

/** Words of some rows. No two sets share a noun, so that no function, module or repository occurs in both. */
export interface Words {
  verbs: string[];
  nouns: string[];
}

const list = (text: string): string[] => text.trim().split(/\s+/);

export const words: Record<'train' | 'test', Words> = {
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

const SYLLABLES =
  'a al am an ap ar as ba bad ban bar be bel bin bo bon bra bu ca can car ce cha chi clo co com cor cra da de den di do dra du e el em en er es fa fe fi fla fo fra ga gar ge gi gla go gra ha har he ho i im in is ja ji jo ka ke ki la lan le len li lo lu ma man mar me men mi mo mon mu na ne ni no nu o ol on or os pa pan par pe pen pi pla po pri pu qua ra ran re ri ro ru sa san se shi si ska so spi sta ste su ta tan te ter ti tle to tra tu u ul um va ven ver vi vo wa wi wo ya ze zo'.split(
    ' ',
  );

const ENDINGS = ['', '', 'n', 'r', 's', 't', 'l', 'ge', 'le', 'ck', 'st', 'y'];

/** A word nobody has seen: what is learnt is to copy, not to know. */
export function makeWord(source: Random): string {
  const parts = Array.from({ length: source.int(2, 3) }, () => source.pick(SYLLABLES));
  return parts.join('') + source.pick(ENDINGS);
}

/** So many nouns that nobody has seen, none of them in a list above; long enough not to be a word of Python. */
export function madeWords(count: number, source: Random): Words {
  const known = new Set([...words.train.nouns, ...words.test.nouns]);
  const nouns = new Set<string>();
  while (nouns.size < count) {
    const word = makeWord(source);
    if (word.length >= 5 && !known.has(word)) nouns.add(word);
  }
  return { verbs: words.train.verbs, nouns: [...nouns] };
}
