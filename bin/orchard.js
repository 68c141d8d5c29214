#!/usr/bin/env node
// Starts orchard with a Node that runs its TypeScript: this one if it is new enough, else the one npm installed.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const [major, minor] = process.versions.node.split('.').map(Number);
if (major > 22 || (major === 22 && minor >= 18)) {
  await import('../src/cli/main.ts');
} else {
  const own = fileURLToPath(new URL('../node_modules/node/bin/node', import.meta.url));
  if (!existsSync(own)) {
    console.error(`orchard: Node ${process.versions.node} is too old and no newer one is installed here`);
    console.error('         run `node scripts/setup.mjs`, or use Node 22.18 or newer');
    process.exit(2);
  }
  const child = spawn(own, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: 'inherit' });
  // A terminal's Ctrl-C reaches the child by itself; `kill` reaches only this process.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  child.on('exit', (code, signal) => process.exit(code ?? (signal === 'SIGINT' ? 130 : 1)));
}
