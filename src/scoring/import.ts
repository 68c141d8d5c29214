import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { userError } from '../core/errors.ts';
import { writeWhole } from '../core/folder.ts';
import { readForeignJsonl } from '../core/jsonl.ts';
import { Attempt } from '../records/score.ts';

interface Imported {
  instance_id: string;
  model_name_or_path: string;
  model_patch: string;
  attempt: Attempt;
}

export type Agent = 'mini-swe-agent' | 'SWE-agent' | 'OpenHands';

/** Words by which agents say that they hit a limit of theirs; other words that are no submission mean that they died. */
const LIMIT = /(?<!rate.?)limit|exit_cost|exit_context|max.?(iteration|step|turn)|stuck/i;
const SUBMITTED = /^(submitted|finished|finish|awaiting_user_input|submitted \(.*\))$/i;

/** What an agent's own word for its end says. */
export function endOf(exit: string | null): Attempt['end'] {
  if (exit === null || exit === '' || SUBMITTED.test(exit)) return 'submitted';
  return LIMIT.test(exit) ? 'limit' : 'died';
}

/**
 * Predictions out of an agent's own folder, with how each attempt ended and what it cost.
 * @throws OrchardError owner `user` when the folder is of no known agent
 */
export async function importAgent(dir: string, out: string): Promise<{ agent: Agent; attempts: Attempt[] }> {
  if (!existsSync(dir)) throw userError(dir, `there is no folder ${dir}`, 'check the path');
  const { agent, rows } = await readAgent(dir);
  await writeWhole(out, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return { agent, attempts: rows.map(({ attempt }) => attempt) };
}

async function readAgent(dir: string): Promise<{ agent: Agent; rows: Imported[] }> {
  if (existsSync(join(dir, 'output.jsonl'))) return { agent: 'OpenHands', rows: await openHands(dir) };
  const trajectories = await trajectoryFiles(dir);
  const mini = trajectories.filter((file) => file.endsWith('.traj.json'));
  const swe = trajectories.filter((file) => file.endsWith('.traj'));
  if (mini.length === 0 && swe.length === 0)
    throw userError(
      dir,
      `${dir} is of no agent that is known here`,
      'mini-swe-agent leaves <id>.traj.json, SWE-agent <id>.traj, OpenHands output.jsonl',
    );
  return mini.length > 0
    ? { agent: 'mini-swe-agent', rows: await trajectoriesOf(dir, mini) }
    : { agent: 'SWE-agent', rows: await trajectoriesOf(dir, swe) };
}

async function trajectoryFiles(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true, recursive: true });
  return entries
    .filter((entry) => entry.isFile() && /\.traj(\.json)?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

type Json = Record<string, unknown>;

/** mini-swe-agent and SWE-agent say the same in the `info` of a trajectory, in slightly different words. */
async function trajectoriesOf(dir: string, files: string[]): Promise<Imported[]> {
  const named = await predictedModels(dir);
  const rows: Imported[] = [];
  for (const file of files) {
    const id = file
      .split('/')
      .at(-1)!
      .replace(/\.traj(\.json)?$/, '');
    const whole = await readJsonFile(file);
    const info = (whole.info ?? {}) as Json;
    const stats = (info.model_stats ?? {}) as Json;
    const exit = text(info.exit_status);
    rows.push({
      instance_id: id,
      model_name_or_path: named.get(id) ?? text((info.config as Json | undefined)?.model_name) ?? 'unnamed',
      model_patch: text(info.submission) ?? '',
      attempt: Attempt.parse({
        exit,
        end: endOf(exit),
        turns: number(stats.api_calls),
        promptTokens: number(stats.tokens_sent),
        completionTokens: number(stats.tokens_received),
        cost: number(stats.instance_cost),
      }),
    });
  }
  return rows;
}

/** preds.json names the model; trajectories need not. */
async function predictedModels(dir: string): Promise<Map<string, string>> {
  const file = join(dir, 'preds.json');
  if (!existsSync(file)) return new Map();
  return new Map(
    Object.entries(await readJsonFile(file)).map(([id, value]) => [
      id,
      text((value as Json | null)?.model_name_or_path) ?? 'unnamed',
    ]),
  );
}

async function openHands(dir: string): Promise<Imported[]> {
  const rows: Imported[] = [];
  for await (const line of readForeignJsonl(join(dir, 'output.jsonl'))) {
    const row = line as Json;
    const metrics = (row.metrics ?? {}) as Json;
    const usage = (metrics.accumulated_token_usage ?? {}) as Json;
    const exit = text(row.error);
    const history = Array.isArray(row.history) ? row.history.length : null;
    rows.push({
      instance_id: text(row.instance_id) ?? '',
      model_name_or_path:
        text(((row.metadata as Json | undefined)?.llm_config as Json | undefined)?.model) ?? 'unnamed',
      model_patch: text((row.test_result as Json | undefined)?.git_patch) ?? '',
      attempt: Attempt.parse({
        exit,
        end: endOf(exit),
        turns: history,
        promptTokens: number(usage.prompt_tokens),
        completionTokens: number(usage.completion_tokens),
        cost: number(metrics.accumulated_cost),
      }),
    });
  }
  return rows;
}

async function readJsonFile(file: string): Promise<Json> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Json;
  } catch (error) {
    throw userError(
      file,
      `cannot read ${file}: ${(error as Error).message}`,
      'the agent may have been stopped while it wrote',
    );
  }
}

const text = (value: unknown): string | null => (typeof value === 'string' ? value : null);
const number = (value: unknown): number | null => (typeof value === 'number' ? value : null);
