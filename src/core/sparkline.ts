const LEVELS = '▁▂▃▄▅▆▇█';

/** Values as a line of small bars from the least to the greatest; '' for none. */
export function sparkline(values: number[]): string {
  const low = Math.min(...values);
  const span = Math.max(...values) - low;
  return values
    .map((value) => LEVELS[span > 0 ? Math.round(((value - low) / span) * (LEVELS.length - 1)) : 0])
    .join('');
}
