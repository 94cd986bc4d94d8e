import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { OrderedQueue } from '../../../src/broker/ordered-queue.ts';

describe('ordered queue', () => {
  it('delivers a rejected item as soon as an earlier item is stored, without waiting for the retry time', async () => {
    const isStored = Promise.withResolvers<void>();
    const delivered: string[] = [];
    let isFull = false;
    const queue = new OrderedQueue<string>({
      deliver(item) {
        if (isFull) throw new Error('full');
        isFull = true;
        delivered.push(item);
        return item === 'first' ? isStored.promise : Promise.resolve();
      },
      isOver: () => false,
      onRejected() {},
      // A retry time that never passes.
      clock: { ...systemClock, sleep: (_, signal) => systemClock.sleep(2 ** 40, signal) },
      signal: new AbortController().signal,
    });
    const first = queue.offer('first');
    const second = queue.offer('second');
    expect([delivered, queue.waiting]).toEqual([['first'], 1]);
    isFull = false;
    isStored.resolve();
    await Promise.all([first, second]);
    expect(delivered).toEqual(['first', 'second']);
  });
});
