import { z } from 'zod';
import { sha256 } from '../../core/hash.ts';
import type { Workspace } from '../../records/task.ts';
import { parsers } from './parse.ts';

/** Where a row comes from, told by its fields; the published formats share most of them. */
export type Source =
  | 'orchard'
  | 'SWE-bench 5.x'
  | 'SWE-bench 4.x'
  | 'SWE-Gym'
  | 'SWE-smith'
  | 'R2E-Gym'
  | 'SWE-rebench'
  | 'SWE-rebench V2'
  | 'SWE-bench-Live';

/** What a row says, whichever of the formats it has. */
export interface Instance {
  id: string;
  source: Source;
  repo: string;
  version: string;
  baseCommit: string;
  statement: string;
  goldPatch: string;
  testPatch: string;
  failToPass: string[];
  passToPass: string[];
  workspace: Workspace | null;
  evalScript: string | null;
  logParser: string | null;
  evalTimeoutMs: number;
  createdAt: string | null;
  difficulty: string | null;
  language: string | null;
  /** The row as it came, out of its envelope. */
  row: Record<string, unknown>;
  /** sha256 of the row as it came, as JSON. */
  rowSha256: string;
}

/** A row that cannot be used: the others go on. */
export interface RefusedRow {
  id: string;
  field: string;
  cause: string;
}

/** A list, as JSON, as JSON text, or as a Python literal: published data sets have all three. */
const TestList = z.union([z.array(z.string()), z.string()]).transform((value, context): string[] => {
  if (typeof value !== 'string') return value;
  for (const text of [value, pythonToJson(value)]) {
    try {
      const parsed: unknown = JSON.parse(text);
      if (Array.isArray(parsed) && parsed.every((each) => typeof each === 'string')) return parsed;
    } catch {
      // the other reading may fit
    }
  }
  context.addIssue({ code: 'custom', message: 'expected a list of test names' });
  return [];
});

/** A Python list of strings as JSON: quotes exchanged, those inside kept. */
function pythonToJson(text: string): string {
  return text.replaceAll(
    /'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"/g,
    (_, single: string | undefined, double: string | undefined) =>
      JSON.stringify((single ?? double ?? '').replaceAll(/\\(['"\\])/g, '$1')),
  );
}

/** An object, or its JSON as Parquet holds it. */
const Files = z.preprocess((value) => {
  try {
    return typeof value === 'string' ? JSON.parse(value) : (value ?? undefined);
  } catch {
    return value;
  }
}, z.record(z.string(), z.string()).optional());

const optionalText = z
  .union([z.string(), z.number(), z.date()])
  .nullish()
  .transform((value) => (value instanceof Date ? value.toISOString() : value == null ? null : String(value)));

const Row = z.looseObject({
  instance_id: z.string().min(1),
  repo: z.string(),
  base_commit: z.string(),
  problem_statement: z.string(),
  patch: z.string(),
  test_patch: z.string(),
  FAIL_TO_PASS: TestList,
  PASS_TO_PASS: TestList,
  version: optionalText,
  files: Files,
  image: z.string().nullish(),
  workdir: z.string().default('/testbed'),
  eval_script: z.string().min(1).nullish(),
  log_parser: z.string().min(1).nullish(),
  eval_timeout_s: z.coerce.number().positive().default(1800),
  created_at: optionalText,
  difficulty: optionalText,
  language: optionalText,
});

/**
 * One row, out of a NeMo Gym envelope where it has one.
 * @returns the instance, or the field that is wrong and why
 */
export function readInstance(raw: unknown, { index }: { index: number }): Instance | RefusedRow {
  const row = unwrapped(raw);
  const id = String(row?.instance_id ?? `row ${index + 1}`);
  if (row === null) return { id, field: 'row', cause: 'is not an object' };
  const source = sourceOf(row);
  const parsed = Row.safeParse(row);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const field = issue?.path.join('.') || 'row';
    const other = OTHER_RULES[source];
    return { id, field, cause: other ? `${source}: ${other}` : (issue?.message ?? 'does not fit') };
  }
  const { data } = parsed;
  if (data.FAIL_TO_PASS.length === 0)
    return { id, field: 'FAIL_TO_PASS', cause: 'no test that the patch has to make pass' };
  return {
    id,
    source,
    repo: data.repo,
    version: data.version ?? '',
    baseCommit: data.base_commit,
    statement: data.problem_statement,
    goldPatch: data.patch,
    testPatch: data.test_patch,
    failToPass: data.FAIL_TO_PASS,
    passToPass: data.PASS_TO_PASS,
    workspace: workspaceOf(data, source),
    evalScript: data.eval_script ?? null,
    logParser: data.log_parser ?? null,
    evalTimeoutMs: data.eval_timeout_s * 1000,
    createdAt: data.created_at,
    difficulty: data.difficulty,
    language: data.language ?? languageOf(data.patch),
    row,
    rowSha256: sha256(JSON.stringify(raw)),
  };
}

export const isRefused = (read: Instance | RefusedRow): read is RefusedRow => 'cause' in read;

function workspaceOf(data: z.infer<typeof Row>, source: Source): Workspace | null {
  if (data.files) return { kind: 'files', files: data.files };
  // 4.x rows name no image; it follows from the id (lower case, as registries want it).
  const image =
    data.image ??
    (source === 'SWE-bench 4.x'
      ? `swebench/sweb.eval.x86_64.${data.instance_id.toLowerCase().replaceAll('__', '_1776_')}:latest`
      : null);
  return image === null ? null : { kind: 'image', image, workdir: data.workdir };
}

function unwrapped(raw: unknown): Record<string, unknown> | null {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) return null;
  const row = raw as Record<string, unknown>;
  const metadata = (row.responses_create_params as { metadata?: Record<string, unknown> } | undefined)?.metadata;
  if (typeof metadata?.instance_dict !== 'string') return row;
  try {
    const inner: unknown = JSON.parse(metadata.instance_dict);
    return typeof inner === 'object' && inner !== null ? { ...metadata, ...inner } : null;
  } catch {
    return null;
  }
}

/** Fields that only one of the formats has, the telling ones first. */
function sourceOf(row: Record<string, unknown>): Source {
  const has = (field: string): boolean => row[field] !== undefined && row[field] !== null;
  const hint = String(row.dataset_name ?? '');
  if (has('expected_output_json') || /R2E/i.test(hint)) return 'R2E-Gym';
  if (has('install_config')) return has('interface') || has('pr_description') ? 'SWE-rebench V2' : 'SWE-rebench';
  if (has('rebuild_cmds') || has('test_cmds')) return 'SWE-bench-Live';
  if (has('eval_script') && has('log_parser'))
    return Object.hasOwn(parsers, String(row.log_parser)) ? 'orchard' : 'SWE-bench 5.x';
  if (has('image_name') && !has('test_patch')) return 'SWE-smith';
  return has('environment_setup_commit') ? 'SWE-bench 4.x' : 'SWE-Gym';
}

/** Sources that the official code would grade by the wrong rule, and what theirs is. */
export const OTHER_RULES: Partial<Record<Source, string>> = {
  'SWE-Gym': 'graded by its own fork of 4.x, with repositories that the official one does not know',
  'SWE-smith': 'graded by a profile of each repository; its patch introduces the defect',
  'R2E-Gym': "graded by equality of the whole status map with the row's expected_output_json",
  'SWE-rebench': "graded by its own fork of 4.x, with the test command and parser of the row's install_config",
  'SWE-rebench V2': 'graded by equality of the passed set, with parsers of its own',
  'SWE-bench-Live': 'graded by its own harness, with rebuild, test and print commands of the row',
};

const LANGUAGES: Record<string, string> = {
  py: 'Python',
  js: 'JavaScript',
  jsx: 'JavaScript',
  mjs: 'JavaScript',
  ts: 'TypeScript',
  tsx: 'TypeScript',
  java: 'Java',
  kt: 'Kotlin',
  go: 'Go',
  rs: 'Rust',
  c: 'C',
  h: 'C',
  cc: 'C++',
  cpp: 'C++',
  hpp: 'C++',
  php: 'PHP',
  rb: 'Ruby',
  cs: 'C#',
  scala: 'Scala',
  swift: 'Swift',
};

/** The language of most files that a patch changes, by their endings; null when none is known. */
function languageOf(patch: string): string | null {
  const counts = new Map<string, number>();
  for (const [, ending] of patch.matchAll(/^\+\+\+ b\/\S*\.(\w+)$/gm)) {
    const language = LANGUAGES[ending!.toLowerCase()];
    if (language) counts.set(language, (counts.get(language) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a)[0]?.[0] ?? null;
}
