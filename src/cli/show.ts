import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { openBlobsReader } from '../core/blobs.ts';
import { userError } from '../core/errors.ts';
import { readJson } from '../core/folder.ts';
import { readJsonl } from '../core/jsonl.ts';
import { Episode } from '../records/episode.ts';
import { Report } from '../records/report.ts';
import { Verdict } from '../records/verdict.ts';
import { conversationsOf, openCalls } from '../stages/conversations.ts';
import { attemptFolders } from '../stages/outcomes.ts';
import { Rewarded } from '../stages/rl/rewards.ts';
import type { Selected } from '../stages/sft.ts';
import type { RunView } from './look.ts';
import { reportTable, table } from './output.ts';

export async function showReport(view: RunView, json: boolean): Promise<void> {
  const file = join(view.dir, 'report.json');
  if (!existsSync(file))
    throw userError(view.name, `run ${view.name} has no report yet`, `see how far it is: orchard status ${view.name}`);
  const report = Report.parse(await readJson(file));
  console.log(json ? JSON.stringify(report) : reportTable(report));
  if (json) return;
  for (const { name, versus } of report.rows) {
    if (versus)
      console.log(
        `\n${name} against ${versus.name}\n  gained ${some(versus.gainedIds)}\n  lost   ${some(versus.lostIds)}`,
      );
  }
}

/** The first few of many ids. */
const some = (ids: string[]): string =>
  ids.length === 0
    ? 'none'
    : `${ids.slice(0, 5).join(' ')}${ids.length > 5 ? ` and ${ids.length - 5} more (--json)` : ''}`;

/** Folders of a run that hold episodes. */
async function episodeFolders(view: RunView, stage?: string): Promise<string[]> {
  const folders: string[] = [];
  for (const { name } of view.stages.filter((each) => stage === undefined || each.name === stage))
    folders.push(...(await attemptFolders(join(view.dir, name))));
  return folders;
}

/** The last record of each episode of a folder with its verdict. */
async function episodesOf(folder: string): Promise<Map<string, { episode: Episode; verdict: Verdict | null }>> {
  const all = new Map<string, { episode: Episode; verdict: Verdict | null }>();
  for await (const episode of readJsonl(join(folder, 'episodes.jsonl'), Episode))
    all.set(episode.id, { episode, verdict: null });
  for await (const verdict of readJsonl(join(folder, 'verdicts.jsonl'), Verdict)) {
    const known = all.get(verdict.episode);
    if (known) known.verdict = verdict;
  }
  return all;
}

export async function showStage(view: RunView, { stage, json }: { stage: string; json: boolean }): Promise<void> {
  const rows: string[][] = [];
  for (const folder of await episodeFolders(view, stage)) {
    for (const { episode, verdict } of (await episodesOf(folder)).values()) {
      if (json) console.log(JSON.stringify({ episode, verdict }));
      else
        rows.push([
          episode.id,
          verdictWord(verdict),
          episode.end.kind,
          String(episode.calls),
          String(episode.tokens.completion),
        ]);
    }
  }
  if (rows.length === 0) await showSelection(join(view.dir, stage), json);
  else if (!json)
    console.log(
      table(
        ['episode', 'verdict', 'end', 'calls', 'tokens sampled'],
        rows.sort((a, b) => (a[0]! < b[0]! ? -1 : 1)),
      ),
    );
}

/** What a training stage made of each attempt. */
async function showSelection(dir: string, json: boolean): Promise<void> {
  const selected: Selected[] = [];
  for await (const line of readJsonl(join(dir, 'selection.jsonl'))) selected.push(line as Selected);
  if (json) for (const line of selected) console.log(JSON.stringify(line));
  else
    console.log(
      table(
        ['attempt', 'use', 'trained turns', 'trained tokens'],
        selected.map(({ id, use, trainedTurns, trainedTokens }) => [
          id,
          use,
          trainedTurns.join(' '),
          String(trainedTokens),
        ]),
      ),
    );
}

const verdictWord = (verdict: Verdict | null): string =>
  verdict === null
    ? 'not graded'
    : verdict.class === 'graded'
      ? verdict.resolved
        ? 'resolved'
        : 'failed'
      : verdict.class.replace('_', ' ');

export async function showEpisode(view: RunView, { id, json }: { id: string; json: boolean }): Promise<void> {
  for (const folder of await episodeFolders(view)) {
    const found = (await episodesOf(folder)).get(id);
    if (!found) continue;
    await using blobs = await openBlobsReader(join(view.dir, 'blobs'));
    await using calls = await openCalls(folder);
    const recorded = await calls.callsOf(found.episode);
    const [conversation] = (await conversationsOf(recorded, blobs)).slice(-1);
    const patch = found.episode.patch ? (await blobs.get(found.episode.patch.sha256)).toString() : '';
    const uses = await usesOf(view, id);
    const reward = await rewardOf(folder, id);
    if (json) {
      console.log(JSON.stringify({ ...found, messages: conversation?.messages ?? [], patch, uses, reward }));
      return;
    }
    const { episode, verdict } = found;
    console.log(
      `${episode.id}   ${verdictWord(verdict)}   ended: ${episode.end.kind}${episode.end.detail ? ` (${episode.end.detail})` : ''}`,
    );
    console.log(
      `model ${episode.model.name} ${episode.model.version} · ${episode.calls} calls · ${episode.tokens.prompt} prompt and ${episode.tokens.completion} sampled tokens\n`,
    );
    // The first training stage that judged it has the values; whichever trained on it marks the turns.
    const judged = uses.find(({ selected }) => selected.values)?.selected;
    let turn = 0;
    for (const { role, content, tool_calls } of conversation?.messages ?? []) {
      if (role === 'assistant') {
        const trainedBy = uses.filter(({ selected }) => selected.trainedTurns.includes(turn)).map(({ stage }) => stage);
        const value = judged?.values?.[turn];
        const credit = judged?.credit?.[turn];
        console.log(
          `turn ${turn}${value === undefined ? '' : `  V ${value.toFixed(2)} ${bar(value)}  credit ${signed(credit ?? 0)}`}${trainedBy.length > 0 ? `  ◀ trained by ${trainedBy.join(', ')}` : ''}`,
        );
        turn++;
      } else console.log(role);
      for (const line of [content ?? '', ...(tool_calls ?? []).map((call) => commandOf(call.function.arguments))]
        .join('\n')
        .trim()
        .split('\n'))
        console.log(`  │ ${line}`);
    }
    const end = judged?.values?.[turn];
    if (end !== undefined) console.log(`end     V ${end.toFixed(2)} ${bar(end)}`);
    if (patch) console.log(`\npatch\n${patch}`);
    if (verdict) {
      console.log(
        `tests   ${Object.entries(verdict.tests)
          .map(([test, status]) => `${status} ${test}`)
          .join('\n        ')}`,
      );
      if (verdict.failure) console.log(`        ${verdict.failure.cause}\n        ${verdict.failure.wayOut}`);
    }
    if (reward) {
      const parts = Object.entries(reward.parts).map(([name, value]) => `${name} ${value.toFixed(2)}`);
      console.log(
        `reward  ${reward.value.toFixed(3)} = ${parts.join('\n        ')}${reward.problem ? `\n        ${reward.problem}` : ''}`,
      );
    }
    for (const { stage, selected } of uses)
      console.log(
        `${stage}: ${selected.use}${selected.detail ? ` (${selected.detail})` : ''}, ${selected.trainedTokens} of ${selected.tokens} tokens trained`,
      );
    return;
  }
  throw userError(
    id,
    `run ${view.name} has no episode ${id}`,
    `list them: orchard show ${view.name} <stage>, stages ${view.stages.map(({ name }) => name).join(', ')}`,
  );
}

/** What an episode of reinforcement learning earned; null for those that were not chosen. */
async function rewardOf(folder: string, id: string): Promise<Rewarded | null> {
  let found: Rewarded | null = null;
  for await (const line of readJsonl(join(folder, 'rewards.jsonl'), Rewarded)) if (line.episode === id) found = line;
  return found;
}

async function usesOf(view: RunView, id: string): Promise<{ stage: string; selected: Selected }[]> {
  const uses: { stage: string; selected: Selected }[] = [];
  for (const { name } of view.stages) {
    const file = join(view.dir, name, 'selection.jsonl');
    if (!existsSync(file)) continue;
    for await (const line of readJsonl(file))
      if ((line as Selected).id === id) uses.push({ stage: name, selected: line as Selected });
  }
  return uses;
}

const bar = (value: number): string => '█'.repeat(Math.round(value * 20)).padEnd(20, '·');

const signed = (value: number): string => `${value >= 0 ? '+' : '−'}${Math.abs(value).toFixed(2)}`;

/** A shell command as it was run; anything else as its JSON. */
function commandOf(text: string): string {
  try {
    const parsed = JSON.parse(text) as { command?: unknown };
    return typeof parsed.command === 'string' ? `$ ${parsed.command}` : text;
  } catch {
    return text;
  }
}
