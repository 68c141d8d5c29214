import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readPredictions } from '../../src/scoring/predictions.ts';

const dir = mkdtempSync(join(tmpdir(), 'orchard-predictions-'));
const file = (name: string, content: string): string => {
  const path = join(dir, name);
  writeFileSync(path, content);
  return path;
};
const one = { instance_id: 'a', model_name_or_path: 'm', model_patch: 'p\r\n' };

test('a list, a map whose values leave the id out, and lines with blank ones between say the same', async () => {
  const { instance_id: _, ...bare } = one;
  for (const path of [
    file('list.json', JSON.stringify([one])),
    file('map.json', JSON.stringify({ a: bare })),
    file('lines.jsonl', `\n${JSON.stringify(one)}\n\n`),
  ])
    expect((await readPredictions(path)).byId.get('a')).toMatchObject({ model: 'm', patch: Buffer.from('p\r\n') });
});

test('of two predictions for one id the last one counts, and it is told', async () => {
  const { byId, duplicates } = await readPredictions(
    file('twice.jsonl', `${JSON.stringify(one)}\n${JSON.stringify({ ...one, model_patch: 'q' })}\n`),
  );
  expect(byId.get('a')!.patch.toString()).toBe('q');
  expect(duplicates).toEqual(['a']);
});

test('bytes that are not UTF-8 come through, as base64 or as the lone surrogates that Python writes', async () => {
  const { byId } = await readPredictions(
    file(
      'bytes.jsonl',
      `${JSON.stringify({ ...one, model_patch_base64: Buffer.from([0xff, 10]).toString('base64') })}\n{"instance_id":"b","model_patch":"x\\udcff😀\\n"}\n`,
    ),
  );
  expect(byId.get('a')!.patch).toEqual(Buffer.from([0xff, 10]));
  expect(byId.get('b')!.patch).toEqual(Buffer.concat([Buffer.from('x'), Buffer.from([0xff]), Buffer.from('😀\n')]));
});

test.each([
  [
    'lines.jsonl',
    `${JSON.stringify(one)}\n{"instance_id":"b"\n{"model_patch":"x"}\n`,
    /line 2: .*\n.*line 3: instance_id/s,
  ],
  ['list.json', '[1, {"instance_id": 7}]', /entry 1: .*\n.*entry 2: instance_id/s],
  ['map.json', '{"a": "patch"}', / {2}a: entry/],
  ['torn.json', '[{', /not JSON/],
  ['word.json', '"x"', /neither a list nor a map/],
  ['other.csv', '', /neither \.json nor \.jsonl/],
  ['nothing.jsonl', '', /no predictions/],
])('%s with %j is refused, naming each place', async (name, content, message) => {
  await expect(readPredictions(file(name, content))).rejects.toThrow(message);
});
