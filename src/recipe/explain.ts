import { distance } from 'fastest-levenshtein';
import { z } from 'zod';
import { joinPath } from './origin.ts';

/** The schema found by following `path` from `schema`, through optionals, defaults and the chosen kind of a union. */
function schemaAt(schema: z.ZodType, path: PropertyKey[], value: unknown): z.ZodType | null {
  const inner = unwrap(schema, value);
  if (path.length === 0 || inner === null) return inner;
  const [key, ...rest] = path;
  const below = (value as Record<PropertyKey, unknown> | undefined)?.[key as PropertyKey];
  if (inner instanceof z.ZodObject) {
    const next = inner.shape[key as string] as z.ZodType | undefined;
    return next ? schemaAt(next, rest, below) : null;
  }
  if (inner instanceof z.ZodArray) return schemaAt(inner.element as z.ZodType, rest, below);
  return null;
}

function unwrap(schema: z.ZodType, value: unknown): z.ZodType | null {
  let at: z.ZodType = schema;
  for (;;) {
    if (
      at instanceof z.ZodOptional ||
      at instanceof z.ZodNullable ||
      at instanceof z.ZodDefault ||
      at instanceof z.ZodPrefault
    ) {
      at = at.unwrap() as z.ZodType;
    } else if (at instanceof z.ZodDiscriminatedUnion) {
      const key = at.def.discriminator;
      const wanted = (value as Record<string, unknown> | undefined)?.[key];
      const option = at.options.find((each) => ((each as z.ZodObject).shape[key] as z.ZodLiteral).value === wanted);
      if (!option) return null;
      at = option as z.ZodType;
    } else return at;
  }
}

/** The known word nearest to a mistyped one. */
export function nearest(word: string, known: string[]): string | null {
  const best = known
    .map((each) => [distance(word.toLowerCase(), each.toLowerCase()), each] as const)
    .sort((a, b) => a[0] - b[0])[0];
  return best && best[0] <= Math.max(2, word.length / 2) ? best[1] : null;
}

/** One sentence per problem: path, what was expected, what was got. */
export function explainIssues(schema: z.ZodType, value: unknown, error: z.ZodError): string[] {
  return error.issues.flatMap((issue) => {
    const path = issue.path.reduce<string>((text, key) => joinPath(text, key as string | number), '');
    const got = issue.path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key], value);
    if (issue.code === 'unrecognized_keys') {
      const found = schemaAt(schema, issue.path, value);
      const known = found instanceof z.ZodObject ? Object.keys(found.shape) : [];
      return issue.keys.map((key) => {
        const guess = nearest(key, known);
        return `${joinPath(path, key)}: unknown key${guess ? `, did you mean ${guess}?` : `; known here: ${known.join(', ')}`}`;
      });
    }
    if (issue.code === 'invalid_union') {
      const union = schemaAtUnion(schema, issue.path, value);
      const guess = typeof got === 'string' ? nearest(got, union) : null;
      return [
        `${path}: expected one of ${union.join(', ')}, got ${show(got)}${guess ? `; did you mean ${guess}?` : ''}`,
      ];
    }
    const expected = issue.message.replace(/^Invalid input: /, '').replace(/, received .*$/, '');
    return [`${path || 'recipe'}: ${expected}, got ${show(got)}`];
  });
}

/** The names a union can be told apart by; `path` ends in its discriminator. */
function schemaAtUnion(schema: z.ZodType, path: PropertyKey[], value: unknown): string[] {
  let at: z.ZodType | undefined = schema;
  let here = value;
  for (const key of path) {
    while (
      at instanceof z.ZodOptional ||
      at instanceof z.ZodDefault ||
      at instanceof z.ZodPrefault ||
      at instanceof z.ZodNullable
    ) {
      at = at.unwrap() as z.ZodType;
    }
    if (at instanceof z.ZodDiscriminatedUnion && at.def.discriminator === key) {
      return at.options.map((option) => String(((option as z.ZodObject).shape[key as string] as z.ZodLiteral).value));
    }
    const below = (here as Record<PropertyKey, unknown> | undefined)?.[key];
    at =
      at instanceof z.ZodObject
        ? (at.shape[key as string] as z.ZodType)
        : at instanceof z.ZodArray
          ? (at.element as z.ZodType)
          : undefined;
    here = below;
  }
  return [];
}

function show(value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}
