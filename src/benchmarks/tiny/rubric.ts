import type { ScriptedRubric } from '../../ports/benchmark.ts';
import { commandsOf } from './commands.ts';
import { askedFunction, goldOf } from './gold.ts';
import { parseSubstitution, substitute } from './world.ts';

/**
 * The rubric in terms of what can be done here: look the function up, change one line of a file that was read, and
 * look at the line again before handing in. It knows the file of the gold patch, and never runs a test.
 */
export const rubric: ScriptedRubric = ({ task, messages }) => {
  const gold = goldOf(task);
  let files = task.workspace.kind === 'files' ? task.workspace.files : {};
  const edits: { path: string; wasRead: boolean }[] = [];
  let seen = '';
  let lastEdited: string | null = null;
  let rechecked = false;
  let sawDefect = false;
  let ranTests = false;
  let searched = false;
  for (const message of messages) {
    if (message.role === 'tool') {
      const text = message.content ?? '';
      if (lastEdited !== null && text.includes(lastEdited)) rechecked = true;
      if (edits.length === 0 && text.includes(gold.before)) sawDefect = true;
      seen += text;
    }
    for (const command of message.role === 'assistant' ? commandsOf(message) : []) {
      if (command.includes('unittest')) ranTests = true;
      if (command.includes(askedFunction(task))) searched = true;
      const edit = parseSubstitution(command);
      const next = edit && substitute(files, edit);
      if (!next) continue;
      const path = Object.keys(next).find((name) => next[name] !== files[name]);
      if (path === undefined) continue;
      lastEdited =
        next[path]!.split('\n')
          .find((line, at) => line !== files[path]!.split('\n')[at])
          ?.trim() ?? null;
      rechecked = false;
      edits.push({ path, wasRead: seen.includes(path) });
      files = next;
    }
  }
  const one = edits.length === 1;
  const inPlace = edits.length > 0 && edits.every(({ path, wasRead }) => wasRead && path === gold.path);
  return {
    fix_quality: (one ? 0.5 : 0) + (inPlace ? 0.5 : 0),
    self_test_relevance: (sawDefect ? 0.5 : 0) + (rechecked ? 0.5 : 0),
    coverage: searched ? 1 : 0,
    rigor: rechecked ? 1 : 0,
    discriminativeness: rechecked && inPlace ? 1 : 0,
    regression_guard: ranTests ? 1 : 0,
    verification_integrity: rechecked ? 1 : 0,
  };
};
