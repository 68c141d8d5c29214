import type { Command } from 'commander';

export function register(program: Command): void {
  program
    .command('schema')
    .description('the JSON Schema of recipes, for editors: every setting with its meaning and default')
    .addHelpText(
      'after',
      '\nExamples:\n  orchard schema > recipe.schema.json\n  orchard schema | jq .properties.limits',
    )
    .action(async () => {
      const { z } = await import('zod');
      const { Recipe } = await import('../../recipe/schema.ts');
      console.log(JSON.stringify(z.toJSONSchema(Recipe, { io: 'input' }), null, 2));
    });
}
