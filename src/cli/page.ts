import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { writeWhole } from '../core/folder.ts';
import { readJsonl } from '../core/jsonl.ts';
import type { Report } from '../records/report.ts';
import { RlStep } from '../records/step.ts';
import { drawCurves } from './curves.ts';
import { reportTable } from './output.ts';

const WIDTH = 720;
const LEFT = 150;
const ROW = 34;
const COLOURS = ['#2b6cb0', '#c05621', '#2f855a', '#6b46c1', '#b83280', '#718096'];

/** report.html: resolve rates with their intervals, loss curves, and the table; one file, no scripts. */
export async function writePage(
  runDir: string,
  { report, stages }: { report: Report; stages: string[] },
): Promise<string> {
  const curves = (await Promise.all(stages.map((stage) => lossOf(join(runDir, stage), stage)))).filter(
    (curve) => curve.points.length > 1,
  );
  const learned = (await Promise.all(stages.map((stage) => stepsOf(join(runDir, stage), stage)))).filter(
    ({ steps }) => steps.length > 1,
  );
  const file = join(runDir, 'report.html');
  const body = [
    `<h1>${escaped(report.run)}</h1>`,
    '<h2>Resolve rate on held-out tasks, with 95 % Wilson intervals</h2>',
    rates(report),
    ...(curves.length > 0 ? ['<h2>Training loss</h2>', losses(curves)] : []),
    ...(learned.length > 0 ? ['<h2>Reinforcement learning</h2>', await drawCurves(report.run, learned)] : []),
    `<h2>Every row</h2><pre>${escaped(reportTable(report))}</pre>`,
  ];
  await writeWhole(
    file,
    `<!doctype html><meta charset="utf-8"><title>${escaped(report.run)}</title><style>body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:1100px;padding:0 1rem}h2{font-size:1rem;margin-top:2rem}pre{overflow-x:auto}text{font:13px system-ui,sans-serif;fill:#333}</style>\n${body.join('\n')}\n`,
  );
  return file;
}

const escaped = (text: string): string => text.replaceAll(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

const svg = (height: number, parts: string[]): string =>
  `<svg viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img">${parts.join('')}</svg>`;

const label = (
  x: number,
  y: number,
  { text, anchor = 'start' }: { text: string; anchor?: 'start' | 'middle' | 'end' },
): string => `<text x="${x}" y="${y}" text-anchor="${anchor}">${escaped(text)}</text>`;

const line = (points: [number, number][], { colour, width = 1 }: { colour: string; width?: number }): string =>
  `<polyline points="${points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(' ')}" fill="none" stroke="${colour}" stroke-width="${width}"/>`;

function rates({ rows }: Report): string {
  const x = (share: number): number => LEFT + share * (WIDTH - LEFT - 20);
  const bottom = rows.length * ROW + 10;
  return svg(bottom + 25, [
    ...[0, 0.25, 0.5, 0.75, 1].flatMap((share) => [
      line(
        [
          [x(share), 0],
          [x(share), bottom],
        ],
        { colour: '#ddd' },
      ),
      label(x(share), bottom + 18, { text: `${100 * share} %`, anchor: 'middle' }),
    ]),
    ...rows.flatMap(({ name, resolved, classes, interval }, index) => {
      const y = index * ROW + 20;
      const scored = classes.graded + classes.empty_patch;
      return [
        label(LEFT - 12, y + 5, { text: name, anchor: 'end' }),
        line(
          [
            [x(interval[0]), y],
            [x(interval[1]), y],
          ],
          { colour: COLOURS[0]!, width: 3 },
        ),
        scored > 0 ? `<circle cx="${x(resolved / scored)}" cy="${y}" r="6" fill="${COLOURS[0]}"/>` : '',
      ];
    }),
  ]);
}

async function stepsOf(dir: string, name: string): Promise<{ name: string; steps: RlStep[] }> {
  return { name, steps: await Array.fromAsync(readJsonl(join(dir, 'steps.jsonl'), RlStep)) };
}

interface Curve {
  stage: string;
  /** Trained tokens so far, and loss. */
  points: [number, number][];
}

async function lossOf(dir: string, stage: string): Promise<Curve> {
  const points: Curve['points'] = [];
  const file = join(dir, 'metrics.jsonl');
  if (existsSync(file))
    for await (const step of readJsonl(file)) {
      const { trained_tokens: tokens, loss } = step as { trained_tokens: number; loss: number };
      points.push([tokens, loss]);
    }
  return { stage, points };
}

function losses(curves: Curve[]): string {
  const [height, top] = [240, 10];
  const all = curves.flatMap(({ points }) => points);
  const most = { tokens: Math.max(...all.map(([tokens]) => tokens)), loss: Math.max(...all.map(([, loss]) => loss)) };
  const place = ([tokens, loss]: [number, number]): [number, number] => [
    60 + (tokens / most.tokens) * (WIDTH - 80),
    top + (1 - loss / most.loss) * (height - top),
  ];
  return svg(height + 30 + 18 * curves.length, [
    line(
      [
        [60, top],
        [60, height],
        [WIDTH - 20, height],
      ],
      { colour: '#999' },
    ),
    label(52, top + 8, { text: most.loss.toFixed(2), anchor: 'end' }),
    label(52, height, { text: '0', anchor: 'end' }),
    label(WIDTH - 20, height + 18, { text: `${most.tokens.toLocaleString('en')} trained tokens`, anchor: 'end' }),
    ...curves.flatMap(({ stage, points }, index) => [
      line(points.map(place), { colour: COLOURS[index % COLOURS.length]!, width: 1.5 }),
      line(
        [
          [60, height + 26 + 18 * index],
          [84, height + 26 + 18 * index],
        ],
        { colour: COLOURS[index % COLOURS.length]!, width: 3 },
      ),
      label(92, height + 30 + 18 * index, { text: stage }),
    ]),
  ]);
}
