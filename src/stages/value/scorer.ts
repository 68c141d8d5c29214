import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { OrchardError, userError } from '../../core/errors.ts';
import { readJson } from '../../core/folder.ts';
import { sha256 } from '../../core/hash.ts';
import { forEachLimited } from '../../core/limit.ts';
import { retry } from '../../core/retry.ts';

/** Scores attempts by their token ids: P(resolve) in [0, 1]. */
export interface Scorer extends AsyncDisposable {
  score(rows: number[][]): Promise<number[]>;
}

/** value.json, beside value.onnx in the published folder. */
const ValueFile = z.looseObject({
  v: z.literal('orchard.value/1'),
  onnxSha256: z.string(),
});

/**
 * A value model of this run, with ONNX Runtime on the CPU.
 * @throws OrchardError owner `user` when value.onnx is not the one of value.json, or the model was trained with another
 * tokenizer than that of `base`
 */
export async function openOnnx(folder: string, { base }: { base: string }): Promise<Scorer> {
  const file = join(folder, 'value.onnx');
  if (!existsSync(file))
    throw userError(
      folder,
      `there is no value.onnx in ${folder}`,
      'train it with onnx: true, or score with an engine: classifier',
    );
  const about = ValueFile.parse(await readJson(join(folder, 'value.json')));
  const bytes = await readFile(file);
  if (sha256(bytes) !== about.onnxSha256)
    throw userError(
      file,
      `${file} is not the file that value.json describes: sha256 ${sha256(bytes).slice(0, 12)}…, not ${about.onnxSha256.slice(0, 12)}…`,
      'train the value model again',
    );
  await sameTokenizer(folder, base);
  const ort = await import('onnxruntime-node');
  ort.env.logLevel = 'error';
  const session = await ort.InferenceSession.create(file, {
    intraOpNumThreads: availableParallelism(),
    logSeverityLevel: 3,
  });
  return {
    async score(rows) {
      const scores = new Array<number>(rows.length);
      for (const batch of batchesOf(rows)) {
        const width = Math.max(...batch.map((at) => rows[at]!.length));
        const ids = new BigInt64Array(batch.length * width);
        for (const [line, at] of batch.entries())
          for (const [column, id] of rows[at]!.entries()) ids[line * width + column] = BigInt(id);
        const lengths = BigInt64Array.from(batch, (at) => BigInt(rows[at]!.length));
        const { score } = await session.run({
          ids: new ort.Tensor('int64', ids, [batch.length, width]),
          lengths: new ort.Tensor('int64', lengths, [batch.length]),
        });
        for (const [line, at] of batch.entries()) scores[at] = sigmoid(Number(score!.data[line]));
      }
      return scores;
    },
    [Symbol.asyncDispose]: () => session.release(),
  };
}

/** @throws OrchardError owner `user`, naming both sides */
export async function sameTokenizer(folder: string, base: string): Promise<void> {
  const [trained, ours] = await Promise.all([folder, base].map(tokenizerHash));
  if (ours === trained) return;
  throw userError(
    folder,
    `the value model in ${folder} was trained for another base model: its tokenizer is ${trained!.slice(0, 12)}…, that of ${base} is ${ours!.slice(0, 12)}…`,
    'use the value model of this recipe, or train one with the same base',
  );
}

const tokenizerHash = async (folder: string): Promise<string> => sha256(await readFile(join(folder, 'tokenizer.json')));

/** Tokens of one forward, padding included. */
const BATCH_TOKENS = 8192;

/** Rows of similar length together. */
function* batchesOf(rows: number[][]): Iterable<number[]> {
  const order = rows.map((_, at) => at).sort((a, b) => rows[a]!.length - rows[b]!.length);
  let batch: number[] = [];
  for (const at of order) {
    if (batch.length > 0 && (batch.length + 1) * rows[at]!.length > BATCH_TOKENS) {
      yield batch;
      batch = [];
    }
    batch.push(at);
  }
  if (batch.length > 0) yield batch;
}

const sigmoid = (logit: number): number => 1 / (1 + Math.exp(-logit));

export const Classifier = z.strictObject({
  baseUrl: z.url().describe('address of an engine with /classify, such as vLLM on the published folder'),
  model: z.string(),
  apiKeyEnv: z.string().optional().describe('environment variable that holds the key'),
});

/** A value model too large for the CPU, behind the classification endpoint of an engine. */
export function openClassifier(
  { baseUrl, model }: z.infer<typeof Classifier>,
  { apiKey, concurrency, signal }: { apiKey: string | null; concurrency: number; signal: AbortSignal },
): Scorer {
  const url = `${baseUrl.replace(/\/+$/, '')}/classify`;
  const ask = async (ids: number[]): Promise<number> => {
    const response = await fetch(url, {
      method: 'POST',
      signal: AbortSignal.any([signal, AbortSignal.timeout(300_000)]),
      headers: { 'content-type': 'application/json', ...(apiKey ? { authorization: `Bearer ${apiKey}` } : {}) },
      body: JSON.stringify({ model, input: ids }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${url} answered ${response.status}: ${text.slice(0, 200)}`);
    const probs = (JSON.parse(text) as { data?: { probs?: number[] }[] }).data?.[0]?.probs;
    // One label is a sigmoid's; of two the last one is the positive.
    const value = probs?.at(-1);
    if (typeof value !== 'number' || !(value >= 0 && value <= 1))
      throw new Error(`${url} gave no probability but ${text.slice(0, 100)}`);
    return value;
  };
  return {
    async score(rows) {
      const scores = new Array<number>(rows.length);
      await forEachLimited(rows.entries(), { concurrency, signal }, async ([at, ids]) => {
        try {
          scores[at] = await retry({ tries: 4, firstDelayMs: 1000, signal }, () => ask(ids));
        } catch (error) {
          signal.throwIfAborted();
          throw new OrchardError(
            {
              owner: 'reward',
              code: 'classifier',
              id: url,
              cause: (error as Error).message,
              wayOut: 'see that the engine serves the value model, and run again',
            },
            { cause: error },
          );
        }
      });
      signal.throwIfAborted();
      return scores;
    },
    async [Symbol.asyncDispose]() {},
  };
}
