/** Files by path, without a leading `./`. */
export type Files = Record<string, string>;

const linesOf = (text: string): string[] => (text === '' ? [] : text.replace(/\n$/, '').split('\n'));

/** What `grep -rn [-A after] 'pattern' .` prints, for patterns without special characters; files by path. */
export function grep(files: Files, { pattern, after }: { pattern: string; after: number }): string {
  const groups: string[] = [];
  for (const path of Object.keys(files).sort()) {
    const lines = linesOf(files[path]!);
    const hits = new Set(lines.flatMap((line, index) => (line.includes(pattern) ? [index] : [])));
    let last = Number.NEGATIVE_INFINITY;
    for (const hit of hits) {
      const shown: string[] = [];
      for (let index = Math.max(hit, last + 1); index <= Math.min(hit + after, lines.length - 1); index++) {
        const mark = hits.has(index) ? ':' : '-';
        shown.push(`./${path}${mark}${index + 1}${mark}${lines[index]}`);
        last = index;
      }
      if (shown.length > 0) groups.push(shown.join('\n'));
    }
  }
  return groups.length === 0 ? '' : `${groups.join(after > 0 ? '\n--\n' : '\n')}\n`;
}

/** What `sed -n 'from,to p' file` prints. */
export function printLines(text: string, { from, to }: { from: number; to: number }): string {
  const shown = linesOf(text).slice(from - 1, to);
  return shown.length === 0 ? '' : `${shown.join('\n')}\n`;
}

/** A substitution on one line, as `sed -i 'LINEs/OLD/NEW/' PATH` writes it. */
export interface Substitution {
  path: string;
  line: number;
  /** A basic regular expression. */
  old: string;
  new: string;
}

const SED = /^sed -i '(\d+)s\/((?:[^/\\]|\\.)*)\/((?:[^/\\]|\\.)*)\/' (\S+)$/;

export function parseSubstitution(command: string): Substitution | null {
  const match = SED.exec(command);
  return match && { line: Number(match[1]), old: match[2]!, new: match[3]!, path: match[4]!.replace(/^\.\//, '') };
}

/** Applies it to every file that the path stands for; null when in none of them the line holds the text. */
export function substitute(files: Files, { path, line, old, new: replacement }: Substitution): Files | null {
  const changed: Files = {};
  for (const [name, text] of Object.entries(files)) {
    if (!standsFor(path, name)) continue;
    const lines = linesOf(text);
    const before = lines[line - 1];
    const found = old === WHOLE ? before : plain(old);
    const at = before?.indexOf(found!) ?? -1;
    if (before === undefined || at < 0) continue;
    lines[line - 1] = before.slice(0, at) + plain(replacement) + before.slice(at + found!.length);
    changed[name] = `${lines.join('\n')}\n`;
  }
  return Object.keys(changed).length > 0 ? { ...files, ...changed } : null;
}

/** As in the shell: a star is anything within one folder's or file's name. */
const standsFor = (path: string, name: string): boolean =>
  new RegExp(`^${path.replaceAll(/[\\^$.|?+()[\]{}]/g, '\\$&').replaceAll('*', '[^/]*')}$`).test(name);

/** The one pattern that is read as such. */
const WHOLE = '.*';

const plain = (text: string): string => text.replaceAll(/\\(.)/g, '$1');

const escapeOld = (text: string): string => text.replaceAll(/[\\/.*[\]^$]/g, '\\$&');

const escapeNew = (text: string): string => text.replaceAll(/[\\/&]/g, '\\$&');

/** The shortest whole-word substitution that turns one line into another. */
export function substitutionFor(before: string, after: string): { old: string; new: string } {
  const old = before.match(WORDS) ?? [];
  const wanted = after.match(WORDS) ?? [];
  let head = 0;
  while (head < old.length && head < wanted.length && old[head] === wanted[head]) head++;
  let tail = 0;
  while (tail < old.length - head && tail < wanted.length - head && old.at(-1 - tail) === wanted.at(-1 - tail)) tail++;
  // Wider until it hits the right place first, and never empty.
  for (;;) {
    const text = old.slice(head, old.length - tail).join('');
    const start = old.slice(0, head).join('').length;
    if (text.trim() !== '' && before.indexOf(text) === start) {
      return { old: escapeOld(text), new: escapeNew(wanted.slice(head, wanted.length - tail).join('')) };
    }
    if (tail > 0) tail--;
    else head--;
  }
}

const WORDS = /\w+|\s+|[^\w\s]+/g;

/** Changes the few words that differ, or types the whole line anew. */
export function sedCommand(
  path: string,
  { line, before, after, way = 'words' }: { line: number; before: string; after: string; way?: 'words' | 'line' },
): string {
  const { old, new: replacement } =
    way === 'words' ? substitutionFor(before, after) : { old: WHOLE, new: escapeNew(after) };
  return `sed -i '${line}s/${old}/${replacement}/' ${path}`;
}
