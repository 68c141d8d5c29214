// `npm test`: installs what is missing, then runs every test: TypeScript's with vitest, the trainer's with pytest.
// The last line counts both.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { node, python, root, setup } from './setup.mjs';

try {
  setup({ tests: true });
} catch (error) {
  console.error(`orchard: ${error.message}`);
  process.exit(1);
}
const out = mkdtempSync(join(tmpdir(), 'orchard-test-'));
const env = { ...process.env, PATH: `${dirname(node)}:${process.env.PATH}` };
delete env.PYTHONDONTWRITEBYTECODE; // as the command line does: without bytecode each start of the trainer takes 15 s more
const counts = { passed: 0, failed: 0, skipped: 0 };
let ok = true;

/** Runs one suite; `read` adds its counts from the report it leaves. A suite without a report counts as failed. */
function suite(name, command, args, read) {
  const { status } = spawnSync(command, args, { cwd: root, env, stdio: ['ignore', 'inherit', 'inherit'] });
  ok &&= status === 0;
  try {
    read();
  } catch (error) {
    console.error(`${name}: no report: ${error.message}`);
    counts.failed++;
  }
}

suite('static checks', node, ['scripts/check.mjs'], () => {});

const vitest = join(out, 'vitest.json');
suite(
  'vitest',
  node,
  ['node_modules/vitest/vitest.mjs', 'run', '--reporter=default', '--reporter=json', `--outputFile.json=${vitest}`],
  () => {
    const report = JSON.parse(readFileSync(vitest, 'utf8'));
    counts.passed += report.numPassedTests;
    counts.failed +=
      report.numFailedTests +
      report.testResults.filter((file) => file.status === 'failed' && file.assertionResults.length === 0).length;
    counts.skipped += report.numPendingTests + report.numTodoTests;
  },
);

const pytest = join(out, 'pytest.xml');
suite('pytest', python, ['-m', 'pytest', '-q', 'trainer/tests', `--junitxml=${pytest}`], () => {
  const head = readFileSync(pytest, 'utf8').match(/<testsuite [^>]*>/)[0];
  const count = (name) => Number(head.match(new RegExp(`${name}="(\\d+)"`))[1]);
  const bad = count('failures') + count('errors');
  counts.failed += bad;
  counts.skipped += count('skipped');
  counts.passed += count('tests') - bad - count('skipped');
});

rmSync(out, { recursive: true, force: true });
if (!ok && counts.failed === 0) counts.failed = 1;
console.log(
  `${counts.passed} passed, ${counts.failed} failed${counts.skipped > 0 ? `, ${counts.skipped} skipped` : ''}`,
);
process.exit(ok && counts.failed === 0 ? 0 : 1);
