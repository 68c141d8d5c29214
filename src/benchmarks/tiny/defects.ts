import type { Random } from './random.ts';

/** A small function that is wrong in one place, what it should do, and calls that tell the difference. */
export interface Defect {
  kind: string;
  /** Lines of the function as it should be; `\u0000` stands for its name. */
  right: string[];
  /** Index of the line that is wrong, and how it reads. */
  line: number;
  wrong: string;
  /** What the issue says; the name is put in front as `name`. */
  says: string;
  /** Arguments and the right result, as Python; the first call fails on the wrong function. */
  calls: [args: string, result: string][];
}

/** Stands for the function's own name in templates. */
export const NAME = '\u0000';

type Make = (random: Random, a: string, b: string) => Defect;

const numbers = (random: Random): [number, number] => {
  const low = random.int(2, 9);
  return [low, low + random.int(1, 9)];
};

const py = (value: boolean): string => (value ? 'True' : 'False');

/** Two operands and one operator. */
function operator(right: string, wrong: string, says: (random: Random, a: string, b: string) => string): Make {
  const apply = {
    '+': (x: number, y: number) => x + y,
    '-': (x: number, y: number) => x - y,
    '*': (x: number, y: number) => x * y,
  } as const;
  return (random, a, b) => {
    const [x, y] = numbers(random);
    const result = (p: number, q: number): string => String(apply[right as keyof typeof apply](p, q));
    return {
      kind: `operator ${right}`,
      right: [`def ${NAME}(${a}, ${b}):`, `    return ${a} ${right} ${b}`],
      line: 1,
      wrong: `    return ${a} ${wrong} ${b}`,
      says: says(random, a, b),
      calls: [
        [`${y}, ${x + 1}`, result(y, x + 1)],
        [`${x + 7}, 3`, result(x + 7, 3)],
      ],
    };
  };
}

/** A comparison that treats the limit itself wrongly. */
function comparison(right: string, wrong: string, says: (random: Random, a: string, b: string) => string): Make {
  const holds = {
    '<': (x: number, y: number) => x < y,
    '<=': (x: number, y: number) => x <= y,
    '>': (x: number, y: number) => x > y,
    '>=': (x: number, y: number) => x >= y,
  } as const;
  return (random, a, b) => {
    const [x, y] = numbers(random);
    const result = (p: number, q: number): string => py(holds[right as keyof typeof holds](p, q));
    return {
      kind: `comparison ${right}`,
      right: [`def ${NAME}(${a}, ${b}):`, `    return ${a} ${right} ${b}`],
      line: 1,
      wrong: `    return ${a} ${wrong} ${b}`,
      says: says(random, a, b),
      calls: [
        [`${x}, ${x}`, result(x, x)],
        [`${x}, ${y}`, result(x, y)],
        [`${y}, ${x}`, result(y, x)],
      ],
    };
  };
}

/** One word for another inside an expression over one argument. */
function word(
  kind: string,
  {
    right,
    wrong,
    says,
    calls,
  }: { right: string; wrong: string; says: (random: Random, a: string) => string; calls: [string, string][] },
): Make {
  return (random, a) => ({
    kind,
    right: [`def ${NAME}(${a}):`, `    return ${right.replaceAll('A', a)}`],
    line: 1,
    wrong: `    return ${wrong.replaceAll('A', a)}`,
    says: says(random, a),
    calls,
  });
}

export const defects: Make[] = [
  operator('+', '-', (random, a, b) =>
    random.pick([
      `should add ${a} and ${b}, but it subtracts them`,
      `must return the sum of ${a} and ${b}`,
      `gives the difference. It should add ${b} to ${a}`,
      'should use + instead of -',
    ]),
  ),
  operator('+', '*', (random, a, b) =>
    random.pick([`should add ${a} and ${b}, but it multiplies them`, `must return ${a} and ${b} added up`]),
  ),
  operator('-', '+', (random, a, b) =>
    random.pick([
      `should subtract ${b} from ${a}, but it adds them`,
      `must return ${a} less ${b}`,
      `gives the sum. It should take ${b} away from ${a}`,
    ]),
  ),
  operator('*', '+', (random, a, b) =>
    random.pick([
      `should multiply ${a} by ${b}, but it adds them`,
      `must return ${a} times ${b}`,
      `gives the sum. It should be the product of ${a} and ${b}`,
      'should use * instead of +',
    ]),
  ),
  comparison('<=', '<', (random, a, b) =>
    random.pick([
      `should allow ${a} equal to ${b}`,
      `is false when ${a} equals ${b}. It should be true`,
      `must include the limit ${b}`,
    ]),
  ),
  comparison('>=', '>', (random, a, b) =>
    random.pick([`should hold when ${a} has reached ${b}`, `misses the case that ${a} just reaches ${b}`]),
  ),
  comparison('<', '<=', (random, a, b) =>
    random.pick([
      `must not allow ${a} equal to ${b}`,
      `is true when ${a} equals ${b}. It should be false`,
      `must exclude the limit ${b}`,
    ]),
  ),
  comparison('>', '<', (random, a, b) =>
    random.pick([
      `should tell whether ${a} is above ${b}, but it tests for below`,
      `has the test the wrong way round: true means ${a} above ${b}`,
      'should use > instead of <',
    ]),
  ),
  (random, a) => {
    const [right, wrong] = random.shuffle([random.int(2, 49), random.int(50, 99)]) as [number, number];
    const x = random.int(2, 9);
    return {
      kind: 'constant',
      right: [`def ${NAME}(${a}):`, `    return ${a} * ${right}`],
      line: 1,
      wrong: `    return ${a} * ${wrong}`,
      says: random.pick([
        `should multiply ${a} by ${right}, not ${wrong}`,
        `uses ${wrong} where it should use ${right}`,
        `has the wrong factor. It must be ${right}`,
        `should use ${right} instead of ${wrong}`,
      ]),
      calls: [
        [`${x}`, String(x * right)],
        ['0', '0'],
      ],
    };
  },
  (random, a) => {
    const [right, wrong] = random.shuffle([random.int(2, 49), random.int(50, 99)]) as [number, number];
    return {
      kind: 'default',
      right: [`def ${NAME}(${a}=${right}):`, `    return ${a} + 1`],
      line: 0,
      wrong: `def ${NAME}(${a}=${wrong}):`,
      says: random.pick([
        `should take ${right} as the default of ${a}`,
        `has ${wrong} as the default of ${a}. It should be ${right}`,
      ]),
      calls: [
        ['', String(right + 1)],
        ['4', '5'],
      ],
    };
  },
  (random, a, b) => {
    const [x, y] = numbers(random);
    const larger = random.next() < 0.5;
    const [right, wrong] = larger ? ['max', 'min'] : ['min', 'max'];
    return {
      kind: 'min and max',
      right: [`def ${NAME}(${a}, ${b}):`, `    return ${right}(${a}, ${b})`],
      line: 1,
      wrong: `    return ${wrong}(${a}, ${b})`,
      says: random.pick(
        larger
          ? [`should return the larger of ${a} and ${b}`, `gives the smaller value. It must be the larger one`]
          : [`should return the smaller of ${a} and ${b}`, `gives the larger value. It must be the smaller one`],
      ),
      calls: [
        [`${x}, ${y}`, String(larger ? y : x)],
        [`${y}, ${y}`, String(y)],
      ],
    };
  },
  word('first and last', {
    right: 'A[-1]',
    wrong: 'A[0]',
    says: (random, a) =>
      random.pick([`should return the last of ${a}, not the first`, `must give the last item of ${a}`]),
    calls: [
      ['[4, 5, 6]', '6'],
      ['[7]', '7'],
    ],
  }),
  word('first and last', {
    right: 'A[0]',
    wrong: 'A[-1]',
    says: (random, a) =>
      random.pick([`should return the first of ${a}, not the last`, `must give the first item of ${a}`]),
    calls: [
      ['[4, 5, 6]', '4'],
      ['[7]', '7'],
    ],
  }),
  word('letter case', {
    right: 'A.upper()',
    wrong: 'A.lower()',
    says: (random, a) =>
      random.pick([`should return ${a} in upper case`, `gives small letters. It must give capital ones`]),
    calls: [
      ["'aB'", "'AB'"],
      ["''", "''"],
    ],
  }),
  word('letter case', {
    right: 'A.lower()',
    wrong: 'A.upper()',
    says: (random, a) =>
      random.pick([`should return ${a} in lower case`, `gives capital letters. It must give small ones`]),
    calls: [
      ["'aB'", "'ab'"],
      ["''", "''"],
    ],
  }),
  word('any and all', {
    right: 'all(A)',
    wrong: 'any(A)',
    says: (random, a) =>
      random.pick([`should be true only when every one of ${a} is`, `must need all of ${a}, not just one`]),
    calls: [
      ['[True, False]', 'False'],
      ['[True, True]', 'True'],
    ],
  }),
  word('any and all', {
    right: 'any(A)',
    wrong: 'all(A)',
    says: (random, a) =>
      random.pick([`should be true as soon as one of ${a} is`, `must need just one of ${a}, not all`]),
    calls: [
      ['[True, False]', 'True'],
      ['[False]', 'False'],
    ],
  }),
  word('negation', {
    right: 'len(A) == 0',
    wrong: 'len(A) != 0',
    says: (random, a) =>
      random.pick([`should be true when ${a} is empty`, `tells the opposite: true must mean that ${a} is empty`]),
    calls: [
      ['[]', 'True'],
      ['[1]', 'False'],
    ],
  }),
  word('range', {
    right: 'sum(range(A + 1))',
    wrong: 'sum(range(A))',
    says: (random, a) =>
      random.pick([`should add up the numbers to ${a}, ${a} included`, `leaves out ${a} itself from the sum`]),
    calls: [
      ['4', '10'],
      ['0', '0'],
    ],
  }),
  (random, a, b) => {
    const [x, y] = numbers(random);
    return {
      kind: 'variable',
      right: [`def ${NAME}(${a}, ${b}):`, `    return ${a} * 2 + ${b}`],
      line: 1,
      wrong: `    return ${a} * 2 + ${a}`,
      says: random.pick([`should add ${b} in the end, not ${a}`, `never uses ${b}. It should add ${b} to twice ${a}`]),
      calls: [
        [`${x}, ${y}`, String(x * 2 + y)],
        ['1, 1', '3'],
      ],
    };
  },
  (random, a, b) => {
    const [x, y] = numbers(random);
    return {
      kind: 'missing return',
      right: [`def ${NAME}(${a}, ${b}):`, `    return ${a} + ${b}`],
      line: 1,
      wrong: `    ${a} + ${b}`,
      says: random.pick(['returns nothing. It should return the result', `gives None, since the return is missing`]),
      calls: [
        [`${x}, ${y}`, String(x + y)],
        ['1, 1', '2'],
      ],
    };
  },
  (random, a, b) => {
    const [, y] = numbers(random);
    return {
      kind: 'condition',
      right: [`def ${NAME}(${a}, ${b}):`, `    if ${a} is None:`, `        return ${b}`, `    return ${a}`],
      line: 1,
      wrong: `    if ${a} is not None:`,
      says: random.pick([
        `should return ${b} only when ${a} is missing`,
        `has its condition the wrong way round: ${b} is for a missing ${a}`,
      ]),
      calls: [
        [`None, ${y}`, String(y)],
        [`3, ${y}`, '3'],
      ],
    };
  },
];
