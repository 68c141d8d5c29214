import { existsSync } from 'node:fs';
import { cp, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { userError } from '../core/errors.ts';
import { writeJson } from '../core/folder.ts';
import type { Score } from '../records/score.ts';
import { instanceFiles } from './layout.ts';
import { readScores } from './report.ts';

export interface Submission {
  /** lite, verified, test, multilingual or multimodal. */
  split: string;
  /** YYYYMMDD_model. */
  name: string;
  system: string;
  report: string | null;
  site: string | null;
  /** Folder of one trajectory for each instance; the checklist wants them. */
  trajectories: string | null;
}

const SPLITS = ['lite', 'verified', 'test', 'multilingual', 'multimodal'];

/**
 * A submission folder by the public checklist: predictions, metadata, README, trajectories, logs, and results over the
 * whole split.
 * @returns its path, and what the checklist still lacks
 * @throws OrchardError owner `user` when a word does not fit, or the folder is there already
 */
export async function exportSubmission(
  runDir: string,
  { out, submission }: { out: string; submission: Submission },
): Promise<{ dir: string; missing: string[] }> {
  const { scores } = await readScores(runDir);
  if (!SPLITS.includes(submission.split))
    throw userError('--benchmark', `no benchmark ${submission.split}`, `known: ${SPLITS.join(', ')}`);
  if (!/^\d{8}_[\w.-]+$/.test(submission.name))
    throw userError('--name', `${submission.name} is not YYYYMMDD_model`, 'for example 20261206_orchard-4b');
  const dir = join(out, 'evaluation', submission.split, submission.name);
  if (existsSync(dir)) throw userError(dir, `${dir} is there already`, 'remove it or choose another name');
  const missing: string[] = [];
  if (submission.trajectories !== null && !existsSync(submission.trajectories))
    throw userError('--trajectories', `there is no folder ${submission.trajectories}`, 'check the path');
  await mkdir(join(dir, 'logs'), { recursive: true });
  const predictions: string[] = [];
  for (const score of scores) {
    if (score.class === 'no_prediction') continue;
    const files = instanceFiles(runDir, { model: score.model, id: score.instance });
    const patch = existsSync(files.patch) ? await readFile(files.patch, 'utf8') : '';
    predictions.push(
      JSON.stringify({ instance_id: score.instance, model_name_or_path: submission.name, model_patch: patch }),
    );
    if (patch === '') continue;
    const target = join(dir, 'logs', score.instance);
    for (const [from, name] of [
      [files.patch, 'patch.diff'],
      [files.report, 'report.json'],
      [files.log, 'test_output.txt'],
    ] as const)
      if (existsSync(from)) await cp(from, join(target, name));
  }
  await writeFile(join(dir, 'all_preds.jsonl'), predictions.map((line) => `${line}\n`).join(''));
  await writeResults(dir, scores);
  await writeFile(
    join(dir, 'metadata.yaml'),
    stringify({
      info: { name: submission.system, report: submission.report ?? '', site: submission.site ?? '' },
      tags: { checked: false, system: { attempts: 1 } },
    }),
  );
  await writeFile(join(dir, 'README.md'), readme(submission, scores));
  if (submission.report === null) missing.push('--report: the address of a technical report');
  if (submission.trajectories === null) missing.push('--trajectories: one trajectory for each instance, in trajs/');
  else {
    await cp(submission.trajectories, join(dir, 'trajs'), { recursive: true });
    const names = await readdir(join(dir, 'trajs'));
    const without =
      predictions.length - scores.filter(({ instance }) => names.some((name) => name.includes(instance))).length;
    if (without > 0) missing.push(`${without} predictions have no trajectory whose name holds their id`);
  }
  const unscored = scores.filter((score) => score.class === 'infrastructure').length;
  if (unscored > 0) missing.push(`${unscored} instances have no verdict: run the scoring again`);
  return { dir, missing };
}

/** The files that the collection's own script writes, over the whole split. */
async function writeResults(dir: string, scores: Score[]): Promise<void> {
  const ids = (holds: (score: Score) => boolean): string[] =>
    scores
      .filter(holds)
      .map(({ instance }) => instance)
      .sort();
  await writeJson(join(dir, 'results', 'results.json'), {
    no_generation: ids(({ class: kind }) => ['no_prediction', 'empty_patch', 'agent_died'].includes(kind)),
    no_logs: ids(({ class: kind }) => ['not_applied', 'infrastructure', 'refused'].includes(kind)),
    resolved: ids(({ resolved }) => resolved),
  });
  for (const [file, field] of [
    ['resolved_by_repo.json', 'repo'],
    ['resolved_by_time.json', 'year'],
  ] as const) {
    const groups = Map.groupBy(scores, (score) => score[field] ?? 'unknown');
    await writeJson(
      join(dir, 'results', file),
      Object.fromEntries(
        [...groups]
          .sort(([a], [b]) => (a < b ? -1 : 1))
          .map(([value, group]) => [
            value,
            { resolved: group.filter(({ resolved }) => resolved).length, total: group.length },
          ]),
      ),
    );
  }
}

function readme(submission: Submission, scores: Score[]): string {
  const resolved = scores.filter((score) => score.resolved).length;
  return [
    `# ${submission.system}`,
    '',
    `Resolved ${resolved} of ${scores.length} (${((100 * resolved) / scores.length).toFixed(1)} %).`,
    '',
    '## Checklist',
    '',
    'Tick what holds; nothing here can know it.',
    '',
    '- [ ] pass@1: one attempt for each instance',
    '- [ ] no knowledge of FAIL_TO_PASS and PASS_TO_PASS',
    '- [ ] hints_text is not used',
    '- [ ] no looking up of solutions on the web',
    '',
  ].join('\n');
}
