import type { ScriptedJudge } from '../../ports/benchmark.ts';
import { commandsOf } from './commands.ts';
import { goldOf } from './gold.ts';
import { parseSubstitution, substitute } from './world.ts';

/** P(resolve) by what the attempt has: nothing yet, the place, the right change, a wrong change on top. */
const START = 0.3;
const FOUND = 0.6;
const FIXED = 0.95;
const BROKEN = 0.05;

/**
 * Knows the gold patch, and follows the files through the attempt's own edits: the value rises when the wrong line
 * comes into sight and when it is put right, and falls with every edit that leaves it wrong.
 */
export const judge: ScriptedJudge = ({ task, messages, verdict }) => {
  const gold = goldOf(task);
  let files = task.workspace.kind === 'files' ? task.workspace.files : {};
  const wanted = substituteText(files[gold.path] ?? '', gold);
  const values: { step: number; value: number }[] = [{ step: 0, value: START }];
  let value = START;
  let turn = -1;
  for (const message of messages) {
    if (message.role === 'tool') {
      if (value < FOUND && value !== BROKEN && (message.content ?? '').includes(gold.before)) value = FOUND;
      values[turn + 1] = { step: turn + 1, value };
    }
    if (message.role !== 'assistant') continue;
    turn++;
    for (const command of commandsOf(message)) {
      const edit = parseSubstitution(command);
      const next = edit && substitute(files, edit);
      if (!next) continue;
      files = next;
      value = files[gold.path] === wanted ? FIXED : BROKEN;
    }
    values[turn + 1] = { step: turn + 1, value };
  }
  values[turn + 1] = { step: turn + 1, value: verdict.resolved ? 1 : 0 };
  return values;
};

const substituteText = (text: string, { before, after }: { before: string; after: string }): string =>
  text.replace(before, () => after);
