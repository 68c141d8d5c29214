import { unitHash } from '../../core/hash.ts';
import type { ChatMessage, Script } from '../../ports/inference.ts';
import type { Task } from '../../records/task.ts';
import { askedFunction, goldOf } from './gold.ts';
import { random } from './random.ts';
import { sedCommand } from './world.ts';

export const SUBMIT = 'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT';

/** How an attempt goes; shares add up to 1. The failed kinds hold right steps that credit assignment can find. */
const PLANS = [
  ['right', 0.6],
  ['wrong_edit', 0.14],
  ['undoes', 0.14],
  ['wrong_place', 0.06],
  ['gives_up', 0.06],
] as const;
type Plan = (typeof PLANS)[number][0];
type Slip = (typeof SLIPS)[number][0];

/** Steps of any plan that go wrong at first, and are done again once the shell has shown it. Rare: to learn from. */
const SLIPS = [
  ['name', 0.04],
  ['path', 0.04],
  ['text', 0.04],
  ['none', 0.88],
] as const;

/** One of the words by their shares, drawn for an episode. */
function drawn<Word>(
  shares: readonly (readonly [Word, number])[],
  { what, episode }: { what: string; episode: string },
): Word {
  let left = unitHash(what, episode);
  for (const [word, share] of shares) {
    if (left < share) return word;
    left -= share;
  }
  return shares[0]![0];
}

/**
 * A teacher that knows the gold patch but works through the shell: it greps the function, edits the line it sees,
 * looks at it, and submits. Which of its attempts go wrong, and how, hangs on the episode's id alone.
 */
export const teacher: Script = ({ task, episode, messages }) => {
  const plan = drawn(PLANS, { what: 'plan', episode });
  const slip = drawn(SLIPS, { what: 'slip', episode });
  const command = nextCommand(task, { plan, slip, episode, messages });
  return { content: null, commands: [command] };
};

function nextCommand(
  task: Task,
  { plan, slip, episode, messages }: { plan: Plan; slip: Slip; episode: string; messages: ChatMessage[] },
): string {
  const commands = messages.flatMap(({ tool_calls }) => (tool_calls ?? []).map(commandOf));
  const seen = messages.filter(({ role }) => role === 'tool').map(({ content }) => content ?? '');
  const gold = goldOf(task);
  const edits = commands.filter((each) => each.startsWith('sed -i'));
  const spotted = findLine(seen, gold);
  if (slip === 'name') {
    if (commands.length === 0) return search(askedFunction(task).split('_').reverse().join('_'));
    commands.shift();
  }
  if (commands.length === 0) return search(plan === 'wrong_place' ? otherFunction(task, episode) : askedFunction(task));
  if (plan === 'wrong_place' && edits.length === 0) return breakSomething(seen.at(-1) ?? '', episode) ?? SUBMIT;
  if (plan !== 'wrong_place' && spotted === null) {
    const next = calledFunction(seen.at(-1) ?? '', askedFunction(task));
    return next !== null && commands.length < 3 ? search(next) : SUBMIT;
  }
  if (spotted === null || plan === 'gives_up') return SUBMIT;
  const { path, line } = spotted;
  const look = `sed -n '${line}p' ${path}`;
  if (slip === 'path' || slip === 'text') {
    if (edits.length === 0) return slipped(sedCommand(path, { line, ...gold }), slip);
    if (edits.length === 1 && commands.at(-1) !== look) return look;
    edits.shift();
  }
  if (edits.length === 0) {
    const after = plan === 'wrong_edit' ? wrongVersion(gold.before, { episode, avoid: gold.after }) : gold.after;
    return sedCommand(path, { line, before: gold.before, after });
  }
  if (edits.length === 1) {
    if (commands.at(-1) !== look) return look;
    if (plan === 'undoes')
      return sedCommand(path, {
        line,
        before: gold.after,
        after: wrongVersion(gold.after, { episode, avoid: gold.after }),
      });
  }
  return SUBMIT;
}

/** The edit with its folder forgotten, or with what it looks for typed twice: neither changes anything. */
const slipped = (edit: string, slip: 'path' | 'text'): string =>
  slip === 'path'
    ? edit.replace(/ [^ ]+\/(?=[^/ ]+$)/, ' ')
    : edit.replace(/^(sed -i '\d+s\/)((?:[^/\\]|\\.)+)/, '$1$2$2');

const search = (name: string): string => `grep -rn -A2 'def ${name}' .`;

const commandOf = (call: NonNullable<ChatMessage['tool_calls']>[number]): string =>
  (JSON.parse(call.function.arguments) as { command: string }).command;

/** Where an observation of grep shows the line that has to change. */
function findLine(
  observations: string[],
  { path, before }: { path: string; before: string },
): { path: string; line: number } | null {
  for (const text of observations) {
    for (const shown of text.split('\n')) {
      const match = /^\.\/(.+?\.py)[:-](\d+)[:-](.*)$/.exec(shown);
      if (match && match[1] === path && match[3] === before) return { path: match[1]!, line: Number(match[2]) };
    }
  }
  return null;
}

/** The function that the shown body only calls. */
function calledFunction(observation: string, asked: string): string | null {
  const match = /return (\w+_\w+)\(/.exec(observation);
  return match && match[1] !== asked ? match[1]! : null;
}

function otherFunction(task: Task, episode: string): string {
  const text = task.workspace.kind === 'files' ? Object.values(task.workspace.files).join('\n') : '';
  const names = [...text.matchAll(/^def (\w+)/gm)]
    .map((match) => match[1]!)
    .filter((name) => name !== askedFunction(task));
  return names.length > 0 ? random(unitHash('other', episode) * 2 ** 32).pick(names) : askedFunction(task);
}

/** An edit of the first line of code in an observation, whatever it is. */
function breakSomething(observation: string, episode: string): string | null {
  for (const shown of observation.split('\n')) {
    const match = /^\.\/(.+?\.py)-(\d+)-(.*)$/.exec(shown);
    if (match?.[3]?.trim())
      return sedCommand(match[1]!, {
        line: Number(match[2]),
        before: match[3],
        after: wrongVersion(match[3], { episode, avoid: match[3] }),
      });
  }
  return null;
}

/** Pairs that a careless reader takes for each other. */
// biome-ignore format: a table
const CONFUSIONS: [string, string][] = [
  [' + ', ' - '], [' - ', ' * '], [' * ', ' + '], [' <= ', ' < '], [' < ', ' > '], [' >= ', ' > '], [' > ', ' >= '],
  [' == ', ' != '], [' != ', ' == '], ['max(', 'min('], ['min(', 'max('], ['[0]', '[1]'], ['[-1]', '[1]'],
  ['upper', 'title'], ['lower', 'title'], ['any(', 'len('], ['all(', 'len('], ['is not None', 'is None'],
  ['is None', 'is not None'], ['range(', 'len('],
];

/** The line with one thing taken for another; a number goes up by one when nothing else fits. */
function wrongVersion(line: string, { episode, avoid }: { episode: string; avoid: string }): string {
  const fitting = CONFUSIONS.filter(([from]) => line.includes(from)).map(([from, to]) => line.replace(from, to));
  const numbers = [...line.matchAll(/\d+/g)].map(
    (match) => `${line.slice(0, match.index)}${Number(match[0]) + 1}${line.slice(match.index + match[0].length)}`,
  );
  const candidates = [...fitting, ...numbers, line.replace('return ', 'return not ')].filter(
    (candidate) => candidate !== line && candidate !== avoid,
  );
  return candidates[Math.floor(unitHash('wrong', episode) * candidates.length)] ?? `${line} + 1`;
}
