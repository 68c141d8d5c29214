import { OrchardError } from '../core/errors.ts';
import type { Sandbox } from '../ports/sandbox.ts';
import type { Task } from '../records/task.ts';

const TIMEOUT_MS = 120_000;
const MAX_BYTES = 64 * 1024 * 1024;

/** Exit code of the script below when a file is there that no patch should hold. */
const TOO_LARGE = 66;

/**
 * A repository of our own, with the base commit in it: whatever the agent did to its own, committed, or wrote into
 * attributes, the difference is taken against the files it was given. It lies where git never looks for files, and on
 * the disk; /tmp, which the agent may have filled, is emptied. Repositories that it made inside are taken as files.
 */
const OWN_REPOSITORY = `
find /tmp -mindepth 1 -not -name .orchard-errors -delete
find . -path ./.git -prune -o -type f -size +32768k -print -quit | grep -q . && exit ${TOO_LARGE}
find . -mindepth 2 -name .git -prune -exec rm -rf {} +
[ -d .git ] && [ ! -L .git ] || rm -rf .git
export GIT_DIR="$PWD/.git/orchard-base" GIT_WORK_TREE="$PWD" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
rm -rf "$GIT_DIR" && mkdir -p .git && git init -q && git fast-import --quiet
mkdir -p "$GIT_DIR/info" && echo '* !text !eol !filter !ident !diff !working-tree-encoding' >"$GIT_DIR/info/attributes"
git read-tree base && git -c core.safecrlf=false add -A && git diff --cached --binary --no-color --no-ext-diff --no-renames base
`;

/** For images, whose repository has the base commit already. */
const imageRepository = (baseCommit: string): string => `
export GIT_INDEX_FILE=/tmp/.orchard-index GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
git read-tree '${baseCommit}' && git add -A && git diff --cached --binary --no-color --no-ext-diff --no-renames '${baseCommit}'
`;

/**
 * What the agent left behind, as a patch against the base commit: bytes, new and binary files included, ignored files
 * left out; empty when nothing changed, null when it is larger than any patch may be.
 * @throws OrchardError owner `sandbox` when it could not be taken
 */
export async function takePatch(sandbox: Sandbox, task: Task): Promise<Buffer | null> {
  const { workspace } = task;
  const script = workspace.kind === 'files' ? OWN_REPOSITORY : imageRepository(task.baseCommit);
  const result = await sandbox.exec(`exec 2>/tmp/.orchard-errors\nset -e\n${script}`, {
    stdin: workspace.kind === 'files' ? fastImport(workspace.files) : undefined,
    timeoutMs: TIMEOUT_MS,
    maxOutputBytes: MAX_BYTES,
  });
  const fail = (cause: string): OrchardError =>
    new OrchardError({
      owner: 'sandbox',
      code: 'patch',
      id: sandbox.id,
      cause: `cannot take the patch of ${sandbox.id}: ${cause}`,
      wayOut: 'the episode is repeated',
    });
  if (result.droppedBytes > 0 || result.exitCode === TOO_LARGE) return null;
  if (result.exitCode !== 0)
    throw fail(result.timedOut ? 'git did not end' : (await sandbox.read('/tmp/.orchard-errors')).toString().trim());
  const patch = result.output;
  return patch.length > 0 && patch.at(-1) !== 10 ? Buffer.concat([patch, Buffer.from('\n')]) : patch;
}

/** The files of the base commit as a stream for git fast-import(1). */
function fastImport(files: Record<string, string>): Buffer {
  const parts: Buffer[] = [
    Buffer.from('commit refs/heads/base\ncommitter orchard <orchard@localhost> 0 +0000\ndata 0\n'),
  ];
  for (const [path, text] of Object.entries(files)) {
    const bytes = Buffer.from(text);
    parts.push(
      Buffer.from(`M 100644 inline ${JSON.stringify(path)}\ndata ${bytes.length}\n`),
      bytes,
      Buffer.from('\n'),
    );
  }
  return Buffer.concat(parts);
}
