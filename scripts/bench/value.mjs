// Scores the rows of a folder with its value model, so many times; the other side of trainer/bench_value.py.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openOnnx } from '../../src/stages/value/scorer.ts';

const [folder, repeats] = process.argv.slice(2);
const rows = JSON.parse(await readFile(join(folder, 'rows.json'), 'utf8'));
const seconds = [];
let scores = [];
for (let repeat = 0; repeat < Number(repeats); repeat++) {
  const started = performance.now();
  const scorer = await openOnnx(folder, { base: folder });
  scores = await scorer.score(rows);
  await scorer[Symbol.asyncDispose]();
  seconds.push((performance.now() - started) / 1000);
}
console.log(JSON.stringify({ seconds, scores }));
