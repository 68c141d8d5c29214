import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '..');
const pages = ['README.md', 'CONTRIBUTING.md', ...readdirSync(join(root, 'docs')).map((name) => `docs/${name}`)];
const text = (page: string): string => readFileSync(join(root, page), 'utf8');

/** Lines of shell blocks that call orchard, without comments. */
const commands = pages.flatMap((page) =>
  [...text(page).matchAll(/```sh\n([\s\S]*?)```/g)].flatMap(([, block]) =>
    block!
      .split('\n')
      .filter((line) => line.startsWith('orchard '))
      .map((line) => [page, line.replace(/\s+#.*$/, '')] as const),
  ),
);

test.each(commands)('%s: `%s` is a command with options that exist', (_, line) => {
  // The shell splits the words; --help in their place shows that command and options are known.
  const words = execFileSync('bash', ['-c', `for word in ${line}; do printf '%s\\0' "$word"; done`], {
    encoding: 'utf8',
  })
    .split('\0')
    .slice(1, -1);
  const help = execFileSync(
    process.execPath,
    [join(root, 'bin/orchard.js'), ...words.filter((word) => !word.startsWith('-')), '--help'],
    { encoding: 'utf8' },
  );
  for (const option of words.filter((word) => word.startsWith('--'))) expect(help).toContain(option);
});

test('there are commands to check', () => {
  expect(commands.length).toBeGreaterThan(15);
});

test.each(pages)('%s: every link leads somewhere', (page) => {
  for (const [, target, anchor] of text(page).matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)) {
    const file = target === '' ? page : join(dirname(page), target!);
    expect(existsSync(join(root, file)), `${page} -> ${target}`).toBe(true);
    if (!anchor) continue;
    const anchors = [...text(file).matchAll(/^#+ (.*)$/gm)].map((match) =>
      match[1]!
        .toLowerCase()
        .replaceAll(/[^\w -]/g, '')
        .replaceAll(' ', '-'),
    );
    expect(anchors, `${page} -> ${target}#${anchor}`).toContain(anchor);
  }
});

test('the tree in CONTRIBUTING has every folder, and only those', () => {
  const named = [...text('CONTRIBUTING.md').matchAll(/^ {2}(\w+)\/ /gm)].map((match) => match[1]);
  const there = readdirSync(join(root, 'src'), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name);
  expect([...named].sort()).toEqual(there.sort());
});
