import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Two cores are what CI has; more files at a time would only make timeouts lie.
    maxWorkers: 2,
  },
});
