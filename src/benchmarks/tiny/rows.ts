import { createHash } from 'node:crypto';
import { type Defect, defects, NAME } from './defects.ts';
import { addedFile, replacedLines } from './diff.ts';
import { type Random, random } from './random.ts';
import { madeWords, type Words, words } from './words.ts';

/** A row in SWE-bench's format, with the files of the base commit and how to run the tests beside it. */
export interface Row {
  instance_id: string;
  repo: string;
  base_commit: string;
  problem_statement: string;
  patch: string;
  test_patch: string;
  FAIL_TO_PASS: string[];
  PASS_TO_PASS: string[];
  version: string;
  files: Record<string, string>;
  eval_script: string;
  eval_timeout_s: number;
  log_parser: string;
}

const SEEDS = { train: 0, test: 1, extra: 2 ** 20 };

/**
 * Splits differ in words and in seed; the same seed gives the same rows. At most 300 of train and test; the words of
 * extra are made up, and suffice for any number.
 */
export function tinyRows(split: keyof typeof SEEDS, { count, seed }: { count: number; seed: number }): Row[] {
  const source = random(seed * 2 + SEEDS[split]);
  const vocabulary = split === 'extra' ? madeWords(100 + 2 * count, source) : words[split];
  const names = functionNames(vocabulary, source);
  return Array.from({ length: count }, (_, index) => makeRow(index, { split, source, vocabulary, names }));
}

/** Every function name of a split occurs once. */
function functionNames({ verbs, nouns }: Words, source: Random): () => string {
  const all = source.shuffle(verbs.flatMap((verb) => nouns.map((noun) => `${verb}_${noun}`)));
  return () => {
    const name = all.pop();
    if (name === undefined) throw new RangeError('the words are used up: ask for fewer tasks');
    return name;
  };
}

interface Written {
  name: string;
  defect: Defect;
}

function makeRow(
  index: number,
  { split, source, vocabulary, names }: { split: string; source: Random; vocabulary: Words; names: () => string },
): Row {
  const [pack, ...rest] = source.shuffle(vocabulary.nouns) as [string, ...string[]];
  const modules = rest.splice(0, 3);
  const write = (): Written => {
    const [a, b] = source.shuffle(rest) as [string, string];
    return { name: names(), defect: source.pick(defects)(source, a, b) };
  };
  const functions = modules.map(() => Array.from({ length: source.int(1, 3) }, write));
  const broken = source.int(0, modules.length - 1);
  const target = source.pick(functions[broken]!);
  // One task in ten hides the wrong line behind a function of another module that only calls it.
  const outer =
    source.next() < 0.1 && target.defect.kind !== 'default'
      ? { name: names(), module: (broken + 1) % modules.length }
      : null;
  const asked = outer?.name ?? target.name;
  const filesOf = (fixed: boolean): Map<string, string[]> =>
    new Map(
      modules.map((module, position) => {
        const lines = functions[position]!.flatMap(({ name, defect }) => {
          const body = defect.right.map((line, at) =>
            name === target.name && !fixed && at === defect.line ? defect.wrong : line,
          );
          return [...body.map((line) => line.replaceAll(NAME, name)), '', ''];
        });
        if (outer?.module === position) {
          const parameters = target.defect.right[0]!.match(/\((.*)\):$/)![1]!;
          lines.unshift(`from ${pack}.${modules[broken]} import ${target.name}`, '', '');
          lines.push(`def ${outer.name}(${parameters}):`, `    return ${target.name}(${parameters})`);
        }
        while (lines.at(-1) === '') lines.pop();
        return [`${pack}/${module}.py`, lines];
      }),
    );
  const before = filesOf(false);
  const after = filesOf(true);
  const visible = functions.flatMap((list, position) =>
    list.filter(({ name }) => name !== target.name).map((each) => ({ ...each, module: modules[position]! })),
  );
  const shown = visible.slice(0, 2);
  const askedModule = outer ? modules[outer.module]! : modules[broken]!;
  const hidden = testFile(pack, 'TestIssue', [{ name: asked, module: askedModule, calls: target.defect.calls }]);
  const files: Record<string, string> = { [`${pack}/__init__.py`]: '', 'tests/__init__.py': '' };
  for (const [path, lines] of before) files[path] = `${lines.join('\n')}\n`;
  if (shown.length > 0) {
    files['tests/test_base.py'] = `${testFile(
      pack,
      'TestBase',
      shown.map(({ name, module, defect }) => ({ name, module, calls: defect.calls })),
    ).join('\n')}\n`;
  }
  const path = `${pack}/${modules[broken]}.py`;
  const id = `tiny__${pack}-${split}-${index}`;
  return {
    instance_id: id,
    repo: `tiny/${pack}`,
    base_commit: createHash('sha1').update(JSON.stringify(files)).digest('hex'),
    problem_statement: `\`${asked}\` ${target.defect.says}.`,
    patch: replacedLines(path, before.get(path)!, after.get(path)!),
    test_patch: addedFile('tests/test_issue.py', hidden),
    FAIL_TO_PASS: [`tests.test_issue.TestIssue.test_${asked}`],
    PASS_TO_PASS: shown.map(({ name }) => `tests.test_base.TestBase.test_${name}`),
    version: '1',
    files,
    eval_script: `python3 -S -B -m unittest -v tests.test_issue ${shown.length > 0 ? 'tests.test_base' : ''}`.trim(),
    eval_timeout_s: 20,
    log_parser: 'unittest',
  };
}

function testFile(
  pack: string,
  suite: string,
  tested: { name: string; module: string; calls: [string, string][] }[],
): string[] {
  return [
    'import unittest',
    ...tested.map(({ name, module }) => `from ${pack}.${module} import ${name}`),
    '',
    '',
    `class ${suite}(unittest.TestCase):`,
    ...tested.flatMap(({ name, calls }) => [
      `    def test_${name}(self):`,
      ...calls.map(([args, result]) => `        self.assertEqual(${name}(${args}), ${result})`),
      '',
    ]),
  ].slice(0, -1);
}
