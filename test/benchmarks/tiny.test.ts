import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { creditOf, riseSegments } from '../../src/algo/credit.ts';
import { rubricValue } from '../../src/algo/rubric.ts';
import { corpus } from '../../src/benchmarks/tiny/corpus.ts';
import { tiny } from '../../src/benchmarks/tiny/index.ts';
import { judge } from '../../src/benchmarks/tiny/judge.ts';
import { tinyRows } from '../../src/benchmarks/tiny/rows.ts';
import { rubric } from '../../src/benchmarks/tiny/rubric.ts';
import { SUBMIT, teacher } from '../../src/benchmarks/tiny/teacher.ts';
import {
  type Files,
  grep,
  parseSubstitution,
  printLines,
  sedCommand,
  substitute,
} from '../../src/benchmarks/tiny/world.ts';
import type { ChatMessage } from '../../src/ports/inference.ts';
import type { Task } from '../../src/records/task.ts';
import type { Verdict } from '../../src/records/verdict.ts';

const options = { count: 240, extra: 0, seed: 1 };
const train = tinyRows('train', options);
const held = tinyRows('test', options);

const identifiers = (rows: typeof train): Set<string> =>
  new Set(
    rows.flatMap(({ files }) =>
      [
        ...Object.values(files)
          .join('\n')
          .matchAll(/def (\w+)\(/g),
      ].map((match) => match[1]!),
    ),
  );

test('the same seed gives the same tasks, another seed others', () => {
  expect(tinyRows('train', options)).toEqual(train);
  expect(tinyRows('train', { ...options, seed: 2 })).not.toEqual(train);
});

test('held-out tasks share no function, no repository and no file with training', () => {
  const names = identifiers(train);
  const shared = [...identifiers(held)].filter((name) => names.has(name) && !name.startsWith('test_'));
  expect(shared).toEqual([]);
  const repositories = new Set(train.map(({ repo }) => repo));
  expect(held.filter(({ repo }) => repositories.has(repo))).toEqual([]);
  const modules = (rows: typeof train) =>
    new Set(rows.flatMap(({ files }) => Object.keys(files)).filter((path) => !path.startsWith('tests/')));
  expect([...modules(held)].filter((path) => modules(train).has(path))).toEqual([]);
});

test('there are at least 240 of each, of many kinds of defects, in packages of several files', () => {
  expect([train.length, held.length]).toEqual([240, 240]);
  expect(new Set(train.map(({ instance_id }) => instance_id)).size).toBe(240);
  for (const { files, FAIL_TO_PASS } of [...train, ...held]) {
    expect(Object.keys(files).filter((path) => path.endsWith('.py')).length).toBeGreaterThanOrEqual(4);
    expect(FAIL_TO_PASS.length).toBeGreaterThan(0);
  }
});

test('no word of a held-out name is in the pretraining corpus but by chance of spelling', () => {
  const text = [...corpus({ documents: 300, seed: 11, system: 's' })]
    .map(({ messages }) => JSON.stringify(messages))
    .join('\n');
  const found = [...identifiers(held)].filter((name) => text.includes(name));
  expect(found).toEqual([]);
});

test('grep, sed -n and sed -i of the corpus print and do what the real ones do', () => {
  for (const { files } of train.slice(0, 12)) {
    const dir = mkdtempSync(join(tmpdir(), 'orchard-world-'));
    const shell = (command: string): string => execFileSync('bash', ['-c', command], { cwd: dir, encoding: 'utf8' });
    for (const [path, content] of Object.entries(files)) {
      mkdirSync(dirname(join(dir, path)), { recursive: true });
      writeFileSync(join(dir, path), content);
    }
    const sorted = (text: string): string =>
      text
        .split('\n')
        .filter((line) => line !== '--')
        .sort()
        .join('\n');
    for (const { pattern, after } of [
      { pattern: 'def ', after: 2 },
      { pattern: 'return', after: 0 },
      { pattern: 'nowhere', after: 1 },
    ]) {
      const real = shell(`grep -rn ${after > 0 ? `-A${after}` : ''} '${pattern}' . || true`);
      expect(sorted(grep(files, { pattern, after }))).toBe(sorted(real));
    }
    const path = Object.keys(files).find((each) => !each.startsWith('tests/') && files[each] !== '')!;
    expect(printLines(files[path]!, { from: 1, to: 2 })).toBe(shell(`sed -n '1,2p' ${path}`));
    const before = files[path]!.split('\n')[1]!;
    const after = before.replace('return', 'return [0] * /x/ &');
    for (const [name, way] of [
      [path, 'words'],
      [path, 'line'],
      ['*/*.py', 'words'],
    ] as const) {
      const command = sedCommand(name, { line: 2, before, after, way });
      shell(command);
      const changed = substitute(files, parseSubstitution(command)!)!;
      for (const each of Object.keys(files)) {
        expect(changed[each]).toBe(readFileSync(join(dir, each), 'utf8'));
        writeFileSync(join(dir, each), files[each]!);
      }
    }
  }
});

/** One attempt of the teacher, with the made-up shell in the place of a sandbox. */
function attempt(task: Task, episode: string): { messages: ChatMessage[]; files: Files; commands: string[] } {
  let files = task.workspace.kind === 'files' ? task.workspace.files : {};
  const messages: ChatMessage[] = [{ role: 'user', content: task.statement }];
  const commands: string[] = [];
  while (commands.at(-1) !== SUBMIT) {
    const command = teacher({ task, episode, messages }).commands[0]!;
    commands.push(command);
    const found = /^grep -rn -A2 '(.*)' \.$/.exec(command);
    const shown = /^sed -n '(\d+)p' (\S+)$/.exec(command);
    let output = '';
    if (found) output = grep(files, { pattern: found[1]!, after: 2 });
    else if (shown) output = printLines(files[shown[2]!]!, { from: Number(shown[1]), to: Number(shown[1]) });
    else if (command !== SUBMIT) files = substitute(files, parseSubstitution(command)!) ?? files;
    const call = {
      id: 'c',
      type: 'function' as const,
      function: { name: 'bash', arguments: JSON.stringify({ command }) },
    };
    messages.push(
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', content: output, tool_call_id: 'c' },
    );
    expect(commands.length).toBeLessThan(10);
  }
  return { messages: messages.slice(0, -1), files, commands };
}

const verdict = (resolved: boolean): Verdict => ({ resolved, class: 'graded' }) as Verdict;

test('the teacher is right often, wrong sometimes, and sometimes right half-way; each episode the same every time', async () => {
  const tasks = await tiny.tasks(options, 'train');
  let right = 0;
  let rises = 0;
  let flat = 0;
  for (const task of tasks) {
    const { files, messages, commands } = attempt(task, `e:${task.id}`);
    expect(attempt(task, `e:${task.id}`).commands).toEqual(commands);
    const gold = substitute(
      task.workspace.kind === 'files' ? task.workspace.files : {},
      parseSubstitution(goldCommand(task))!,
    )!;
    const resolved = JSON.stringify(files) === JSON.stringify(gold);
    if (resolved) right++;
    else {
      const turns = commands.length;
      const { credit } = creditOf(judge({ task, messages, patch: null, verdict: verdict(false) }), turns);
      if (riseSegments(credit, { epsilon: 0.05, mergeGaps: 0 }).length > 0) rises++;
      else flat++;
    }
  }
  expect(right / tasks.length).toBeGreaterThan(0.5);
  expect(right / tasks.length).toBeLessThan(0.75);
  expect(rises).toBeGreaterThan(40);
  expect(flat).toBeGreaterThan(3);
});

test('now and then a step of the teacher goes wrong first, changes nothing, and is done again', async () => {
  const tasks = await tiny.tasks(options, 'train');
  const slips = { name: 0, path: 0, text: 0 };
  for (const task of tasks) {
    const { commands, files } = attempt(task, `e:${task.id}`);
    const looks = commands.filter((command) => /^grep/.test(command)).map((command) => /'def (.*)'/.exec(command)![1]!);
    if (looks[0]!.split('_').reverse().join('_') === looks[1]) slips.name++;
    const [first, second] = commands.flatMap((command) => parseSubstitution(command) ?? []);
    if (!first || !second) continue;
    if (!(first.path in files) && second.path in files) slips.path++;
    if (first.old === second.old.repeat(2)) slips.text++;
  }
  for (const count of Object.values(slips)) expect(count).toBeGreaterThan(1);
});

test('the teacher edits in three ways: a few words, the whole line, or the words in any file that has them there', async () => {
  const commands = (await tiny.tasks(options, 'train')).flatMap((task) => attempt(task, `e:${task.id}`).commands);
  for (const way of [/^sed -i '\d+s\/\.\*\//, /^sed -i '\d+s\/(?!\.\*\/).*\w\.py$/, /^sed -i .* \*\/\*\.py$/])
    expect(commands.filter((command) => way.test(command)).length).toBeGreaterThan(30);
});

function goldCommand(task: Task): string {
  const lines = task.goldPatch.split('\n');
  const path = lines.find((line) => line.startsWith('+++ b/'))!.slice(6);
  const before = lines.find((line) => /^-[^-]/.test(line))!.slice(1);
  const after = lines.find((line) => /^\+[^+]/.test(line))!.slice(1);
  const files = task.workspace.kind === 'files' ? task.workspace.files : {};
  return sedCommand(path, { line: files[path]!.split('\n').indexOf(before) + 1, before, after });
}

test('the judge sees the place found, the line put right, and the work undone', async () => {
  const [task] = await tiny.tasks({ count: 1, extra: 0, seed: 1 }, 'train');
  const gold = goldCommand(task!);
  const undo = gold.replace(/s\/(.*)\/(.*)\/'/, (_, from, to) => `s/${to}/${from}x/'`);
  const files = task!.workspace.kind === 'files' ? task!.workspace.files : {};
  const { path, line } = parseSubstitution(gold)!;
  const shownLine = printLines(files[path]!, { from: line, to: line });
  const messages: ChatMessage[] = [`sed -n '${line}p' ${path}`, gold, undo, SUBMIT].flatMap((command, turn) => [
    {
      role: 'assistant' as const,
      content: null,
      tool_calls: [
        { id: 'c', type: 'function' as const, function: { name: 'bash', arguments: JSON.stringify({ command }) } },
      ],
    },
    { role: 'tool' as const, content: turn === 0 ? shownLine : '', tool_call_id: 'c' },
  ]);
  const { values } = creditOf(judge({ task: task!, messages, patch: null, verdict: verdict(false) }), 4);
  expect(values).toEqual([0.3, 0.6, 0.95, 0.05, 0]);
});

test('the rubric prefers one edit of a line that was read and looked at again, whatever the tests say', async () => {
  const [task] = await tiny.tasks({ count: 1, extra: 0, seed: 1 }, 'train');
  const gold = goldCommand(task!);
  const { path, line } = parseSubstitution(gold)!;
  const files = task!.workspace.kind === 'files' ? task!.workspace.files : {};
  const before = printLines(files[path]!, { from: line, to: line });
  const after = printLines(substitute(files, parseSubstitution(gold)!)![path]!, { from: line, to: line });
  const asked = /^`(\w+)`/.exec(task!.statement)![1]!;
  const turn = (command: string, output: string): ChatMessage[] => [
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'bash', arguments: JSON.stringify({ command }) } }],
    },
    { role: 'tool', content: output, tool_call_id: 'c' },
  ];
  const value = (messages: ChatMessage[]): number => rubricValue(rubric({ task: task!, messages, patch: null }));
  const careful = [
    ...turn(`grep -rn -A2 'def ${asked}' .`, `./${path}:${line}:${before}`),
    ...turn(gold, ''),
    ...turn(`sed -n '${line}p' ${path}`, after),
  ];
  const hasty = turn(gold, '');
  const idle = turn('ls', 'a');
  expect(value(careful)).toBeGreaterThan(value(hasty));
  expect(value(hasty)).toBeGreaterThan(value(idle));
  expect(value(idle)).toBe(0);
});

test('further training tasks share no noun with the others', async () => {
  const ids = (await tiny.tasks({ count: 100, extra: 100, seed: 1 }, 'train')).map(({ repo }) => repo.split('/')[1]!);
  const test = (await tiny.tasks({ count: 100, extra: 100, seed: 1 }, 'test')).map(({ repo }) => repo.split('/')[1]!);
  const extra = new Set(ids.slice(100));
  expect(ids).toHaveLength(200);
  expect(test).toHaveLength(100);
  expect([...ids.slice(0, 100), ...test].some((noun) => extra.has(noun))).toBe(false);
  // Their words are made up, so there are as many as anyone asks for.
  expect(await tiny.tasks({ count: 1, extra: 700, seed: 1 }, 'train')).toHaveLength(701);
});
