import { expect, it } from 'vitest';
import { giveBack } from '../../src/base/give-back.ts';

it('what is given back takes no memory any more, and nobody reads it', () => {
  const bytes = Buffer.allocUnsafeSlow(2 ** 20);
  giveBack(bytes);
  expect([bytes.length, bytes.buffer.byteLength]).toEqual([0, 0]);
});

it('a part of what others read too is left to them', () => {
  const whole = Buffer.alloc(2 ** 16, 7);
  giveBack(whole.subarray(1));
  giveBack(whole.subarray(0, 100));
  expect(whole.every((byte) => byte === 7)).toBe(true);
});
