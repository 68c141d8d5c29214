import { expect, test } from 'vitest';
import { parseRubric, rubricMessages, rubricValue } from '../../src/algo/rubric.ts';
import type { ChatMessage } from '../../src/ports/inference.ts';
import type { Task } from '../../src/records/task.ts';

const scores = {
  fix_quality: 1,
  self_test_relevance: 0.5,
  coverage: 0,
  rigor: 0.2,
  discriminativeness: 1,
  regression_guard: 0,
  verification_integrity: 0.1,
};

test('the seven weights add up to one, and the value is their weighted sum', () => {
  const all = Object.fromEntries(Object.keys(scores).map((item) => [item, 1])) as typeof scores;
  expect(rubricValue(all)).toBeCloseTo(1, 12);
  // .15 + .18/2 + .15·.2 + .14 + .14·.1
  expect(rubricValue(scores)).toBeCloseTo(0.424, 12);
});

test('a reply is read whatever stands around its object', () => {
  expect(parseRubric(`Here:\n\`\`\`json\n${JSON.stringify({ reasoning: 'well', scores })}\n\`\`\``)).toEqual(scores);
});

test.each([
  ['nothing to see', 'expected a JSON object'],
  ['{"grades": {}}', 'expected scores of fix_quality'],
  [JSON.stringify({ scores: { ...scores, rigor: 3 } }), 'scores.rigor'],
  [JSON.stringify({ scores: { ...scores, style: 1 } }), 'style'],
  [JSON.stringify({ scores: { rigor: 1 } }), 'scores.fix_quality'],
])('a reply of another form is refused with what was expected: %s', (text, said) => {
  expect(() => parseRubric(text)).toThrow(said);
});

const task = {
  statement: 'It adds wrongly.',
  goldPatch: `--- a/calc.py\n+++ b/calc.py\n${'+x\n'.repeat(5000)}`,
  failToPass: ['test_calc.T.test_add'],
} as Task;

test('a long attempt is cut to what tells: thoughts, commands, the telling lines of observations, the patch', () => {
  const noise = Array.from({ length: 300 }, (_, at) => `line ${at} of the log`);
  const messages: ChatMessage[] = [
    { role: 'system', content: 'S' },
    { role: 'user', content: 'It adds wrongly.' },
    {
      role: 'assistant',
      content: 'a'.repeat(1000),
      tool_calls: [
        { id: '1', type: 'function', function: { name: 'bash', arguments: `{"command":"${'c'.repeat(900)}"}` } },
      ],
    },
    {
      role: 'tool',
      content: [...noise, 'AssertionError: 3 != 4', 'FAILED (failures=1)'].join('\n'),
      tool_call_id: '1',
    },
  ];
  const [system, user] = rubricMessages({ task, messages, patch: Buffer.from('p'.repeat(9000)) }) as [
    ChatMessage,
    ChatMessage,
  ];
  expect(system.content).toContain('verification_integrity');
  expect(user.content).toContain('AssertionError: 3 != 4\nFAILED (failures=1)');
  expect(user.content).not.toContain('line 7 of the log');
  expect(user.content).toContain(`${'a'.repeat(600)} …(400 more)`);
  expect(user.content).not.toContain('c'.repeat(401));
  expect(user.content).toContain(`${'p'.repeat(4000)} …(5000 more)`);
  expect(user.content!.length).toBeLessThan(10_000);
});

test('the judge is not told how the tests ended', () => {
  const [, user] = rubricMessages({ task, messages: [], patch: null });
  expect(user!.content).not.toMatch(/resolved|verdict/);
});
