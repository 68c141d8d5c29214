// `npm run check`: types, format and lint, and the rule of which folder may import which.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { root } from './setup.mjs';

/** A folder imports only from rows above its own; the folders of one row never import each other. */
const layers = [
  ['records'],
  ['core'],
  ['ports'],
  ['algo'],
  ['data'],
  ['proxy'],
  ['sandboxes', 'inference', 'harnesses', 'benchmarks', 'rewards', 'trainers'],
  ['stages', 'scoring'],
  ['recipe'],
  ['cli'],
];
const rank = new Map(layers.flatMap((row, index) => row.map((folder) => [folder, index])));

function* files(dir) {
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) yield* files(path);
    else if (path.endsWith('.ts')) yield path;
  }
}

const problems = [];
const src = join(root, 'src');
for (const file of files(src)) {
  const from = relative(src, file).split(sep);
  const text = readFileSync(file, 'utf8');
  if (from.length > 1 && !rank.has(from[0]))
    problems.push(`${relative(root, file)}: folder ${from[0]} is not in scripts/check.mjs`);
  if (from[0] !== 'cli' && /\bprocess\.(env|exit)\b/.test(text))
    problems.push(`${relative(root, file)}: process.env and process.exit belong in src/cli`);
  for (const [, target] of text.matchAll(/(?:from|import\()\s*'(\.[^']+)'/g)) {
    const to = relative(src, join(dirname(file), target)).split(sep);
    if (from.length === 1 || to[0] === from[0]) continue;
    if (!(rank.get(to[0]) < rank.get(from[0])))
      problems.push(`${relative(root, file)}: ${from[0]} may not import ${to[0]} (${target})`);
  }
}
for (const problem of problems) console.error(problem);

const tool = (name, args) =>
  spawnSync(process.execPath, [join(root, 'node_modules', ...name), ...args], { cwd: root, stdio: 'inherit' })
    .status === 0;
const types = tool(['typescript', 'bin', 'tsc'], ['-p', '.']);
const style = tool(['@biomejs', 'biome', 'bin', 'biome'], ['check', '--error-on-warnings']);
process.exit(problems.length === 0 && types && style ? 0 : 1);
