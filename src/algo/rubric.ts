import type { ChatMessage } from '../ports/inference.ts';
import { RubricScores } from '../records/rubric.ts';
import type { Task } from '../records/task.ts';

/** The seven items of the rubric process reward and their weights, which add up to 1 (Orchard's launch scripts). */
export const RUBRIC: Record<keyof RubricScores, { weight: number; asks: string }> = {
  fix_quality: { weight: 0.15, asks: 'a minimal edit of the root cause, in files that were actually read' },
  self_test_relevance: { weight: 0.18, asks: 'the bug was reproduced before the fix and checked again after it' },
  coverage: { weight: 0.12, asks: 'the checks cover the scenarios of the issue and its edge cases' },
  rigor: { weight: 0.15, asks: 'the checks really assert something, they do not only print' },
  discriminativeness: { weight: 0.14, asks: 'a wrong patch would fail these checks' },
  regression_guard: { weight: 0.12, asks: 'relevant existing tests were run' },
  verification_integrity: { weight: 0.14, asks: 'the tests truly ran, and failures were acted on' },
};
const ITEMS = Object.keys(RUBRIC) as (keyof RubricScores)[];

/** J in [0, 1]: the weighted sum of the items. */
export const rubricValue = (scores: RubricScores): number =>
  ITEMS.reduce((sum, item) => sum + RUBRIC[item].weight * scores[item], 0);

/** Characters that each part of an attempt may take in the judge's prompt. */
const REASONING = 600;
const COMMAND = 400;
const OBSERVATION = 1200;
const PATCH = 4000;
const GOLD_PATCH = 3000;

/**
 * What the judge is asked about a finished attempt. It sees the issue, the attempt compressed step by step, and the
 * patch; the gold patch and the tests' names only ground its scores. Whether the tests passed it is not told.
 */
export function rubricMessages({
  task,
  messages,
  patch,
}: {
  task: Task;
  messages: ChatMessage[];
  patch: Buffer | null;
}): ChatMessage[] {
  let step = 0;
  const shown = messages.flatMap(({ role, content, reasoning_content, tool_calls }) => {
    if (role === 'tool') return [`observation:\n${compact(content ?? '')}`];
    if (role !== 'assistant') return [];
    const said = cut([reasoning_content ?? '', content ?? ''].join('\n').trim(), REASONING);
    const commands = (tool_calls ?? []).map((call) => `$ ${cut(call.function.arguments, COMMAND)}`);
    return [[`[step ${step++}]`, said, ...commands].filter(Boolean).join('\n')];
  });
  const files = [...task.goldPatch.matchAll(/^\+\+\+ b\/(.+)$/gm)].map((match) => match[1]);
  return [
    {
      role: 'system',
      content: [
        'You review how an AI agent worked on a repository task, whatever its tests said in the end.',
        'Score each item from 0 to 1 in steps of 0.1:',
        ...ITEMS.map((item) => `- ${item}: ${RUBRIC[item].asks}`),
        `Answer with one JSON object only: {"reasoning": "two sentences", "scores": {${ITEMS.map((item) => `"${item}": 0.5`).join(', ')}}}`,
      ].join('\n'),
    },
    {
      role: 'user',
      content: [
        `Issue:\n${task.statement}`,
        `For reference only:\nfiles of the known fix: ${files.join(', ')}\nits tests: ${task.failToPass.join(', ')}\n${cut(task.goldPatch, GOLD_PATCH)}`,
        `The attempt:\n${shown.join('\n\n')}`,
        `Its patch:\n${patch === null ? '(none)' : cut(patch.toString(), PATCH)}`,
      ].join('\n\n'),
    },
  ];
}

const cut = (text: string, characters: number): string =>
  text.length <= characters ? text : `${text.slice(0, characters)} …(${text.length - characters} more)`;

const TELLING = /error|exception|traceback|fail|passed|assert|^E |^ran \d+ tests|^ok$|not found/i;

/** The lines of an observation that say how it went, or its head where none does. */
function compact(text: string): string {
  if (text.length <= OBSERVATION) return text;
  const telling = text.split('\n').filter((line) => TELLING.test(line));
  return telling.length > 0 ? cut(telling.join('\n'), OBSERVATION) : cut(text, OBSERVATION / 2);
}

/**
 * Reads a judge's reply: the last JSON object in it.
 * @throws Error saying what was expected and what came
 */
export function parseRubric(text: string): RubricScores {
  const json = text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1);
  let parsed: unknown;
  try {
    parsed = JSON.parse(json);
  } catch {
    throw new Error(`expected a JSON object with scores of ${ITEMS.join(', ')}, got ${quoted(text)}`);
  }
  const read = RubricScores.safeParse((parsed as { scores?: unknown } | null)?.scores);
  if (read.success) return read.data;
  const problems = read.error.issues.map(({ path, message }) => `${['scores', ...path].join('.')}: ${message}`);
  throw new Error(`expected scores of ${ITEMS.join(', ')}, got ${quoted(json)}: ${problems.join('; ')}`);
}

const quoted = (text: string): string => JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
