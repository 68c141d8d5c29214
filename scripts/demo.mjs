// `npm run demo`: installs what is missing, then runs recipes/tiny.yaml from collecting to the table.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { node, root, setup } from './setup.mjs';

const started = Date.now();
const seconds = () => `${Math.round((Date.now() - started) / 1000)} s`;
try {
  setup();
} catch (error) {
  console.error(`orchard: ${error.message}`);
  process.exit(1);
}
console.error(`installed after ${seconds()}\n`);
const args = [join(root, 'bin', 'orchard.js'), 'run', 'tiny', ...process.argv.slice(2)];
const run = spawn(node, args, { cwd: root, stdio: 'inherit' });
// The terminal's Ctrl-C reaches orchard by itself, which stops cleanly.
process.on('SIGINT', () => {});
process.on('SIGTERM', () => run.kill('SIGTERM'));
run.on('exit', (code) => {
  if (code === 0) console.error(`all of it took ${seconds()}`);
  process.exit(code ?? 1);
});
