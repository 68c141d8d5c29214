// Start-up: `orchard --help` and `orchard plan tiny`, 20 times each, beside a Node that does nothing.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { quantile } from './measure.mjs';

const orchard = join(import.meta.dirname, '../../bin/orchard.js');
const cases = {
  'node -e 0': ['-e', '0'],
  'orchard --help': [orchard, '--help'],
  'orchard plan tiny': [orchard, 'plan', 'tiny'],
};
const times = Object.fromEntries(Object.keys(cases).map((name) => [name, []]));
for (let round = 0; round < 21; round++) {
  for (const [name, args] of Object.entries(cases)) {
    const started = performance.now();
    spawnSync(process.execPath, args);
    if (round > 0) times[name].push(performance.now() - started);
  }
}
for (const [name, list] of Object.entries(times))
  console.log(
    `  ${name.padEnd(20)} p50 ${quantile(list, 0.5).toFixed(0)} ms   p99 ${quantile(list, 0.99).toFixed(0)} ms`,
  );
