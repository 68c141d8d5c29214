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

/** Steps of any plan that go wrong at first, and are done again once the shell has shown it. Rare: to learn from. */
const SLIPS = [
  ['name', 0.04],
  ['path', 0.04],
  ['text', 0.04],
  ['none', 0.88],
] as const;

/**
 * Only the words that change, the whole line, or the words in whatever file has them on that line. To the teacher these
 * are nearly the same; a small model misspells what is long, and paths most of all.
 */
const EDITING = [
  ['words', 0.4],
  ['line', 0.4],
  ['glob', 0.2],
] as const;

interface Way {
  plan: (typeof PLANS)[number][0];
  slip: (typeof SLIPS)[number][0];
  editing: (typeof EDITING)[number][0];
}

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
 * A teacher that knows the gold patch but works through the shell: it looks the function up, edits the line it sees,
 * looks at it, and submits. Which of its attempts go wrong, and how it works, hangs on the episode's id alone.
 */
export const teacher: Script = ({ task, episode, messages }) => {
  const way = {
    plan: drawn(PLANS, { what: 'plan', episode }),
    slip: drawn(SLIPS, { what: 'slip', episode }),
    editing: drawn(EDITING, { what: 'editing', episode }),
  };
  return { content: null, commands: [nextCommand(task, { way, episode, messages })] };
};

function nextCommand(
  task: Task,
  { way, episode, messages }: { way: Way; episode: string; messages: ChatMessage[] },
): string {
  const { plan, slip } = way;
  const commands = messages.flatMap(({ tool_calls }) => (tool_calls ?? []).map(commandOf));
  const seen = messages.filter(({ role }) => role === 'tool').map(({ content }) => content ?? '');
  const gold = goldOf(task);
  const asked = askedFunction(task);
  const edits = commands.filter((each) => each.startsWith('sed -i'));
  if (plan === 'wrong_place') {
    if (commands.length === 0) return search(otherFunction(task, episode));
    return edits.length === 0 ? (breakSomething(seen.at(-1) ?? '', episode) ?? SUBMIT) : SUBMIT;
  }
  const line = lineIn(seen, gold);
  if (line === null) {
    if (slip === 'name' && commands.length === 0) return search(asked.split('_').reverse().join('_'));
    if (!commands.includes(search(asked))) return search(asked);
    const called = calledFunction(seen, asked);
    return called && !commands.includes(search(called)) ? search(called) : SUBMIT;
  }
  if (plan === 'gives_up') return SUBMIT;
  const look = `sed -n '${line}p' ${gold.path}`;
  const looked = commands.at(-1) === look;
  const edit = (before: string, after: string): string =>
    sedCommand(way.editing === 'glob' ? '*/*.py' : gold.path, {
      line,
      before,
      after,
      way: way.editing === 'line' && slip !== 'text' ? 'line' : 'words',
    });
  if (slip === 'path' || slip === 'text') {
    if (edits.length === 0) return slipped(edit(gold.before, gold.after), slip);
    if (edits.length === 1 && !looked) return look;
    edits.shift();
  }
  const wrong = (before: string): string => wrongVersion(before, { episode, avoid: gold.after });
  if (edits.length === 0) return edit(gold.before, plan === 'wrong_edit' ? wrong(gold.before) : gold.after);
  if (edits.length > 1) return SUBMIT;
  if (!looked) return look;
  return plan === 'undoes' ? edit(gold.after, wrong(gold.after)) : SUBMIT;
}

/** The edit with its folder forgotten, or with what it looks for typed twice: neither changes anything. */
const slipped = (edit: string, slip: 'path' | 'text'): string =>
  slip === 'path'
    ? edit.replace(/ [^ ]+\/(?=[^/ ]+$)/, ' ')
    : edit.replace(/^(sed -i '\d+s\/)((?:[^/\\]|\\.)+)/, '$1$2$2');

const search = (name: string): string => `grep -rn -A2 'def ${name}' .`;

const commandOf = (call: NonNullable<ChatMessage['tool_calls']>[number]): string =>
  (JSON.parse(call.function.arguments) as { command: string }).command;

/** The number of the line that has to change, once grep has shown it. */
function lineIn(seen: string[], { path, before }: { path: string; before: string }): number | null {
  for (const shown of seen.flatMap((text) => text.split('\n'))) {
    const match = /^\.\/(.+?\.py)[:-](\d+)[:-](.*)$/.exec(shown);
    if (match?.[1] === path && match[3] === before) return Number(match[2]);
  }
  return null;
}

/** The function that the shown body only calls. */
function calledFunction(seen: string[], asked: string): string | null {
  for (const text of seen) {
    const body = text.split(`def ${asked}(`)[1]?.split('\n').slice(1, 3).join('\n');
    const match = body && /return (\w+_\w+)\(/.exec(body);
    if (match) return match[1]!;
  }
  return null;
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
