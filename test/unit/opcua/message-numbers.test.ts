import { describe, expect, it } from 'vitest';
import { discardedBetween, isBefore, nextOf } from '../../../src/opcua/message-numbers.ts';

const LARGEST = 0xffff_ffff;

describe('sequence numbers of notification messages', () => {
  it('wrap around and skip zero', () => {
    expect([nextOf(1), nextOf(LARGEST)]).toEqual([2, 1]);
    expect([isBefore(LARGEST, 1), isBefore(1, LARGEST), isBefore(7, 7)]).toEqual([true, false, false]);
  });

  it.each([
    ['no message if the queue continues after the received one', 6, [7, 8, 9, 10], 0],
    ['messages older than the oldest one in a full queue', 6, [23, 24, 25, 26], 16],
    ['no message if the queue is not full', 6, [8, 9], 0],
    ['no message if the queue is empty', 6, [], 0],
    ['no message that was received', 9, [7, 8, 9, 10], 0],
  ])('show as discarded %s', (_, received, available, discarded) => {
    expect(discardedBetween(received, available, 4)).toBe(discarded);
  });
});
