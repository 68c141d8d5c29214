const CONTEXT = 3;

/** Unified diff of two versions of a file with equally many lines; one hunk from the first to the last change. */
export function replacedLines(path: string, before: string[], after: string[]): string {
  const changed = before.flatMap((line, index) => (line === after[index] ? [] : [index]));
  const first = Math.max(0, changed[0]! - CONTEXT);
  const last = Math.min(before.length - 1, changed.at(-1)! + CONTEXT);
  const lines: string[] = [];
  for (let index = first; index <= last; index++) {
    if (before[index] === after[index]) lines.push(` ${before[index]}`);
    else lines.push(`-${before[index]}`, `+${after[index]}`);
  }
  const range = `${first + 1},${last - first + 1}`;
  return `diff --git a/${path} b/${path}\n--- a/${path}\n+++ b/${path}\n@@ -${range} +${range} @@\n${lines.join('\n')}\n`;
}

/** Unified diff that adds a file. */
export function addedFile(path: string, lines: string[]): string {
  const body = lines.map((line) => `+${line}`).join('\n');
  return `diff --git a/${path} b/${path}\nnew file mode 100644\n--- /dev/null\n+++ b/${path}\n@@ -0,0 +1,${lines.length} @@\n${body}\n`;
}
