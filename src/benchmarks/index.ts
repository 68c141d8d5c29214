import type { Benchmark } from '../ports/benchmark.ts';
import { sweBench } from './swe-bench/index.ts';
import { tiny } from './tiny/index.ts';

export const benchmarks: Record<string, Benchmark> = { 'swe-bench': sweBench as Benchmark, tiny: tiny as Benchmark };
