// `npm run bench [-- PART…]`: measures this checkout on this machine. Parts: startup, proxy, turns, data, episodes,
// serve, train, rl, value.
// One thing at a time, each beside what it is compared with; docs/benchmarks.md says how to read it.
import { spawnSync } from 'node:child_process';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { node, python, root, setup } from './setup.mjs';

try {
  setup({ tests: true });
} catch (error) {
  console.error(`orchard: ${error.message}`);
  process.exit(1);
}
const js = (file) => [node, [join(root, 'scripts', 'bench', file)]];
const parts = {
  startup: js('startup.mjs'),
  proxy: js('proxy.mjs'),
  turns: js('turns.mjs'),
  data: js('data.mjs'),
  episodes: js('episodes.mjs'),
  serve: [python, [join(root, 'trainer', 'bench_serve.py')]],
  train: [python, [join(root, 'trainer', 'bench_train.py')]],
  rl: [python, [join(root, 'trainer', 'bench_rl.py')]],
  value: [python, [join(root, 'trainer', 'bench_value.py')]],
};
const wanted = process.argv.slice(2);
const unknown = wanted.find((part) => !(part in parts));
if (unknown) {
  console.error(`orchard: there is no part ${unknown}; parts: ${Object.keys(parts).join(', ')}`);
  process.exit(2);
}
console.log(`${cpus().length} cores (${cpus()[0].model}), Node ${spawnSync(node, ['-v']).stdout.toString().trim()}`);
for (const [name, [command, args]] of Object.entries(parts)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  console.log(`\n${name}`);
  const { status } = spawnSync(command, args, {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, PYTHONPATH: 'trainer' },
  });
  if (status !== 0) process.exit(status ?? 1);
}
