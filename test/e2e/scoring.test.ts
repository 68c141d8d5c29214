import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { folder, until } from '../support/orchard.ts';

const place = folder();
const rows = join(place.dir, 'rows.jsonl');
const file = (path: string): string => join(place.dir, path);
const json = (path: string) => JSON.parse(readFileSync(file(path), 'utf8'));
const lines = (path: string): Record<string, unknown>[] =>
  readFileSync(file(path), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
const score = (...args: string[]) => place.run(['eval', 'swebench', ...args]);

let patches: { id: string; patch: string }[] = [];
const write = (name: string, of: (each: { id: string; patch: string }, index: number) => object | null): string => {
  writeFileSync(
    file(name),
    patches
      .flatMap((each, index) => {
        const row = of(each, index);
        return row ? [`${JSON.stringify({ instance_id: each.id, model_name_or_path: 'org/model', ...row })}\n`] : [];
      })
      .join(''),
  );
  return file(name);
};

beforeAll(async () => {
  const { code, stderr } = await place.run(['data', 'convert', 'tiny', rows, '--count', '8']);
  expect(code, stderr).toBe(0);
  patches = lines('rows.jsonl').map((row) => ({ id: row.instance_id as string, patch: row.patch as string }));
});

test('predictions are run in fresh sandboxes and graded officially; each kind of failure has its own class', async () => {
  const predictions = write(
    'mixed.jsonl',
    ({ patch }, index) =>
      [
        { model_patch: patch },
        { model_patch: patch },
        { model_patch: '' },
        { model_patch: 'no patch\n' },
        null,
        {
          model_patch:
            'diff --git a/x.py b/x.py\nnew file mode 100644\n--- /dev/null\n+++ b/x.py\n@@ -0,0 +1 @@\n+x = 1\n',
        },
        { model_patch: '', attempt: { exit: 'APIError', end: 'died' } },
        { model_patch: patch.slice(0, -1) },
      ][index]!,
  );
  writeFileSync(predictions, `${readFileSync(predictions, 'utf8')}{"instance_id":"x__y-1","model_patch":"p"}\n`);
  const plan = await score('--predictions', predictions, '--dataset', rows, '--dry-run');
  expect(plan.stdout).toContain('5 of 8 instances have a patch to run');
  expect(existsSync(file('scores/mixed'))).toBe(false);

  const { code, stdout, stderr } = await score('--predictions', predictions, '--dataset', rows);
  expect(code, stderr).toBe(0);
  expect(stdout).toContain('official profile 5.0');
  expect(stdout).toContain('1 predictions are of no row: x__y-1');
  const scores = lines('scores/mixed/scores.jsonl');
  expect(scores.map((each) => each.class)).toEqual([
    'resolved',
    'resolved',
    'empty_patch',
    'not_applied',
    'no_prediction',
    'f2p_unmet',
    'agent_died',
    // P11: without its last newline git refuses it, and so does GNU patch.
    'not_applied',
  ]);
  const report = json('scores/mixed/report.json');
  expect(report.rate).toMatchObject({ resolved: 2, total: 8 });
  expect(report.completed).toMatchObject({ resolved: 2, total: 3 });
  expect(report.hardened.resolved).toEqual({ resolved: 2, unresolved: 0, doubtful: 0 });
  const official = json('scores/mixed/org__model.mixed.json');
  expect(official).toMatchObject({ schema_version: 2, total_instances: 8, resolved_instances: 2, error_instances: 2 });
  expect(readFileSync(file('scores/mixed/report.html'), 'utf8')).toContain(patches[0]!.id);

  // Asked for, the newline is added, and that is told.
  const repaired = await score('--predictions', predictions, '--dataset', rows, '--repair-newline');
  expect(repaired.code, repaired.stderr).toBe(0);
  const [last] = lines('scores/mixed/scores.jsonl').slice(-1);
  expect(last).toMatchObject({ class: 'resolved', prepared: ['a newline was added at the end of the patch'] });

  // Done ones stay; a changed patch under the same name is run again (P22).
  const before = new Map(scores.map((each) => [each.instance, each.seconds]));
  write('mixed.jsonl', ({ patch }, index) => ({ model_patch: index === 1 ? 'no patch\n' : patch }));
  expect((await score('--predictions', predictions, '--dataset', rows)).code).toBe(0);
  const after = lines('scores/mixed/scores.jsonl');
  expect(after[0]!.seconds).toBe(before.get(patches[0]!.id));
  expect(after.map((each) => each.class)).toEqual(['resolved', 'not_applied', ...Array(6).fill('resolved')]);
});

test('grade gives the same verdicts from the logs alone, and takes the layout of the official runner', async () => {
  const { code, stdout, stderr } = await score(
    'grade',
    '--logs',
    file('scores/mixed/logs'),
    '--dataset',
    rows,
    '--name',
    'again',
    '--json',
  );
  expect(code, stderr).toBe(0);
  expect(JSON.parse(stdout).rate).toMatchObject({ resolved: 7, total: 8 });
  const [before, after] = ['mixed', 'again'].map((name) =>
    lines(`scores/${name}/scores.jsonl`).map((each) => [each.instance, each.class, each.tests]),
  );
  expect(after).toEqual(before);
  const id = patches[0]!.id;
  const own = `logs/run_evaluation/again/org__model/${id}/report.json`;
  expect(json(`scores/again/${own}`)[id]).toMatchObject({ resolved: true, patch_successfully_applied: true });
});

test('a killed scoring goes on where it was: what was done is not run again', async () => {
  const predictions = write('gold.jsonl', ({ patch }) => ({ model_patch: patch }));
  const args = [
    'eval',
    'swebench',
    '--predictions',
    predictions,
    '--dataset',
    rows,
    '--name',
    'killed',
    '--concurrency',
    '1',
  ];
  const first = place.start(args);
  const dir = file('scores/killed/logs/run_evaluation/killed/org__model');
  const done = (): string[] => patches.map(({ id }) => join(dir, id, 'score.json')).filter(existsSync);
  await until('two instances are scored', () => done().length >= 2, 60_000);
  first.signal('SIGKILL');
  await first.ended;
  const kept = new Map(done().map((path) => [path, readFileSync(path, 'utf8')]));
  const again = await place.run(args);
  expect(again.code, again.stderr).toBe(0);
  for (const [path, text] of kept) expect(readFileSync(path, 'utf8')).toBe(text);
  expect(json('scores/killed/report.json').rate).toMatchObject({ resolved: 8, total: 8 });
}, 120_000);

test('two scorings are compared in pairs, and only if they are of the same thing', async () => {
  const { code, stdout } = await score('compare', 'scores/mixed', 'scores/killed', '--html', 'flips.html');
  expect(code).toBe(0);
  expect(stdout).toContain('gained 1, lost 0 · McNemar exact p = 1.0');
  expect(stdout).toContain('pass@k');
  expect(readFileSync(file('flips.html'), 'utf8')).toContain(patches[1]!.id);
  await place.run(['data', 'convert', 'tiny', file('other.jsonl'), '--count', '2', '--seed', '9']);
  await score('--predictions', 'gold', '--dataset', file('other.jsonl'), '--name', 'other');
  const refused = await score('compare', 'scores/mixed', 'scores/other');
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toMatch(/not of the same thing: 8 instances only in the first, 2 only in the second/);
}, 60_000);

test('validate tells stable tasks from broken ones', async () => {
  const [first, second] = lines('rows.jsonl');
  writeFileSync(
    file('odd.jsonl'),
    [
      first!,
      {
        ...second!,
        patch: 'diff --git a/x.py b/x.py\nnew file mode 100644\n--- /dev/null\n+++ b/x.py\n@@ -0,0 +1 @@\n+x = 1\n',
      },
    ]
      .map((row) => `${JSON.stringify(row)}\n`)
      .join(''),
  );
  const { code, stdout } = await score('validate', '--dataset', file('odd.jsonl'), '--runs', '1', '--json');
  expect(code).toBe(1);
  const found = JSON.parse(stdout) as { state: string; why: string; falseAlarms: string[] }[];
  expect(found.map(({ state }) => state)).toEqual(['stable', 'broken']);
  expect(found[1]!.why).toContain('gold never resolves it');
  expect(found[0]!.falseAlarms).toEqual([]);
}, 60_000);

test('when no instance comes to a verdict, that is an alarm with a non-zero exit, and no score', async () => {
  writeFileSync(
    file('broken.jsonl'),
    `${JSON.stringify({ ...lines('rows.jsonl')[0], eval_script: 'kill -9 $PPID $$' })}\n`,
  );
  const { code, stderr } = await score('--predictions', 'gold', '--dataset', file('broken.jsonl'), '--name', 'broken');
  expect(code).toBe(1);
  expect(stderr).toContain('none of 1 instances came to a verdict: this is no score');
  expect(lines('scores/broken/scores.jsonl')[0]).toMatchObject({ class: 'infrastructure', resolved: false });
}, 60_000);

test('export makes the submission folder and names what the checklist still lacks', async () => {
  const { code, stdout, stderr } = await score(
    'export',
    'scores/mixed',
    '--benchmark',
    'verified',
    '--name',
    '20261207_mine',
    '--system',
    'Mine',
  );
  expect(code, stderr).toBe(0);
  const dir = stdout.trim();
  expect(dir).toBe('evaluation/verified/20261207_mine');
  for (const name of ['all_preds.jsonl', 'metadata.yaml', 'README.md', `logs/${patches[0]!.id}/test_output.txt`])
    expect(existsSync(file(join(dir, name))), name).toBe(true);
  expect(json(join(dir, 'results/results.json')).resolved).toHaveLength(7);
  expect(stderr).toMatch(/lacks --report.*lacks --trajectories/s);
  // The collection grades the logs again: so can we, from the folder alone.
  const again = await score(
    'grade',
    '--logs',
    file(join(dir, 'logs')),
    '--dataset',
    rows,
    '--name',
    'exported',
    '--json',
  );
  expect(JSON.parse(again.stdout).rate.resolved).toBe(7);
  expect(
    (await score('export', 'scores/mixed', '--benchmark', 'verified', '--name', '20261207_mine', '--system', 'M'))
      .stderr,
  ).toContain('is there already');
});

test('agents’ folders become predictions: one that died is no empty patch', async () => {
  const info = (exit: string, submission: string) => ({
    info: { exit_status: exit, submission, model_stats: { api_calls: 3, instance_cost: 0.5 } },
    messages: [],
  });
  const put = (path: string, content: object): void => {
    mkdirSync(join(file(path), '..'), { recursive: true });
    writeFileSync(file(path), JSON.stringify(content));
  };
  const [a, b, c] = patches.map(({ id }) => id) as [string, string, string];
  put(`mini/${a}/${a}.traj.json`, info('Submitted', patches[0]!.patch));
  put(`mini/${b}/${b}.traj.json`, info('LimitsExceeded', ''));
  put(`mini/${c}/${c}.traj.json`, info('RateLimitError', ''));
  put(`swe/${a}/${a}.traj`, info('submitted', patches[0]!.patch));
  put('hands/output.jsonl', {
    instance_id: a,
    test_result: { git_patch: patches[0]!.patch },
    metadata: { llm_config: { model: 'm' } },
    metrics: { accumulated_cost: 1 },
  });
  for (const [dir, said] of [
    ['mini', 'mini-swe-agent: 3 attempts, 1 submitted, 1 at a limit, 1 died'],
    ['swe', 'SWE-agent: 1 attempts, 1 submitted'],
    ['hands', 'OpenHands: 1 attempts, 1 submitted'],
  ] as const)
    expect((await score('import', file(dir), '--out', file(`${dir}.jsonl`))).stderr).toContain(said);
  await score('--predictions', file('mini.jsonl'), '--dataset', rows, '--name', 'imported');
  expect(
    lines('scores/imported/scores.jsonl')
      .slice(0, 3)
      .map((each) => each.class),
  ).toEqual(['resolved', 'empty_patch', 'agent_died']);
  expect(json('scores/imported/report.json').cost).toMatchObject({ attempts: 3, perResolved: { cost: 1.5, turns: 9 } });
  expect((await score('import', file('scores/mixed'), '--out', file('none.jsonl'))).code).not.toBe(0);
}, 60_000);

test('P24, P27: images tells sizes and architectures from the registry, and what is missing there', async () => {
  const manifest = { config: { digest: 'sha256:c' }, layers: [{ size: 2_000_000_000 }, { size: 500_000_000 }] };
  const registry = createServer((request, response) => {
    const url = request.url!;
    const body = url.endsWith('/manifests/good')
      ? manifest
      : url.endsWith('/blobs/sha256:c')
        ? { architecture: 'arm64' }
        : null;
    response.statusCode = body ? 200 : url.includes('limited') ? 429 : 404;
    response.end(JSON.stringify(body ?? {}));
  });
  await new Promise<void>((resolve) => registry.listen(0, '127.0.0.1', resolve));
  const host = `127.0.0.1:${(registry.address() as AddressInfo).port}`;
  const [row] = lines('rows.jsonl');
  const { files: _, ...bare } = row!;
  writeFileSync(
    file('images.jsonl'),
    ['good', 'absent', 'limited']
      .map((tag) => `${JSON.stringify({ ...bare, instance_id: `i-${tag}`, image: `${host}/x/y:${tag}` })}\n`)
      .join(''),
  );
  const { code, stdout, stderr } = await score('images', '--dataset', file('images.jsonl'));
  registry.close();
  expect(code, stderr).toBe(0);
  expect(stdout).toMatch(/:good +2\.50 GB +arm64/);
  expect(stdout).toMatch(/:absent .*answers 404/);
  expect(stdout).toMatch(/:limited .*answers 429/);
  const run = await score('--predictions', 'gold', '--dataset', file('images.jsonl'));
  expect(run.code).not.toBe(0);
  expect(run.stderr).toContain('need container images, which local sandboxes do not run');
});

test.each([
  [['--predictions', 'gold'], '--dataset is missing'],
  [['--dataset', rows], 'neither a recipe nor --predictions'],
  [['--predictions', 'gold', '--dataset', rows, '--profile', '9'], 'expected 4.1 or 5.0'],
  [['--predictions', 'gold', '--dataset', rows, '--name', '../x'], 'cannot name a folder'],
  [['--predictions', 'gold', '--dataset', rows, '--concurrency', '0'], 'expected a whole number from 1'],
  [['--predictions', 'gold', '--dataset', rows, '--sandbox', 'moon'], 'no sandbox moon'],
  [['--predictions', 'gold', '--dataset', rows, '--ids', 'nope'], 'has no nope'],
  [['tiny', '--predictions', 'gold'], 'either the recipe'],
])('eval swebench %j stops before anything is started', async (args, message) => {
  const { code, stderr } = await score(...args);
  expect(code).toBe(2);
  expect(stderr).toContain(message);
});

test('data inspect counts rows by source and says what keeps them from being graded', async () => {
  cpSync(rows, file('mixed-rows.jsonl'));
  writeFileSync(file('mixed-rows.jsonl'), `${readFileSync(rows, 'utf8')}{"instance_id":"bad"}\n`);
  const { stdout, stderr } = await place.run(['data', 'inspect', file('mixed-rows.jsonl')]);
  expect(stdout).toContain('8\tSWE-bench 5.x\tofficial profile 5.0');
  expect(stderr).toContain('bad: ');
  rmSync(file('mixed-rows.jsonl'));
});
