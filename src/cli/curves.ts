import type { RlStep } from '../records/step.ts';

export interface Learned {
  name: string;
  steps: RlStep[];
}

/** What is drawn of a step: a panel each, with its lines. null draws nothing at that step. */
const PANELS: { title: string; lines: Record<string, (step: RlStep) => number | null>; points?: string[] }[] = [
  {
    title: 'resolve rate',
    lines: { rollouts: (step) => step.resolveRate, validation: (step) => step.validation },
    points: ['validation'],
  },
  {
    title: 'reward of the trained episodes',
    lines: {
      reward: (step) => step.reward,
      tests: (step) => step.rewardParts.tests ?? null,
      rubric: (step) => step.rewardParts.rubric ?? null,
    },
  },
  { title: 'KL between sampler and trainer (k3, nats a token)', lines: { mismatch: (step) => step.mismatch } },
  { title: 'entropy (nats a token)', lines: { entropy: (step) => step.entropy } },
  { title: 'tokens', lines: { sampled: (step) => step.tokens.sampled, trained: (step) => step.tokens.trained } },
  {
    title: 'seconds',
    lines: {
      rollout: (step) => step.seconds.rollout,
      train: (step) => step.seconds.train,
      total: (step) => step.seconds.total,
    },
  },
];

const WIDTH = 960;
const PANEL = 150;
const GAP = 60;

/** The steps of every stage, one stage behind the other, as one SVG file. */
export async function drawCurves(title: string, stages: Learned[]): Promise<string> {
  const echarts = await import('echarts');
  const all = stages.flatMap(({ steps }) => steps);
  const borders: { at: number; name: string }[] = [];
  let before = 0;
  for (const { name, steps } of stages) {
    borders.push({ at: before, name });
    before += steps.length;
  }
  const height = 50 + PANELS.length * (PANEL + GAP);
  const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height });
  const top = (index: number): number => 70 + index * (PANEL + GAP);
  chart.setOption({
    animation: false,
    backgroundColor: '#fff',
    color: ['#2b6cb0', '#c05621', '#2f855a'],
    title: [
      { text: title, left: 10, top: 8, textStyle: { fontSize: 15 } },
      ...PANELS.map((panel, index) => ({
        text: panel.title,
        left: 60,
        top: top(index) - 24,
        textStyle: { fontSize: 12, fontWeight: 'normal' },
      })),
    ],
    grid: PANELS.map((_, index) => ({ left: 60, right: 130, top: top(index), height: PANEL })),
    xAxis: PANELS.map((_, index) => ({
      type: 'value',
      gridIndex: index,
      min: 0,
      max: Math.max(1, before - 1),
      minInterval: 1,
    })),
    yAxis: PANELS.map((_, index) => ({ type: 'value', gridIndex: index, scale: true, splitNumber: 3 })),
    series: PANELS.flatMap((panel, index) =>
      Object.entries(panel.lines).flatMap(([name, value], order) => {
        const data = all.flatMap((step, at) => (value(step) === null ? [] : [[at, value(step)!]]));
        if (data.length === 0) return [];
        const isPoints = panel.points?.includes(name);
        return {
          name,
          type: isPoints ? 'scatter' : 'line',
          xAxisIndex: index,
          yAxisIndex: index,
          data,
          showSymbol: data.length === 1,
          symbolSize: isPoints ? 8 : 4,
          endLabel: { show: !isPoints, formatter: name },
          ...(isPoints
            ? {
                label: {
                  show: true,
                  formatter: ({ dataIndex }: { dataIndex: number }) => (dataIndex === data.length - 1 ? name : ''),
                  position: 'right',
                },
              }
            : {}),
          ...(order === 0 && borders.length > 1
            ? {
                markLine: {
                  silent: true,
                  symbol: 'none',
                  lineStyle: { color: '#999', type: 'dashed' },
                  label: {
                    formatter: ({ dataIndex }: { dataIndex: number }) => borders[dataIndex]!.name,
                    position: 'insideEndTop',
                  },
                  data: borders.map(({ at }) => ({ xAxis: at })),
                },
              }
            : {}),
        };
      }),
    ),
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg;
}
