import { join } from 'node:path';
import { writeWhole } from '../core/folder.ts';
import type { Score } from '../records/score.ts';
import type { Comparison, ManyRuns, ScoredRun } from '../scoring/compare.ts';
import type { Rate, ScoreReport } from '../scoring/report.ts';
import { table } from './output.ts';

const percent = (share: number): string => (Number.isNaN(share) ? '-' : `${(100 * share).toFixed(1)} %`);

const rateText = ({ resolved, total, interval: [low, high] }: Rate): string =>
  total === 0
    ? 'none'
    : `${resolved}/${total}  ${percent(resolved / total)}  (95 % ${(100 * low).toFixed(1)} – ${(100 * high).toFixed(1)})`;

/** Reasons for no resolution in words. */
const CLASSES: Record<string, string> = {
  resolved: 'resolved',
  f2p_unmet: 'fix missing (F2P unmet)',
  p2p_broken: 'broke others (P2P)',
  tests_missing: 'no test results',
  not_applied: 'patch not applied',
  timeout: 'timeout',
  empty_patch: 'empty patch',
  agent_died: 'agent died',
  no_prediction: 'no prediction',
  infrastructure: 'NO VERDICT',
  refused: 'row refused',
};

/** The report for a terminal. */
export function scoreTable(report: ScoreReport): string {
  const { hardened, predictions } = report;
  const doubted = hardened.resolved.unresolved + hardened.resolved.doubtful;
  const lines = [
    `${report.run} · ${report.dataset} · official profile ${report.profiles.join(' and ') || '-'}`,
    '',
    `resolved      ${rateText(report.rate)}`,
    `of completed  ${rateText(report.completed)}`,
    `hardened      doubts ${doubted} of ${report.rate.resolved} resolved (${hardened.resolved.unresolved} surely not resolved), and ${hardened.doubtfulFailures} failures`,
    '',
    table(
      ['class', 'instances'],
      Object.entries(report.classes)
        .filter(([, count]) => count > 0)
        .map(([name, count]) => [CLASSES[name] ?? name, String(count)]),
    ),
  ];
  const reasons = Object.entries(hardened.reasons);
  if (reasons.length > 0)
    lines.push(
      '',
      table(
        ['suspicion', 'instances'],
        reasons.map(([name, count]) => [name, String(count)]),
      ),
    );
  if (predictions.foreign.length > 0)
    lines.push(
      '',
      `${predictions.foreign.length} predictions are of no row: ${predictions.foreign.slice(0, 3).join(', ')}`,
    );
  if (predictions.duplicates.length > 0)
    lines.push('', `${predictions.duplicates.length} ids occur twice in the predictions; the last one counts`);
  for (const [field, groups] of Object.entries(report.tables)) {
    if (Object.keys(groups).length < 2 || Object.keys(groups).length > 40) continue;
    lines.push(
      '',
      table(
        [field, 'resolved', 'rate'],
        Object.entries(groups).map(([value, { resolved, total }]) => [
          value,
          `${resolved}/${total}`,
          percent(resolved / total),
        ]),
      ),
    );
  }
  if (report.cost) {
    const { perAttempt, perResolved } = report.cost;
    const number = (value: number | null | undefined): string =>
      value === null || value === undefined
        ? '-'
        : value >= 100
          ? Math.round(value).toLocaleString('en')
          : value.toFixed(2);
    lines.push(
      '',
      table(
        ['cost', 'median', 'p90', 'sum', 'per resolved'],
        Object.entries(perAttempt)
          .filter(([, spread]) => spread !== null)
          .map(([name, spread]) => [
            name,
            number(spread!.median),
            number(spread!.p90),
            number(spread!.sum),
            number(perResolved[name as keyof typeof perResolved]),
          ]),
      ),
    );
  }
  return lines.join('\n');
}

export function comparisonText(pair: Comparison): string {
  const share = (count: number): string => `${count}/${pair.total}  ${percent(count / pair.total)}`;
  const ids = (list: string[]): string =>
    list.length > 20 ? `${list.slice(0, 20).join(' ')} and ${list.length - 20} more` : list.join(' ');
  return [
    `a  ${pair.a.name}  ${share(pair.a.resolved)}`,
    `b  ${pair.b.name}  ${share(pair.b.resolved)}`,
    `b − a  ${(100 * pair.difference).toFixed(1)} points (95 % bootstrap ${(100 * pair.interval[0]).toFixed(1)} to ${(100 * pair.interval[1]).toFixed(1)})`,
    `gained ${pair.gained.length}, lost ${pair.lost.length} · McNemar exact p = ${pair.mcnemar.toPrecision(2)}, mid-p = ${pair.midP.toPrecision(2)}`,
    ...(pair.withoutVerdict > 0 ? [`${pair.withoutVerdict} instances are left out: no verdict in one of them`] : []),
    ...(pair.gained.length > 0 ? [`gained: ${ids(pair.gained)}`] : []),
    ...(pair.lost.length > 0 ? [`lost: ${ids(pair.lost)}`] : []),
  ].join('\n');
}

export function manyRunsText(many: ManyRuns): string {
  const lines = [
    table(
      ['scoring', 'resolved', 'rate'],
      many.runs.map(({ name, resolved, total }) => [name, `${resolved}/${total}`, percent(resolved / total)]),
    ),
    `mean ${percent(many.mean)} ± ${(100 * many.sd).toFixed(1)} (SD of ${many.runs.length} runs); 95 % over instances ${(100 * many.interval[0]).toFixed(1)} – ${(100 * many.interval[1]).toFixed(1)}`,
    '',
    table(
      ['k', 'mean', 'pass@k', 'pass^k', 'best@k'],
      many.k.map(({ k, mean, pass, passHat, best }) => [
        String(k),
        percent(mean),
        percent(pass),
        percent(passHat),
        best === null ? '-' : percent(best),
      ]),
    ),
  ];
  const tied = many.k[0]?.best === null ? 0 : (many.k[0]?.tied ?? 0);
  if (tied > 0)
    lines.push(`${tied} of ${many.instances} instances have tied values; each of the tied is taken equally often`);
  return lines.join('\n');
}

const escaped = (text: string): string => text.replaceAll(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** One file without anything from elsewhere. */
const page = (title: string, body: string): string =>
  `<!doctype html><meta charset="utf-8"><title>${escaped(title)}</title><style>body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:1100px;padding:0 1rem}pre{overflow-x:auto;background:#f7f7f7;padding:.5rem}summary{cursor:pointer}</style>\n<h1>${escaped(title)}</h1>\n${body}\n`;

/** One instance, to be opened: its tests, suspicions and the end of its log. */
function instanceDetails(score: Score, title = score.instance): string {
  const tests = (['FAIL_TO_PASS', 'PASS_TO_PASS'] as const).flatMap((name) =>
    score.tests
      ? [
          `${name}: ${score.tests[name].success.length} pass, ${score.tests[name].failure.length} do not`,
          ...score.tests[name].failure.slice(0, 20).map((test) => `  ✗ ${test}`),
        ]
      : [],
  );
  const doubts = score.hardened?.suspicious.map(({ code, detail }) => `? ${code}: ${detail}`) ?? [];
  const facts = [...(score.failure ? [score.failure.cause] : []), ...tests, ...doubts, ...score.prepared];
  const doubted = score.hardened?.verdict !== 'resolved';
  const mark = score.resolved ? (doubted ? '?' : '✓') : score.class === 'infrastructure' ? '!' : '✗';
  const log = score.log ? `<pre>${escaped(score.log.tail)}</pre>` : '';
  return `<details id="${escaped(title)}"><summary>${mark} ${escaped(title)} · ${escaped(CLASSES[score.class] ?? score.class)}</summary><pre>${escaped(facts.join('\n'))}</pre>${log}</details>`;
}

/** report.html: the tables and every instance. */
export async function scorePage(
  runDir: string,
  { report, scores }: { report: ScoreReport; scores: Score[] },
): Promise<string> {
  const file = join(runDir, 'report.html');
  const instances = scores.map((score) => instanceDetails(score)).join('\n');
  await writeWhole(file, page(report.run, `<pre>${escaped(scoreTable(report))}</pre><h2>Instances</h2>\n${instances}`));
  return file;
}

/** The comparison, and each flipped instance as every scoring has it. */
export async function comparisonPage(
  file: string,
  { text, runs, flipped }: { text: string; runs: ScoredRun[]; flipped: string[] },
): Promise<void> {
  const both = flipped.flatMap((id) =>
    runs.flatMap(({ name, scores }) =>
      scores.filter(({ instance }) => instance === id).map((score) => instanceDetails(score, `${id} in ${name}`)),
    ),
  );
  const title = runs.map(({ name }) => name).join(' and ');
  await writeWhole(file, page(title, `<pre>${escaped(text)}</pre><h2>Flipped</h2>\n${both.join('\n')}`));
}
