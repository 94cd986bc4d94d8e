import { expect, it } from 'vitest';
import { releaseMemory } from '../../../src/base/release-memory.ts';

it('released buffer uses no memory', () => {
  const bytes = Buffer.allocUnsafeSlow(2 ** 20);
  releaseMemory(bytes);
  expect([bytes.length, bytes.buffer.byteLength]).toEqual([0, 0]);
});

it('buffer with shared memory is not released', () => {
  const whole = Buffer.alloc(2 ** 16, 7);
  releaseMemory(whole.subarray(1));
  releaseMemory(whole.subarray(0, 100));
  expect(whole.every((byte) => byte === 7)).toBe(true);
});
