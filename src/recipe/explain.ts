import { distance } from 'fastest-levenshtein';
import { z } from 'zod';
import { joinPath } from './origin.ts';

/** The schema found by following `path` from `schema`, through optionals, defaults and the chosen kind of a union. */
function schemaAt(schema: z.ZodType, path: PropertyKey[], value: unknown): z.ZodType | null {
  const bare = unwrap(schema);
  // The names that a union is told apart by lie in the union itself, everything else in the kind that was chosen.
  const [key, ...rest] = path;
  if (bare instanceof z.ZodDiscriminatedUnion && !(rest.length === 0 && key === bare.def.discriminator)) {
    const option = optionsOf(bare).get(
      String((value as Record<string, unknown> | undefined)?.[bare.def.discriminator]),
    );
    return option ? schemaAt(option, path, value) : null;
  }
  if (key === undefined || bare instanceof z.ZodDiscriminatedUnion) return bare;
  if (bare instanceof z.ZodUnion) {
    const settings = (bare.options as z.ZodType[]).find((option) => option instanceof z.ZodObject);
    return settings ? schemaAt(settings, path, value) : null;
  }
  const below = (value as Record<PropertyKey, unknown> | undefined)?.[key];
  if (bare instanceof z.ZodObject) {
    const next = bare.shape[key as string] as z.ZodType | undefined;
    return next ? schemaAt(next, rest, below) : null;
  }
  return bare instanceof z.ZodArray ? schemaAt(bare.element as z.ZodType, rest, below) : null;
}

function unwrap(schema: z.ZodType): z.ZodType {
  let at = schema;
  while (
    at instanceof z.ZodOptional ||
    at instanceof z.ZodNullable ||
    at instanceof z.ZodDefault ||
    at instanceof z.ZodPrefault
  )
    at = at.unwrap() as z.ZodType;
  return at;
}

/** Known keys at a path; of a value that may be a word or settings, those of the settings. */
function keysAt(schema: z.ZodType, path: PropertyKey[], value: unknown): string[] {
  const found = schemaAt(schema, path, value);
  const settings = found instanceof z.ZodUnion ? (found.options as z.ZodType[]) : [found];
  return settings.flatMap((option) => (option instanceof z.ZodObject ? Object.keys(option.shape) : []));
}

/** One of several forms a value may have, in words. */
const choice = (schema: z.ZodType): string =>
  schema instanceof z.ZodLiteral ? [...schema.values].map((value) => JSON.stringify(value)).join(' or ') : 'settings';

/** Kinds of a union by the word that chooses them. */
function optionsOf(union: z.ZodDiscriminatedUnion): Map<string, z.ZodType> {
  const { discriminator } = union.def;
  const options = union.options as z.ZodObject[];
  return new Map(options.map((option) => [String((option.shape[discriminator] as z.ZodLiteral).value), option]));
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
      const known = keysAt(schema, issue.path, value);
      return issue.keys.map((key) => {
        const guess = nearest(key, known);
        return `${joinPath(path, key)}: unknown key${guess ? `, did you mean ${guess}?` : `; known here: ${known.join(', ')}`}`;
      });
    }
    if (issue.code === 'invalid_union') {
      // Right form, wrong inside: say what is wrong there.
      const inside = issue.errors.find(
        (problems) => problems.length > 0 && problems.every((each) => each.path.length > 0),
      );
      if (inside) {
        const issues = inside.map((each) => ({ ...each, path: [...issue.path, ...each.path] }));
        return explainIssues(schema, value, new z.ZodError(issues));
      }
      const union = schemaAt(schema, issue.path, value);
      const kinds = union instanceof z.ZodDiscriminatedUnion ? [...optionsOf(union).keys()] : [];
      if (kinds.length === 0) {
        const choices = union instanceof z.ZodUnion ? (union.options as z.ZodType[]).map(choice) : [];
        return [`${path}: expected ${choices.join(' or ') || 'another value'}, got ${show(got)}`];
      }
      const guess = typeof got === 'string' ? nearest(got, kinds) : null;
      return [
        `${path}: expected one of ${kinds.join(', ')}, got ${show(got)}${guess ? `; did you mean ${guess}?` : ''}`,
      ];
    }
    const expected = issue.message.replace(/^Invalid input: /, '').replace(/, received .*$/, '');
    return [`${path || 'recipe'}: ${expected}, got ${show(got)}`];
  });
}

function show(value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}
