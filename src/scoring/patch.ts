/** One file of a patch: what happens to it, and the lines that are added. */
export interface PatchFile {
  path: string;
  change: 'new' | 'deleted' | 'modified';
  /** Git's mode where the patch says one: 120000 is a symlink, 160000 a submodule. */
  mode: string | null;
  added: string[];
  removed: string[];
}

const LINE = 4096;

/** The files of a git patch. Anything else in it is passed over: the official ladder decides whether it applies. */
export function patchFiles(patch: Buffer): PatchFile[] {
  const files: PatchFile[] = [];
  let current: PatchFile | null = null;
  let inHunk = false;
  let renamedFrom: string | null = null;
  for (let from = 0; from <= patch.length; ) {
    const newline = patch.indexOf(10, from);
    const end = newline < 0 ? patch.length : newline;
    const line = patch.toString('utf8', from, Math.min(end, from + LINE));
    from = end + 1;
    const head = /^diff --git (?:"?a\/.*? )?"?b\/(.+?)"?$/.exec(line);
    if (head) {
      current = { path: unquoted(head[1]!), change: 'modified', mode: null, added: [], removed: [] };
      files.push(current);
      inHunk = false;
      renamedFrom = null;
      continue;
    }
    // Plain `diff -u` output has no such head.
    const old = /^--- (?:a\/)?([^\t]+)/.exec(line);
    if (old && !inHunk) {
      renamedFrom = unquoted(old[1]!);
      continue;
    }
    const target = /^\+\+\+ (?:b\/)?([^\t]+)/.exec(line);
    if (target && !inHunk) {
      const path = unquoted(target[1]!);
      if (current === null || current.added.length + current.removed.length > 0) {
        current = { path, change: 'modified', mode: null, added: [], removed: [] };
        files.push(current);
      }
      if (path === '/dev/null') {
        current.change = 'deleted';
        if (renamedFrom) current.path = renamedFrom;
      } else {
        current.path = path;
        if (renamedFrom === '/dev/null') current.change = 'new';
      }
      continue;
    }
    if (line.startsWith('@@ ')) inHunk = true;
    else if (current === null) continue;
    else if (inHunk && line.startsWith('+')) current.added.push(line.slice(1));
    else if (inHunk && line.startsWith('-')) current.removed.push(line.slice(1));
    else if (!inHunk) {
      const mode = /^(new file|deleted file|new) mode (\d+)$/.exec(line);
      if (mode) current.mode = mode[2]!;
      if (mode?.[1] === 'new file') current.change = 'new';
      if (mode?.[1] === 'deleted file') current.change = 'deleted';
    } else if (!/^[ \\]/.test(line)) inHunk = false;
  }
  return files;
}

/** Git quotes paths with unusual bytes, as C strings in UTF-8 octets. */
function unquoted(path: string): string {
  const text = path.replace(/^"(?:[ab]\/)?/, '').replace(/"$/, '');
  if (!text.includes('\\')) return text;
  const octets = text.replaceAll(/\\([0-7]{3})|\\(.)/g, (_, octal: string | undefined, other: string | undefined) =>
    octal ? String.fromCharCode(Number.parseInt(octal, 8)) : other === 't' ? '\t' : other === 'n' ? '\n' : other!,
  );
  return Buffer.from(octets, 'latin1').toString('utf8');
}
