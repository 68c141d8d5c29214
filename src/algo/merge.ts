import type { Call } from '../records/call.ts';
import type { RootReason, Sample } from '../records/sample.ts';

/** A recorded call with its prompt ids written out. */
export interface MergeCall {
  call: Call;
  promptIds: number[];
}

interface Node {
  call: Call;
  prompt: number[];
  completion: number[];
  parent: Node | null;
  children: Node[];
  reason: RootReason;
  trained: boolean;
}

/** Kinds that are an episode's work; the others stay on record and train only when asked for. */
const TRAINED_KINDS = new Set<Call['kind']>(['main', 'subagent']);

/**
 * Calls of one episode to samples, by exact token prefix over all open lineages. A call goes on from the longest
 * earlier prompt+completion that its own prompt begins with; what lies between is the environment's, mask 0; every
 * completion is trained once, on the path that first used it. Nothing is ever tokenized again.
 *
 * A call counts when the engine gave its ids and the harness got all of it. One that stopped at its length limit has
 * no end token: it may end a line, never carry one.
 * @throws Error when an assertion about the result fails: a wrong sample is worse than none
 */
export function mergeCalls(
  calls: MergeCall[],
  { episode, task, compactions = false }: { episode: string; task: string; compactions?: boolean },
): Sample[] {
  const nodes: Node[] = [];
  const seen: { node: Node; kind: Call['kind'] }[] = [];
  for (const { call, promptIds } of [...calls].sort((a, b) => a.call.seq - b.call.seq)) {
    if (
      call.tokens.source !== 'engine' ||
      call.delivered !== 'full' ||
      call.finish === 'abort' ||
      call.finish === 'error'
    )
      continue;
    const earlier = nodes.filter((node) => node.call.endedAt <= call.startedAt);
    const parent = findParent(promptIds, {
      candidates: earlier.filter((node) => node.call.finish !== 'length'),
      thread: call.thread,
    });
    const node: Node = {
      call,
      prompt: promptIds,
      completion: call.tokens.completion,
      parent,
      children: [],
      reason: parent ? 'start' : rootReason({ call, promptIds }, { earlier, last: seen.at(-1) }),
      trained: TRAINED_KINDS.has(call.kind) || (compactions && call.kind === 'compaction'),
    };
    parent?.children.push(node);
    nodes.push(node);
    seen.push({ node, kind: call.kind });
  }
  const samples = leavesOf(nodes).flatMap((path, index) => sampleOf(path, { episode, task, index }) ?? []);
  return share(samples, nodes);
}

function findParent(
  prompt: number[],
  { candidates, thread }: { candidates: Node[]; thread: string | null },
): Node | null {
  let best: Node | null = null;
  let bestLength = -1;
  for (const node of candidates) {
    const length = node.prompt.length + node.completion.length;
    if (length > prompt.length || length < bestLength) continue;
    // Equal length means equal ids: the same thread wins, then the later call.
    if (length === bestLength && best && best.call.thread === thread && node.call.thread !== thread) continue;
    if (startsWith(prompt, node.completion, node.prompt.length) && startsWith(prompt, node.prompt, 0)) {
      best = node;
      bestLength = length;
    }
  }
  return best;
}

function startsWith(ids: number[], part: number[], at: number): boolean {
  for (let index = part.length - 1; index >= 0; index--) if (ids[at + index] !== part[index]) return false;
  return true;
}

function commonPrefix(a: number[], b: number[]): number {
  const limit = Math.min(a.length, b.length);
  let at = 0;
  while (at < limit && a[at] === b[at]) at++;
  return at;
}

/** Why a prompt goes on from nothing that was said before. */
function rootReason(
  { call, promptIds }: MergeCall,
  { earlier, last }: { earlier: Node[]; last: { node: Node; kind: Call['kind'] } | undefined },
): RootReason {
  if (earlier.length === 0) return 'start';
  if (call.kind === 'subagent' || !earlier.some((node) => node.call.thread === call.thread)) return 'subagent';
  if (last?.kind === 'compaction') return 'compaction';
  const nearest = earlier
    .map((node) => ({ node, shared: commonPrefix(promptIds, node.prompt) }))
    .reduce((a, b) => (b.shared > a.shared ? b : a));
  const { node } = nearest;
  if (nearest.shared === node.prompt.length) return 'drift'; // all of the earlier prompt is there, its reply is not
  return nearest.shared >= 0.8 * node.prompt.length ? 'tail' : 'rewrite';
}

/** Paths from a root to each leaf. */
function leavesOf(nodes: Node[]): Node[][] {
  return nodes
    .filter((node) => node.children.length === 0)
    .map((leaf) => {
      const path: Node[] = [];
      for (let at: Node | null = leaf; at; at = at.parent) path.unshift(at);
      return path;
    });
}

function sampleOf(
  path: Node[],
  { episode, task, index }: { episode: string; task: string; index: number },
): Sample | null {
  const tokens: number[] = [];
  const mask: number[] = [];
  const logprobs: number[] = [];
  const segments: Sample['segments'] = [];
  let scored = true;
  // A reply is trained on the path that first went on from it, and from there on always with the first.
  const firstUse = path.map((_, depth) =>
    path.slice(depth + 1).every((below, index) => path[depth + index]!.children[0] === below),
  );
  for (const [depth, node] of path.entries()) {
    const from = tokens.length;
    for (let at = from; at < node.prompt.length; at++) {
      tokens.push(node.prompt[at]!);
      mask.push(0);
      logprobs.push(0);
    }
    const promptEnd = tokens.length;
    const trained = node.trained && firstUse[depth]!;
    const { logprobs: given } = node.call.tokens;
    scored &&= given !== null;
    for (const [at, id] of node.completion.entries()) {
      tokens.push(id);
      mask.push(trained ? 1 : 0);
      logprobs.push(trained ? (given?.[at] ?? 0) : 0);
    }
    segments.push({ call: node.call.id, from, promptEnd, to: tokens.length, trained });
    assertPrompt(tokens, node, promptEnd);
  }
  if (!mask.includes(1)) return null;
  return {
    v: 'orchard.sample/1',
    id: `${episode}#${index}`,
    episode,
    task,
    tokens,
    mask,
    weights: [...mask],
    logprobs: scored ? logprobs : null,
    segments,
    rootReason: path[0]!.reason,
    episodeShare: 0,
    source: 'engine',
  };
}

function assertPrompt(tokens: number[], node: Node, promptEnd: number): void {
  if (promptEnd !== node.prompt.length || !startsWith(tokens, node.prompt, 0))
    throw new Error(`merge: call ${node.call.id}: the row does not hold its prompt`);
}

/** Shares of the episode's trained tokens, after a last look that each completion was trained exactly once. */
function share(samples: Sample[], nodes: Node[]): Sample[] {
  const trained = new Map<string, number>();
  let total = 0;
  for (const { segments, mask } of samples) {
    total += mask.reduce((sum, one) => sum + one, 0);
    for (const segment of segments)
      if (segment.trained) trained.set(segment.call, (trained.get(segment.call) ?? 0) + 1);
  }
  const expected = nodes.filter((node) => node.trained && node.completion.length > 0);
  for (const { call } of expected)
    if (trained.get(call.id) !== 1)
      throw new Error(`merge: call ${call.id} is trained ${trained.get(call.id) ?? 0} times`);
  const sum = expected.reduce((count, { completion }) => count + completion.length, 0);
  if (sum !== total) throw new Error(`merge: ${total} trained tokens, the calls have ${sum}`);
  return samples.map((sample) => ({
    ...sample,
    episodeShare: sample.mask.reduce((count, one) => count + one, 0) / total,
  }));
}
