import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument } from 'yaml';
import { userError } from '../core/errors.ts';

/** A value of a recipe before resolving, with the place each leaf and branch came from. */
export interface Raw {
  value: Record<string, unknown>;
  /** Dotted path (`stages[2].sft.epochs`) to `file:line` or `--set`. */
  origins: Map<string, string>;
}

export const joinPath = (base: string, key: string | number): string =>
  typeof key === 'number' ? `${base}[${key}]` : base === '' ? key : `${base}.${key}`;

/** Reads a recipe file and what it extends (at most one level). @throws OrchardError owner `user` */
export async function readRaw(file: string, shown: string): Promise<Raw> {
  const own = await readOne(file, shown);
  const parent = own.value.extends;
  if (parent === undefined) return own;
  if (typeof parent !== 'string')
    throw userError(shown, `${shown}: extends: expected a file name`, 'name one recipe file');
  const base = await readOne(resolve(dirname(file), parent), parent);
  if (base.value.extends !== undefined) {
    throw userError(
      shown,
      `${shown}: extends ${parent}, which extends another recipe itself`,
      'extend one recipe, one level deep',
    );
  }
  delete own.value.extends;
  return overlay(base, own);
}

async function readOne(file: string, shown: string): Promise<Raw> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch {
    throw userError(
      shown,
      `there is no recipe ${shown}`,
      'see `orchard list` for the recipes, or give a path ending in .yaml',
    );
  }
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, merge: true });
  const problem = document.errors[0];
  if (problem)
    throw userError(
      shown,
      `${shown}:${problem.linePos?.[0].line ?? '?'}: ${problem.message.split('\n')[0]}`,
      'mend the YAML',
    );
  if (!isMap(document.contents))
    throw userError(shown, `${shown}: expected settings, name: value`, 'see recipes/tiny.yaml');
  const origins = new Map<string, string>();
  const visit = (node: unknown, path: string): void => {
    if (isAlias(node)) {
      visit(node.resolve(document), path);
    } else if (isMap(node)) {
      const merged = ({ key }: { key: unknown }): boolean => isScalar(key) && key.source === '<<';
      for (const pair of node.items.filter(merged)) visit(pair.value, path);
      for (const pair of node.items.filter((each) => !merged(each))) {
        const key = joinPath(path, String(isScalar(pair.key) ? pair.key.value : pair.key));
        const offset = isScalar(pair.key) ? pair.key.range?.[0] : undefined;
        if (offset !== undefined) origins.set(key, `${shown}:${lines.linePos(offset).line}`);
        visit(pair.value, key);
      }
    } else if (isSeq(node)) {
      for (const [index, item] of node.items.entries()) {
        const key = joinPath(path, index);
        const offset = (item as { range?: [number] | null }).range?.[0];
        if (offset !== undefined) origins.set(key, `${shown}:${lines.linePos(offset).line}`);
        visit(item, key);
      }
    }
  };
  try {
    const value = absolute(document.toJS(), dirname(file)) as Record<string, unknown>;
    visit(document.contents, '');
    return { value, origins };
  } catch (error) {
    throw userError(
      shown,
      `${shown}: ${(error as Error).message}`,
      'check its anchors (&name), aliases (*name) and merges (<<: *name)',
    );
  }
}

/** Texts that begin with ./ or ../ are paths, from the folder of the file that says them. */
function absolute(value: unknown, dir: string): unknown {
  if (typeof value === 'string') return /^\.\.?\//.test(value) ? resolve(dir, value) : value;
  if (Array.isArray(value)) return value.map((item) => absolute(item, dir));
  if (isObject(value))
    return Object.fromEntries(Object.entries(value).map(([key, below]) => [key, absolute(below, dir)]));
  return value;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The words that choose what an object's other settings are. */
const CHOOSERS = ['kind', 'benchmark'];

/** Lays `top` over `base`: objects merge, lists and scalars replace, and another `kind` replaces the whole object. */
export function overlay(base: Raw, top: Raw): Raw {
  const origins = new Map(base.origins);
  const forget = (path: string): void => {
    for (const known of [...origins.keys()]) {
      if (known === path || known.startsWith(`${path}.`) || known.startsWith(`${path}[`)) origins.delete(known);
    }
  };
  const merge = (under: unknown, over: unknown, path: string): unknown => {
    if (isObject(under) && isObject(over) && !CHOOSERS.some((key) => key in over && over[key] !== under[key])) {
      const merged: Record<string, unknown> = { ...under };
      for (const [key, value] of Object.entries(over)) merged[key] = merge(under[key], value, joinPath(path, key));
      return merged;
    }
    forget(path);
    return over;
  };
  const value = merge(base.value, top.value, '') as Record<string, unknown>;
  for (const [path, origin] of top.origins) origins.set(path, origin);
  return { value, origins };
}

/** Applies one `--set path=value`; the value is YAML, paths are from `cwd`. @throws OrchardError owner `user` */
export function applySet(raw: Raw, assignment: string, cwd: string): Raw {
  const equals = assignment.indexOf('=');
  const path = assignment.slice(0, equals).trim();
  if (equals < 1 || !/^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+|\[\d+\])*$/.test(path)) {
    throw userError('--set', `--set ${assignment}: expected path=value`, 'for example --set harness.turns=8');
  }
  const keys = [...path.matchAll(/\[(\d+)\]|[^.[\]]+/g)].map((match) =>
    match[1] === undefined ? match[0] : Number(match[1]),
  );
  const parsed = absolute(parseDocument(assignment.slice(equals + 1)).toJS(), cwd);
  const copy = structuredClone(raw.value);
  const origins = new Map(raw.origins);
  let at: Record<string | number, unknown> = copy;
  let walked = '';
  for (const [index, key] of keys.entries()) {
    walked = joinPath(walked, key);
    if (index < keys.length - 1) {
      if (Array.isArray(at) && !(Number(key) in at)) {
        throw userError(
          '--set',
          `--set ${assignment}: ${walked} does not exist`,
          `the list has ${at.length} entries, counted from 0`,
        );
      }
      at[key] ??= {};
      if (typeof at[key] !== 'object' || at[key] === null) at[key] = {};
      at = at[key] as Record<string | number, unknown>;
    } else {
      if (CHOOSERS.includes(String(key)) && at[key] !== parsed) for (const other of Object.keys(at)) delete at[other];
      at[key] = parsed;
    }
    if (!origins.has(walked) || index === keys.length - 1) origins.set(walked, '--set');
  }
  for (const known of [...origins.keys()])
    if (known.startsWith(`${path}.`) || known.startsWith(`${path}[`)) origins.delete(known);
  return { value: copy, origins };
}
