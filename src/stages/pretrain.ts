import { existsSync } from 'node:fs';
import { mkdir, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { z } from 'zod';
import { OrchardError, userError } from '../core/errors.ts';
import { isReady, writeJson } from '../core/folder.ts';
import { writeBatch } from '../data/batches.ts';
import { type Chat, loadChat, renderer } from '../data/chat.ts';
import type { Document } from '../ports/benchmark.ts';
import type { Sample } from '../records/sample.ts';
import { type Stage, type StageContext, stageDir } from './context.ts';
import { trainWithBar } from './training.ts';

const config = z.strictObject({
  name: z.string().default('pretrain'),
  corpus: z
    .strictObject({ documents: z.number().int().positive(), seed: z.number().int().default(0) })
    .describe("conversations of the benchmark's corpus"),
  system: z.string().describe('system text of the conversations; the harness should use the same'),
  architecture: z.strictObject({
    vocab: z.number().int().positive(),
    hidden: z.number().int().positive(),
    layers: z.number().int().positive(),
    heads: z.number().int().positive(),
    kv_heads: z.number().int().positive(),
    head_dim: z.number().int().positive(),
    intermediate: z.number().int().positive(),
  }),
  epochs: z.number().int().positive().default(1),
  batchRows: z.number().int().positive().default(64),
  learningRate: z.number().positive().default(2e-3),
  minLearningRate: z.number().min(0).default(2e-4),
  warmupSteps: z.number().int().min(0).default(100),
  weightDecay: z.number().min(0).default(0.1),
});
type Config = z.infer<typeof config>;

/** The template that `orchard_trainer init` gives every model it makes. */
const OWN_TEMPLATE = new URL('../../trainer/orchard_trainer/chat_template.jinja', import.meta.url);

/** Conversations that the tokenizer learns from; more change it little. */
const TOKENIZER_DOCUMENTS = 20_000;

/** A small base model from scratch: tokenizer, random weights, and next-token training on the benchmark's corpus. */
export const pretrain: Stage<Config> = {
  config,
  nameOf: (settings) => settings.name,
  gives: ['weights'],
  needs: () => [],
  plan: ({ corpus, architecture, epochs }) => [
    `a model of ${architecture.layers} layers of ${architecture.hidden} with ${architecture.vocab} tokens, ${epochs} epochs over ${corpus.documents} made-up conversations`,
  ],
  async run(context, settings) {
    const dir = stageDir(context.runDir, settings.name);
    const model = join(dir, 'model');
    const documents = corpusOf(context, settings);
    if (!existsSync(model)) await initialise(context, { dir, model, settings, documents });
    const batch = join(dir, 'batches', 'step_000000');
    if (!isReady(batch)) {
      const chat = await loadChat(model);
      const manifest = await writeBatch(batch, samples(context, { documents: documents(), chat }), {
        kind: 'sft',
        step: 0,
        policyVersion: null,
        sampling: null,
        loss: { name: 'sft', params: {} },
      });
      await writeJson(join(dir, 'summary.json'), {
        documents: settings.corpus.documents,
        tokens: manifest.tokens.total,
      });
    }
    await trainWithBar(context, {
      dir,
      label: settings.name,
      config: {
        model,
        batches: join(dir, 'batches'),
        steps: 1,
        epochs: settings.epochs,
        batchRows: settings.batchRows,
        learningRate: settings.learningRate,
        minLearningRate: settings.minLearningRate,
        warmupSteps: settings.warmupSteps,
        weightDecay: settings.weightDecay,
        versionPrefix: settings.name,
        seed: context.seed,
      },
    });
  },
};

function corpusOf(context: StageContext, { corpus: chosen, system }: Config): () => Iterable<Document> {
  const { corpus, name } = context.benchmark;
  if (!corpus)
    throw userError('tasks.benchmark', `benchmark ${name} has no corpus to pretrain on`, 'use tasks.benchmark tiny');
  return () => corpus({ ...chosen, system });
}

async function initialise(
  context: StageContext,
  {
    dir,
    model,
    settings,
    documents,
  }: { dir: string; model: string; settings: Config; documents: () => Iterable<Document> },
): Promise<void> {
  await mkdir(dir, { recursive: true });
  const render = renderer(await readFile(OWN_TEMPLATE, 'utf8'), 'the trainer');
  await writeJson(join(dir, 'spec.json'), {
    ...settings.architecture,
    context: context.contextTokens,
    seed: context.seed,
  });
  await using file = await open(join(dir, 'corpus.jsonl'), 'w');
  let count = 0;
  for (const { messages } of documents()) {
    if (count++ >= TOKENIZER_DOCUMENTS) break;
    await file.write(
      `${JSON.stringify({ text: render(messages, { tools: context.harness.tools, generate: false }) })}\n`,
    );
  }
  const run = await execa(
    context.python,
    [
      '-m',
      'orchard_trainer',
      'init',
      '--spec',
      join(dir, 'spec.json'),
      '--corpus',
      join(dir, 'corpus.jsonl'),
      '--out',
      model,
    ],
    { reject: false, cancelSignal: context.signal },
  );
  context.signal.throwIfAborted();
  if (run.exitCode !== 0) {
    throw new OrchardError({
      owner: run.exitCode === 42 ? 'user' : 'trainer',
      code: 'init',
      id: model,
      cause: `cannot make the model: ${run.stderr.trim().split('\n').at(-1)}`,
      wayOut: 'correct the architecture, or run `orchard doctor`',
    });
  }
}

/** The text of each conversation, every token of it trained. */
function* samples(
  context: StageContext,
  { documents, chat }: { documents: Iterable<Document>; chat: Chat },
): Iterable<Sample> {
  let count = 0;
  for (const { messages } of documents) {
    context.signal.throwIfAborted();
    const tokens = chat.encode(chat.render(messages, context.harness.tools));
    const ones = tokens.map(() => 1);
    const id = `document ${count++}`;
    yield {
      v: 'orchard.sample/1',
      id,
      episode: id,
      task: id,
      tokens,
      mask: ones,
      weights: ones,
      logprobs: null,
      segments: [{ call: id, from: 0, promptEnd: 0, to: tokens.length, trained: true }],
      rootReason: 'start',
      episodeShare: 1,
      source: 'retokenized',
    };
  }
}
