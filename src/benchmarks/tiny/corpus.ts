import type { Document } from '../../ports/benchmark.ts';
import type { ChatMessage } from '../../ports/inference.ts';
import { type Random, random } from './random.ts';
import { SUBMIT } from './teacher.ts';
import { makeWord } from './words.ts';
import { type Files, grep, parseSubstitution, printLines, sedCommand, substitute } from './world.ts';

const makeName = (source: Random): string => `${makeWord(source)}_${makeWord(source)}`;

const OPERATORS = [' + ', ' - ', ' * ', ' // ', ' % ', ' < ', ' <= ', ' > ', ' >= ', ' == ', ' != ', ' and ', ' or '];
const CALLS = ['max', 'min', 'len', 'sum', 'any', 'all', 'abs', 'int', 'str', 'list', 'sorted', 'range'];
const METHODS = ['upper', 'lower', 'strip', 'title', 'split', 'copy', 'keys', 'pop'];

function expression(source: Random, [a, b]: [string, string]): string {
  const number = source.int(0, 99);
  return source.pick([
    () => `${a}${source.pick(OPERATORS)}${b}`,
    () => `${a}${source.pick(OPERATORS)}${number}`,
    () => `${a}${source.pick(OPERATORS)}${number}${source.pick(OPERATORS.slice(0, 3))}${b}`,
    () => `${source.pick(CALLS)}(${a}, ${b})`,
    () => `${source.pick(CALLS)}(${a})`,
    () => `${a}.${source.pick(METHODS)}()`,
    () => `${a}[${source.pick(['0', '1', '-1', '2'])}]`,
    () => `${source.pick(CALLS)}(${source.pick(CALLS)}(${a} + 1))`,
    () => `not ${a}`,
  ])();
}

interface Made {
  name: string;
  lines: string[];
}

function makeFunction(source: Random): Made {
  const name = makeName(source);
  const [a, b] = [makeWord(source), makeWord(source)];
  const head = source.pick([
    `def ${name}(${a}, ${b}):`,
    `def ${name}(${a}, ${b}):`,
    `def ${name}(${a}, ${b}=${source.int(0, 99)}):`,
  ]);
  const body = source.pick([
    () => [`    return ${expression(source, [a, b])}`],
    () => [`    ${a} = ${expression(source, [a, b])}`, `    return ${a}`],
    () => [
      `    if ${a} is ${source.pick(['', 'not '])}None:`,
      `        return ${b}`,
      `    return ${expression(source, [a, b])}`,
    ],
  ])();
  return { name, lines: [head, ...body] };
}

interface World {
  files: Files;
  functions: { path: string; made: Made }[];
}

function makeWorld(source: Random): World {
  const pack = makeWord(source);
  const files: Files = {};
  const functions: World['functions'] = [];
  for (let count = source.int(1, 3); count > 0; count--) {
    const path = `${pack}/${makeWord(source)}.${source.pick(['py', 'py', 'py', 'txt'])}`;
    const lines: string[] = [];
    if (path.endsWith('.txt'))
      for (let line = source.int(2, 6); line > 0; line--)
        lines.push(`${makeWord(source)} ${makeWord(source)} ${source.int(0, 99)}`);
    else {
      for (let each = source.int(1, 3); each > 0; each--) {
        const made = makeFunction(source);
        functions.push({ path, made });
        if (lines.length > 0) lines.push('', '');
        lines.push(...made.lines);
      }
    }
    files[path] = `${lines.join('\n')}\n`;
  }
  return { files, functions };
}

/** A conversation under way: what was said, and the files as the commands have left them. */
class Session {
  readonly messages: ChatMessage[];
  files: Files;

  constructor(system: string, files: Files) {
    this.messages = [{ role: 'system', content: system }];
    this.files = files;
  }

  ask(content: string): void {
    this.messages.push({ role: 'user', content });
  }

  run(command: string, output: string): string {
    const id = `call_${this.messages.length}`;
    this.messages.push(
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id, type: 'function', function: { name: 'bash', arguments: JSON.stringify({ command }) } }],
      },
      { role: 'tool', tool_call_id: id, content: output },
    );
    return output;
  }

  grep(pattern: string, after: number): string {
    return this.run(`grep -rn ${after > 0 ? `-A${after} ` : ''}'${pattern}' .`, grep(this.files, { pattern, after }));
  }

  print(path: string, { from, to }: { from: number; to: number }): void {
    this.run(`sed -n '${from === to ? from : `${from},${to}`}p' ${path}`, printLines(this.files[path]!, { from, to }));
  }

  edit(path: string, change: { line: number; before: string; after: string }): void {
    const command = sedCommand(path, change);
    this.files = substitute(this.files, parseSubstitution(command)!) ?? this.files;
    this.run(command, '');
  }

  submit(): void {
    const id = `call_${this.messages.length}`;
    this.messages.push({
      role: 'assistant',
      content: null,
      tool_calls: [
        { id, type: 'function', function: { name: 'bash', arguments: JSON.stringify({ command: SUBMIT }) } },
      ],
    });
  }
}

/** One token of a line for another of its kind. */
function changed(source: Random, line: string): { after: string; from: string; to: string } | null {
  const options: [string, string][] = [];
  for (const group of [
    OPERATORS,
    CALLS.map((call) => `${call}(`),
    METHODS.map((method) => `.${method}(`),
    ['[0]', '[1]', '[-1]', '[2]'],
    [' is None', ' is not None'],
  ]) {
    for (const word of group) {
      if (!line.includes(word)) continue;
      const other = source.pick(group.filter((each) => each !== word));
      options.push([word, other]);
    }
  }
  const number = /\d+/.exec(line);
  if (number) options.push([number[0], String(source.int(0, 99))]);
  const variable = /\b[a-z]{3,}\b/g;
  const names = [...line.matchAll(variable)]
    .map((match) => match[0])
    .filter((name) => !['def', 'return', 'not', 'None', 'and', 'range', ...CALLS, ...METHODS].includes(name));
  if (names.length > 0) options.push([source.pick(names), makeWord(source)]);
  if (options.length === 0) return null;
  const [from, to] = source.pick(options);
  const after = line.replace(from, () => to);
  return after === line ? null : { after, from: from.trim(), to: to.trim() };
}

type Request = (session: Session, options: { source: Random; world: World }) => void;

const showLine: Request = (session, { source }) => {
  const path = source.pick(Object.keys(session.files));
  const count = session.files[path]!.split('\n').length - 1;
  const from = source.int(1, count);
  const to = Math.min(count, from + source.pick([0, 0, 1, 2]));
  session.ask(
    from === to
      ? source.pick([`Show line ${from} of ${path}.`, `What is on line ${from} of ${path}?`])
      : source.pick([`Show lines ${from} to ${to} of ${path}.`, `Print ${path} from line ${from} to ${to}.`]),
  );
  session.print(path, { from, to });
};

const findFunction: Request = (session, { source, world }) => {
  if (world.functions.length === 0) return showLine(session, { source, world });
  const { made } = source.pick(world.functions);
  session.ask(
    source.pick([
      `Where is \`${made.name}\`?`,
      `Find the definition of \`${made.name}\`.`,
      `\`${made.name}\` - show me what it does.`,
    ]),
  );
  session.grep(`def ${made.name}`, 2);
};

const findWord: Request = (session, { source }) => {
  const path = source.pick(Object.keys(session.files));
  const word = source.pick([...session.files[path]!.matchAll(/\b[a-z]{4,}\b/g)].map((match) => match[0]));
  session.ask(source.pick([`Search for ${word}.`, `Which lines have ${word} in them?`]));
  session.grep(word, 0);
};

/** An edit where the request names line and file. */
const editLine: Request = (session, { source, world }) => {
  const path = source.pick(Object.keys(session.files));
  const lines = session.files[path]!.split('\n').slice(0, -1);
  const line = source.int(1, lines.length);
  const before = lines[line - 1]!;
  const change = changed(source, before);
  if (!change) return showLine(session, { source, world });
  session.ask(
    source.pick([
      `On line ${line} of ${path} change ${change.from} to ${change.to}.`,
      `${path} line ${line}: ${change.to} instead of ${change.from}.`,
    ]),
  );
  session.edit(path, { line, before, after: change.after });
  if (source.next() < 0.5) session.print(path, { from: line, to: line });
};

/** An edit where the request names only the function: find it, read the line number, edit, look. */
const editFunction: Request = (session, { source, world }) => {
  if (world.functions.length === 0) return editLine(session, { source, world });
  const { path, made } = source.pick(world.functions);
  const at = source.int(0, Math.min(2, made.lines.length - 1)); // what grep -A2 will show
  const before = made.lines[at]!;
  const lines = session.files[path]!.split('\n');
  const line = lines.indexOf(before, lines.indexOf(made.lines[0]!)) + 1;
  const change = line > 0 ? changed(source, before) : null;
  if (!change || change.from === made.name) return findFunction(session, { source, world });
  const { from, to } = change;
  session.ask(
    source.pick([
      `\`${made.name}\` should use ${to} instead of ${from}.`,
      `\`${made.name}\` should use ${to}, not ${from}.`,
      `In \`${made.name}\` change ${from} to ${to}.`,
      `\`${made.name}\` has ${from} where it must have ${to}.`,
    ]),
  );
  session.grep(`def ${made.name}`, 2);
  session.edit(path, { line, before, after: change.after });
  session.print(path, { from: line, to: line });
};

const REQUESTS: [Request, number][] = [
  [editFunction, 0.5],
  [editLine, 0.15],
  [findFunction, 0.15],
  [showLine, 0.1],
  [findWord, 0.1],
];

function pickRequest(source: Random): Request {
  let left = source.next();
  for (const [request, share] of REQUESTS) {
    if (left < share) return request;
    left -= share;
  }
  return editFunction;
}

/**
 * Shell work in made-up repositories: finding, showing, and edits that the request spells out. Nothing here says what
 * code ought to do, which is what the tasks ask.
 */
export function* corpus({
  documents,
  seed,
  system,
}: {
  documents: number;
  seed: number;
  system: string;
}): Iterable<Document> {
  const source = random(seed);
  for (let count = 0; count < documents; count++) {
    const world = makeWorld(source);
    const session = new Session(system, world.files);
    pickRequest(source)(session, { source, world });
    if (source.next() < 0.2) findWord(session, { source, world });
    session.submit();
    yield { messages: session.messages };
  }
}
