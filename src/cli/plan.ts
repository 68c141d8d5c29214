import type { LoadedRecipe } from '../recipe/load.ts';
import { joinPath } from '../recipe/origin.ts';
import { planStages } from '../recipe/run.ts';
import { shorten, table } from './output.ts';

/** Every value with where it came from, then the stages; nothing is started. */
export function printPlan(
  { recipe, origins, file }: LoadedRecipe,
  { json, values }: { json: boolean; values: boolean },
): void {
  const stages = planStages(recipe);
  if (json) {
    console.log(
      JSON.stringify({
        recipe,
        origins: Object.fromEntries(leaves(recipe).map(([path]) => [path, originOf(origins, path)])),
        stages: stages.map(({ kind, name, needs, lines }) => ({ kind, name, needs, does: lines })),
      }),
    );
    return;
  }
  console.log(`recipe ${recipe.name} (${file})\n`);
  if (values)
    console.log(
      `${table(
        ['from', 'value'],
        leaves(recipe).map(([path, value]) => [originOf(origins, path), `${path}: ${shorten(JSON.stringify(value))}`]),
        { left: true },
      )}\n`,
    );
  for (const { name, kind, lines, needs } of stages) {
    console.log(
      `${name}${name === kind ? '' : ` (${kind})`}${needs.length > 0 ? ` ← ${[...new Set(needs)].join(', ')}` : ''}`,
    );
    for (const line of lines) console.log(`  ${line}`);
  }
}

function leaves(value: unknown, path = ''): [string, unknown][] {
  if (Array.isArray(value) && value.some((item) => typeof item === 'object'))
    return value.flatMap((item, index) => leaves(item, joinPath(path, index)));
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    return Object.entries(value).flatMap(([key, below]) =>
      below === undefined ? [] : leaves(below, joinPath(path, key)),
    );
  }
  return [[path, value]];
}

/** Where a value came from; one inside of what was set whole has the place of that. */
function originOf(origins: Map<string, string>, path: string): string {
  for (let at = path; at !== ''; at = at.replace(/(\.[^.[\]]+|\[\d+\]|^[^.[\]]+)$/, '')) {
    const origin = origins.get(at);
    if (origin !== undefined && (at === path || origin.startsWith('--'))) return origin;
  }
  return 'default';
}
