import type { Command } from 'commander';
import type { Failure } from '../../records/common.ts';
import type { Attempt, Profile, Score } from '../../records/score.ts';
import type { Instances } from '../../scoring/instances.ts';
import type { Predictions } from '../../scoring/predictions.ts';
import { execute } from './run.ts';

interface DatasetOptions {
  dataset?: string;
  split: string;
  ids?: string;
  profile?: string;
}

interface OutOptions {
  out: string;
  name?: string;
  concurrency?: string;
}

interface BoxOptions {
  sandbox: string;
  timeout?: string;
  network?: string;
  memory: string;
  processes: string;
  repairNewline?: boolean;
}

const withDataset = (command: Command): Command =>
  command
    .option('--dataset <file>', 'rows: JSON, JSONL, Parquet, a folder with <split>.parquet, or a task repository')
    .option('--split <name>', 'split of a folder or task repository', 'test')
    .option('--ids <list>', 'only these instances, with commas between')
    .option('--profile <version>', 'official grader, 4.1 or 5.0; each row says its own when left out');

const withOut = (command: Command): Command =>
  command
    .option('--out <dir>', 'folder that holds the scorings', 'scores')
    .option('--name <id>', 'name of this scoring, its folder below --out')
    .option('--concurrency <n>', 'instances at a time; as many as there are cores when left out');

const withBox = (command: Command): Command =>
  command
    .option('--sandbox <kind>', 'where tests run', 'local')
    .option('--timeout <seconds>', 'for the tests of one instance; the row says, or 1800')
    .option('--network <none|open>', 'for the tests; open for images and none for rows with files when left out')
    .option('--memory <MiB>', 'for each sandbox', '4096')
    .option('--processes <n>', 'for each sandbox', '512');

export function register(program: Command): void {
  const swebench = program
    .command('eval')
    .description('evaluate models on held-out tasks, or score predictions')
    .command('swebench')
    .description("run a recipe's evaluation, or score predictions: the official verdict, and a stricter one beside it")
    .enablePositionalOptions()
    .argument('[recipe]', 'name of a recipe whose models are evaluated; none to score predictions')
    .option(
      '--set <path=value>',
      'override one value of the recipe',
      (value: string, all: string[]) => [...all, value],
      [],
    )
    .option('--runs <dir>', 'folder that holds the runs', 'runs')
    .option('--predictions <file>', '.json list or map, .jsonl, or `gold`')
    .option('--repair-newline', 'add the newline that a patch lacks at its end, and say so')
    .option('--dry-run', 'say what would be run and graded')
    .option('--json', 'the report as JSON');
  withBox(withOut(withDataset(swebench)))
    .addHelpText(
      'after',
      `
Examples:
  orchard eval swebench tiny
  orchard eval swebench --predictions preds.json --dataset verified.parquet --name mine
  orchard eval swebench grade --logs logs/run_evaluation/mine --dataset verified.parquet
  orchard eval swebench compare scores/mine scores/theirs`,
    )
    .action(score);
  withOut(withDataset(swebench.command('grade').description('grade logs that are there already; no container')))
    .requiredOption('--logs <dir>', 'folder with <id>/test_output.txt at any depth, or <id>.log')
    .option('--predictions <file>', 'for the patches, where the logs have none beside them')
    .option('--json', 'the report as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard eval swebench grade --logs logs --dataset verified.parquet --profile 4.1',
    )
    .action(grade);
  swebench
    .command('compare')
    .description('two or more scorings of the same instances: exact McNemar, mid-p, bootstrap, pass@k')
    .argument('<scorings...>', 'folders with scores.jsonl')
    .option('--force', 'compare what they share, though ids, rows or profiles differ')
    .option('--html <file>', 'a page with the tables and both logs of each flipped instance')
    .option('--json', 'as JSON')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard eval swebench compare scores/a scores/b\n  orchard eval swebench compare scores/try-*',
    )
    .action(compare);
  withBox(
    withOut(
      withDataset(swebench.command('validate').description('gold and untouched several times: stable, flaky, broken')),
    ),
  )
    .option('--runs <n>', 'how often', '3')
    .option('--json', 'as JSON')
    .addHelpText('after', '\nExamples:\n  orchard eval swebench validate --dataset rows.jsonl --runs 3')
    .action(validate);
  swebench
    .command('export')
    .description('a submission folder by the public checklist')
    .argument('<scoring>', 'folder with scores.jsonl')
    .requiredOption('--benchmark <split>', 'lite, verified, test, multilingual or multimodal')
    .requiredOption('--name <date_model>', 'YYYYMMDD_model')
    .requiredOption('--system <name>', 'name on the leaderboard')
    .option('--report <url>', 'technical report')
    .option('--site <url>', 'home page')
    .option('--trajectories <dir>', 'one file or folder for each instance')
    .option('--out <dir>', 'where evaluation/… is made', '.')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard eval swebench export scores/mine --benchmark verified --name 20261206_mine --system Mine',
    )
    .action(exportTo);
  withDataset(
    swebench
      .command('images')
      .description('the images that a data set needs: size and architecture, from their registry'),
  )
    .option('--json', 'as JSON')
    .addHelpText('after', '\nExamples:\n  orchard eval swebench images --dataset verified.parquet')
    .action(images);
  swebench
    .command('import')
    .description('predictions out of the folder of mini-swe-agent, SWE-agent or OpenHands')
    .argument('<folder>')
    .requiredOption('--out <file>', 'predictions, .jsonl')
    .addHelpText('after', '\nExamples:\n  orchard eval swebench import trajectories --out preds.jsonl')
    .action(importFrom);
}

async function parsed(
  options: DatasetOptions,
): Promise<{ split: string; ids: string[] | null; profile: Profile | null }> {
  const { userError } = await import('../../core/errors.ts');
  const { Profile } = await import('../../records/score.ts');
  if (!options.dataset) throw userError('--dataset', '--dataset is missing', 'name the file of the rows');
  const profile = options.profile === undefined ? null : Profile.safeParse(options.profile);
  if (profile && !profile.success)
    throw userError(
      '--profile',
      `--profile ${options.profile}: expected 4.1 or 5.0`,
      'leave it out: each row says its own',
    );
  return { split: options.split, ids: options.ids?.split(',') ?? null, profile: profile?.data ?? null };
}

/** A whole number of at least one. */
async function count(name: string, value: string): Promise<number> {
  const { userError } = await import('../../core/errors.ts');
  const number = Number(value);
  if (!Number.isInteger(number) || number < 1)
    throw userError(name, `${name} ${value}: expected a whole number from 1`, 'for example 4');
  return number;
}

async function openScoring(options: OutOptions & DatasetOptions, fallback: string) {
  const { basename, join } = await import('node:path');
  const { availableParallelism } = await import('node:os');
  const { userError } = await import('../../core/errors.ts');
  const { isFolderName } = await import('../../scoring/layout.ts');
  const { openGraders, readInstances } = await import('../../scoring/instances.ts');
  const { graderDir } = await import('../environment.ts');
  const { interruptSignal } = await import('../interrupt.ts');
  const { openProgress } = await import('../output.ts');
  const settings = await parsed(options);
  const name = options.name ?? basename(fallback).replace(/\.\w+$/, '');
  if (!isFolderName(name)) throw userError('--name', `${name} cannot name a folder`, 'use letters, digits, - and .');
  const concurrency = options.concurrency ? await count('--concurrency', options.concurrency) : availableParallelism();
  const graders = openGraders({ dir: graderDir, workers: Math.min(concurrency, availableParallelism()) });
  try {
    const instances = await readInstances(options.dataset!, { ...settings, graders });
    const { describe } = await import('../../scoring/instances.ts');
    for (const row of instances.refused.slice(0, 10)) console.error(`refused ${describe(row)}`);
    if (instances.refused.length > 10)
      console.error(`and ${instances.refused.length - 10} more; see orchard data inspect`);
    return {
      name,
      instances,
      context: {
        runDir: join(options.out, name),
        graders,
        concurrency,
        progress: openProgress(),
        signal: interruptSignal(),
      },
    };
  } catch (error) {
    await graders[Symbol.asyncDispose]();
    throw error;
  }
}

async function openBoxes(options: BoxOptions, instances: Instances) {
  const { userError } = await import('../../core/errors.ts');
  const { sandboxes } = await import('../../sandboxes/index.ts');
  const { machine } = await import('../environment.ts');
  const kind = sandboxes[options.sandbox];
  if (!kind)
    throw userError('--sandbox', `no sandbox ${options.sandbox}`, `known: ${Object.keys(sandboxes).join(', ')}`);
  if (options.network !== undefined && options.network !== 'none' && options.network !== 'open')
    throw userError('--network', `--network ${options.network}: expected none or open`, 'leave it out for the usual');
  const settings = {
    network: (options.network ?? null) as 'none' | 'open' | null,
    memoryMiB: await count('--memory', options.memory),
    processes: await count('--processes', options.processes),
    timeoutMs: options.timeout ? 1000 * (await count('--timeout', options.timeout)) : null,
    repairNewline: options.repairNewline ?? false,
  };
  const { checkRunnable } = await import('../../scoring/runner.ts');
  checkRunnable(
    instances.ready.map(({ instance }) => instance),
    { sandbox: options.sandbox },
  );
  const config = kind.config.parse({ network: 'open', memoryMiB: settings.memoryMiB, processes: settings.processes });
  return { ...settings, sandboxes: await kind.open(config, { scratchDir: machine.scratchDir }) };
}

async function score(
  recipe: string | undefined,
  options: DatasetOptions &
    OutOptions &
    BoxOptions & { set: string[]; runs: string; predictions?: string; dryRun?: boolean; json?: boolean },
): Promise<void> {
  const { userError } = await import('../../core/errors.ts');
  if (recipe !== undefined) {
    if (options.predictions || options.dataset)
      throw userError(recipe, `either the recipe ${recipe}, or --predictions with --dataset`, 'leave one of them out');
    return execute(recipe, options, { kind: 'eval' });
  }
  if (!options.predictions)
    throw userError('--predictions', 'neither a recipe nor --predictions', 'see orchard eval swebench --help');
  const { readPredictions } = await import('../../scoring/predictions.ts');
  const given = options.predictions === 'gold' ? null : await readPredictions(options.predictions);
  const { context, instances, name } = await openScoring(options, options.predictions);
  await using _graders = context.graders;
  const predictions = given ?? {
    byId: new Map(
      instances.ready.map(({ instance }) => [
        instance.id,
        { id: instance.id, model: 'gold', patch: Buffer.from(instance.goldPatch), attempt: null, value: null },
      ]),
    ),
    duplicates: [],
  };
  const run = await openBoxes(options, instances);
  await using _sandboxes = run.sandboxes;
  if (options.dryRun) {
    const with_ = instances.ready.filter(({ instance }) => predictions.byId.get(instance.id)?.patch.length);
    console.log(
      `${with_.length} of ${instances.ready.length} instances have a patch to run, ${context.concurrency} at a time, into ${context.runDir}`,
    );
    return;
  }
  const { lockFolder } = await import('../../core/lock.ts');
  await using _lock = await lockFolder(context.runDir);
  const { evaluate } = await import('../../scoring/evaluate.ts');
  const scores = await evaluate(context, { instances, predictions, run });
  await finish({ name, runDir: context.runDir, instances, scores, predictions, json: options.json });
}

async function grade(
  options: DatasetOptions & OutOptions & { logs: string; predictions?: string; json?: boolean },
): Promise<void> {
  const { readPredictions } = await import('../../scoring/predictions.ts');
  const { findLogs } = await import('../../scoring/layout.ts');
  const { gradeLogs } = await import('../../scoring/evaluate.ts');
  const { lockFolder } = await import('../../core/lock.ts');
  const predictions = options.predictions ? await readPredictions(options.predictions) : null;
  const { context, instances, name } = await openScoring(options, options.logs);
  await using _graders = context.graders;
  const logs = await findLogs(options.logs, new Set(instances.ready.map(({ instance }) => instance.id)));
  await using _lock = await lockFolder(context.runDir);
  const scores = await gradeLogs(context, { instances, logs, predictions });
  await finish({ name, runDir: context.runDir, instances, scores, predictions, json: options.json });
}

async function finish(result: {
  name: string;
  runDir: string;
  instances: Instances;
  scores: Score[];
  predictions: Predictions | null;
  json?: boolean;
}): Promise<void> {
  const { reportOf, writeScores } = await import('../../scoring/report.ts');
  const { scoreTable, scorePage } = await import('../scores.ts');
  const { name, runDir, instances, scores, predictions } = result;
  const report = reportOf(scores, { run: name, dataset: instances.source, predictions });
  const summary = await writeScores(runDir, { scores, report, predictions });
  const page = await scorePage(runDir, { report, scores });
  console.log(result.json ? JSON.stringify(report, null, 2) : scoreTable(report));
  console.error(`\nofficial summary: ${summary} · every instance: ${runDir}/scores.jsonl · the page: ${page}`);
  const failures = scores.flatMap(({ failure, class: kind }) =>
    kind === 'infrastructure' && failure ? [failure] : [],
  );
  tellFailures(failures);
  const attempted = scores.filter(
    ({ log, class: kind }) => log !== null || kind === 'infrastructure' || kind === 'not_applied',
  );
  if (attempted.length > 0 && failures.length === attempted.length) {
    console.error(`orchard: none of ${attempted.length} instances came to a verdict: this is no score`);
    process.exitCode = 1;
  }
}

function tellFailures(failures: Failure[]): void {
  for (const { id, cause } of failures.slice(0, 5)) console.error(`without a verdict: ${id}: ${cause}`);
  if (failures.length > 5) console.error(`and ${failures.length - 5} more; the same command tries them again`);
}

async function compare(folders: string[], options: { force?: boolean; html?: string; json?: boolean }): Promise<void> {
  const { userError } = await import('../../core/errors.ts');
  const { readScores } = await import('../../scoring/report.ts');
  const { compareRuns, manyRuns } = await import('../../scoring/compare.ts');
  const { comparisonPage, comparisonText, manyRunsText } = await import('../scores.ts');
  if (folders.length < 2) throw userError('compare', 'one scoring is nothing to compare', 'name two or more folders');
  const runs = await Promise.all(folders.map(async (name) => ({ name, scores: (await readScores(name)).scores })));
  const [a, b] = runs as [(typeof runs)[0], (typeof runs)[0]];
  const pair = runs.length === 2 ? compareRuns(a, b, options) : null;
  const many = manyRuns(runs, options);
  const text = [...(pair ? [comparisonText(pair)] : []), manyRunsText(many)].join('\n\n');
  console.log(options.json ? JSON.stringify({ pair, many }, null, 2) : text);
  if (options.html === undefined) return;
  await comparisonPage(options.html, { text, runs, flipped: [...(pair?.gained ?? []), ...(pair?.lost ?? [])] });
}

async function validate(
  options: DatasetOptions & OutOptions & BoxOptions & { runs: string; json?: boolean },
): Promise<void> {
  const { join } = await import('node:path');
  const { writeJson } = await import('../../core/folder.ts');
  const { lockFolder } = await import('../../core/lock.ts');
  const { validate: check } = await import('../../scoring/validate.ts');
  const { table } = await import('../output.ts');
  const runs = await count('--runs', options.runs);
  const { context, instances } = await openScoring(options, `${options.dataset}-validity`);
  await using _graders = context.graders;
  const run = await openBoxes(options, instances);
  await using _sandboxes = run.sandboxes;
  await using _lock = await lockFolder(context.runDir);
  const found = await check(context, { instances, runs, run });
  await writeJson(join(context.runDir, 'validity.json'), found);
  if (options.json) console.log(JSON.stringify(found, null, 2));
  else {
    const odd = found.filter(({ state }) => state !== 'stable');
    if (odd.length > 0)
      console.log(
        `${table(
          ['instance', 'state', 'why'],
          odd.map(({ instance, state, why }) => [instance, state, why]),
          { left: true },
        )}\n`,
      );
    const counts = ['stable', 'flaky', 'broken', 'unknown'].map(
      (state) => `${found.filter((each) => each.state === state).length} ${state}`,
    );
    const alarms = found.filter(({ falseAlarms }) => falseAlarms.length > 0);
    console.log(`${counts.join(', ')}; the stricter verdict doubts gold on ${alarms.length} of ${found.length}`);
    for (const { instance, falseAlarms } of alarms.slice(0, 10)) console.log(`  ${instance}: ${falseAlarms[0]}`);
  }
  if (found.some(({ state }) => state !== 'stable')) process.exitCode = 1;
}

async function exportTo(
  scoring: string,
  options: {
    benchmark: string;
    name: string;
    system: string;
    report?: string;
    site?: string;
    trajectories?: string;
    out: string;
  },
): Promise<void> {
  const { exportSubmission } = await import('../../scoring/export.ts');
  const { dir, missing } = await exportSubmission(scoring, {
    out: options.out,
    submission: {
      split: options.benchmark,
      name: options.name,
      system: options.system,
      report: options.report ?? null,
      site: options.site ?? null,
      trajectories: options.trajectories ?? null,
    },
  });
  console.log(dir);
  for (const what of missing) console.error(`the checklist lacks ${what}`);
}

async function images(options: DatasetOptions & { json?: boolean }): Promise<void> {
  const { openGraders, readInstances } = await import('../../scoring/instances.ts');
  const { imageFacts } = await import('../../scoring/images.ts');
  const { forEachLimited } = await import('../../core/limit.ts');
  const { graderDir } = await import('../environment.ts');
  const { interruptSignal } = await import('../interrupt.ts');
  const { openProgress, table } = await import('../output.ts');
  await using graders = openGraders({ dir: graderDir, workers: 1 });
  const { ready } = await readInstances(options.dataset ?? '', { ...(await parsed(options)), graders });
  const needed = [
    ...new Set(ready.flatMap(({ instance: { workspace } }) => (workspace?.kind === 'image' ? workspace.image : []))),
  ];
  const signal = interruptSignal();
  const bar = openProgress().start('registry', needed.length, 'images');
  const facts: Awaited<ReturnType<typeof imageFacts>>[] = [];
  await forEachLimited(needed, { concurrency: 8, signal }, async (image) => {
    facts.push(await imageFacts(image, { signal }));
    bar.update(facts.length, '');
  });
  signal.throwIfAborted();
  bar.end('asked');
  facts.sort((a, b) => (a.image < b.image ? -1 : 1));
  if (options.json) return console.log(JSON.stringify(facts, null, 2));
  const gigabytes = (bytes: number | null): string => (bytes === null ? '-' : `${(bytes / 1e9).toFixed(2)} GB`);
  const rows = facts.map(({ image, bytes, architectures, problem }) => [
    image,
    gigabytes(bytes),
    architectures.join(' '),
    problem ?? '',
  ]);
  console.log(
    rows.length > 0
      ? table(['image', 'compressed', 'architecture', 'problem'], rows, { left: true })
      : 'no images: the rows carry their files',
  );
  const known = facts.flatMap(({ bytes }) => bytes ?? []);
  console.error(
    `${facts.length} images, ${gigabytes(known.reduce((sum, bytes) => sum + bytes, 0))} in the ${known.length} whose size is known`,
  );
}

async function importFrom(folder: string, { out }: { out: string }): Promise<void> {
  const { importAgent } = await import('../../scoring/import.ts');
  const { agent, attempts } = await importAgent(folder, out);
  const ended = (end: Attempt['end']): number => attempts.filter((attempt) => attempt.end === end).length;
  console.error(
    `${agent}: ${attempts.length} attempts, ${ended('submitted')} submitted, ${ended('limit')} at a limit, ${ended('died')} died · ${out}`,
  );
}
