import type { SeriesOption } from 'echarts';
import type { RlStep } from '../records/step.ts';

export interface Learned {
  name: string;
  steps: RlStep[];
}

interface Line {
  name: string;
  /** null draws nothing at that step. */
  value: (step: RlStep) => number | null;
  kind?: 'points' | 'area';
}

interface Panel {
  title: string;
  lines: Line[];
  /** Where the height over zero says more than the change. */
  fromZero?: boolean;
}

const STAGES = ['#2b6cb0', '#c05621', '#2f855a', '#6b46c1', '#b83280', '#718096'];
const PHASES = ['#a6cee3', '#b2df8a', '#fdbf6f', '#cab2d6', '#fb9a99', '#d9d9d9'];
const DASHES = ['solid', 'dashed', 'dotted', [8, 3, 2, 3]] as const;

function panelsOf(steps: RlStep[]): Panel[] {
  // Parts of parts, like rubric.rigor, would hide the rest.
  const parts = [...new Set(steps.flatMap(({ rewardParts }) => Object.keys(rewardParts)))].filter(
    (name) => !name.includes('.'),
  );
  const phases = ['rollout', 'reward', 'teacher', 'batch', 'train', 'load'] as const;
  return [
    {
      title: 'resolve rate',
      lines: [
        { name: 'rollouts', value: (step) => step.resolveRate },
        { name: 'validation', value: (step) => step.validation, kind: 'points' },
      ],
      fromZero: true,
    },
    {
      title: 'reward of the trained episodes, and its parts',
      lines: [
        { name: 'reward', value: (step) => step.reward },
        ...parts.map((name): Line => ({ name, value: (step) => step.rewardParts[name] ?? null })),
      ],
    },
    {
      title: 'KL between sampler and trainer (k3, nats a token)',
      lines: [{ name: 'mismatch', value: (step) => step.mismatch }],
      fromZero: true,
    },
    { title: 'entropy (nats a token)', lines: [{ name: 'entropy', value: (step) => step.entropy }] },
    {
      title: 'tokens sampled',
      lines: [{ name: 'sampled', value: (step) => step.tokens.sampled }],
      fromZero: true,
    },
    {
      // Phases overlap where sampling runs ahead of training: the step itself may be shorter than their sum.
      title: 'seconds by phase, stacked; the line is the step itself',
      lines: [
        ...phases
          .filter((name) => steps.some(({ seconds }) => seconds[name] > 0))
          .map((name): Line => ({ name, value: ({ seconds }) => seconds[name], kind: 'area' })),
        { name: 'step', value: ({ seconds }) => seconds.total },
      ],
      fromZero: true,
    },
  ];
}

const WIDTH = 960;
const HEIGHT = 150;
const EACH = 210;
const SIDES = { left: 80, right: 120 };
const GREY = '#666';

const short = (value: number): string =>
  value !== 0 && Math.abs(value) < 0.001
    ? value.toExponential(1)
    : value.toLocaleString('en', { maximumSignificantDigits: 6 });

/** The steps of every stage, one stage behind the other and each in its colour, as one SVG file. */
export async function drawCurves(title: string, stages: Learned[]): Promise<string> {
  const echarts = await import('echarts');
  const begun = stages.filter(({ steps }) => steps.length > 0);
  const last = begun.reduce((sum, { steps }) => sum + steps.length, 0) - 1;
  const panels = panelsOf(begun.flatMap(({ steps }) => steps));
  const top = (index: number): number => 90 + index * EACH;
  const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height: top(panels.length) - 30 });
  chart.setOption({
    animation: false,
    backgroundColor: '#fff',
    title: [
      { text: title, left: 10, top: 8, textStyle: { fontSize: 15, color: '#222' } },
      ...panels.map((panel, index) => ({
        text: panel.title,
        left: SIDES.left - 5,
        top: top(index) - 40,
        textStyle: { fontSize: 12, fontWeight: 'normal' as const, color: '#222' },
      })),
    ],
    grid: panels.map((_, index) => ({ ...SIDES, top: top(index), height: HEIGHT })),
    xAxis: panels.map((_, gridIndex) => ({
      type: 'value' as const,
      gridIndex,
      min: 0,
      max: Math.max(1, last),
      minInterval: 1,
      splitLine: { show: false },
      axisLine: { onZero: false },
      axisLabel: { color: GREY },
      ...(gridIndex === panels.length - 1
        ? { name: 'step', nameLocation: 'middle' as const, nameGap: 25, nameTextStyle: { color: GREY } }
        : {}),
    })),
    yAxis: panels.map(({ fromZero }, gridIndex) => ({
      type: 'value' as const,
      gridIndex,
      scale: !fromZero,
      // An estimate that is nothing but rounding may be just below.
      ...(fromZero ? { min: 0 } : {}),
      splitNumber: 3,
      axisLabel: { color: GREY, formatter: short },
    })),
    series: panels.flatMap((panel, index) => [
      ...bordersOf(begun, index),
      ...seriesOf(panel, { index, stages: begun }),
    ]),
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg;
}

/** A line of its own for each stage, so that it has the stage's colour; the phases have their own colours instead. */
function seriesOf({ lines }: Panel, { index, stages }: { index: number; stages: Learned[] }): SeriesOption[] {
  const phases = lines.filter(({ kind }) => kind === 'area');
  const curves = lines.filter(({ kind }) => kind === undefined);
  const all = [{ name: '', steps: stages.flatMap(({ steps }) => steps) }];
  return lines.flatMap((line) => {
    const drawn = runsOf(line, line.kind === 'area' ? all : stages);
    return drawn.map(({ stage, data }, run): SeriesOption => {
      const color = line.kind === 'area' ? PHASES[phases.indexOf(line)]! : STAGES[stage % STAGES.length]!;
      const label = {
        show: run === drawn.length - 1,
        formatter: ({ dataIndex }: { dataIndex: number }) =>
          dataIndex === data.length - 1 ? `${line.kind === 'area' ? '{key|} ' : ''}${line.name}` : '',
        color: '#222',
        rich: { key: { backgroundColor: color, width: 9, height: 9 } },
      };
      const common = { name: line.name, xAxisIndex: index, yAxisIndex: index, data, color, silent: true };
      const labelLayout = { moveOverlap: 'shiftY' as const };
      if (line.kind === 'points')
        return { ...common, type: 'scatter', symbolSize: 8, label: { ...label, position: 'right' }, labelLayout };
      return {
        ...common,
        type: 'line',
        symbolSize: 5,
        showSymbol: data.length === 1,
        endLabel: label,
        labelLayout,
        ...(line.kind === 'area'
          ? { stack: 'phases', areaStyle: { opacity: 0.9 }, lineStyle: { width: 0 } }
          : { lineStyle: { width: 2, type: DASHES[curves.indexOf(line) % DASHES.length] as 'solid' }, z: 3 }),
      };
    });
  });
}

/** Points of a line in every stage that has some, over the steps of all stages. */
function runsOf({ value }: Line, stages: Learned[]): { stage: number; data: [number, number][] }[] {
  let before = 0;
  return stages.flatMap(({ steps }, stage) => {
    const data = steps.flatMap((step, at): [number, number][] => {
      const y = value(step);
      return y === null ? [] : [[before + at, y]];
    });
    before += steps.length;
    return data.length > 0 ? [{ stage, data }] : [];
  });
}

/** Where each stage begins, with its name. */
function bordersOf(stages: Learned[], index: number): SeriesOption[] {
  let before = 0;
  return stages.map(({ name, steps }, stage) => {
    const color = STAGES[stage % STAGES.length]!;
    const at = before;
    before += steps.length;
    return {
      type: 'line',
      xAxisIndex: index,
      yAxisIndex: index,
      data: [],
      markLine: {
        silent: true,
        symbol: 'none',
        lineStyle: { color, type: 'dashed', opacity: 0.7 },
        label: { formatter: name, color, opacity: 1, position: 'end', align: 'left', distance: 4 },
        data: [{ xAxis: at }],
      },
    };
  });
}
