import { describe, expect, it } from 'vitest';
import { SandboxClock } from '../../src/sandbox/sandbox-clock.ts';
import { WebhookBook } from '../../src/sandbox/webhooks/webhook-book.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const bookOf = (mostSettled: number) => {
  const clock = new SandboxClock(new ManualClock(0, 1));
  return { clock, book: new WebhookBook(clock, mostSettled) };
};
const add = (book: WebhookBook) => book.addDelivery(1, 'asset_appeared', 0, '{}');
const idsOf = (book: WebhookBook) => book.deliveries().map(({ id }) => id);

describe('the deliveries that are kept', () => {
  it('lose those that were delivered or cancelled first, failed ones only where there is nothing else', () => {
    const { book } = bookOf(3);
    for (const status of ['failed', 'delivered', 'failed', 'cancelled', 'failed'] as const)
      book.settle(add(book), status);
    expect(idsOf(book)).toEqual([1, 3, 5]);
    book.settle(add(book), 'failed');
    expect(idsOf(book)).toEqual([3, 5, 6]);
    book.settle(add(book), 'delivered');
    expect(idsOf(book)).toEqual([3, 5, 6]);
  });

  it('never lose a pending one, nor one that began again', () => {
    const { book } = bookOf(1);
    const first = add(book);
    book.settle(first, 'failed');
    book.reopen(first);
    for (let i = 0; i < 5; i++) add(book);
    book.settle(add(book), 'delivered');
    book.settle(add(book), 'delivered');
    expect(idsOf(book)).toEqual([1, 2, 3, 4, 5, 6, 8]);
  });

  it('fall away after six months, and with their webhook', () => {
    const { book, clock } = bookOf(10);
    book.settle(add(book), 'failed');
    clock.advance(200 * 24 * 3600 * 1000);
    expect(idsOf(book)).toEqual([]);
    const late = add(book);
    book.remove(1);
    book.settle(late, 'cancelled');
    expect(idsOf(book)).toEqual([]);
  });

  it('are counted alike after a restart', () => {
    const { book } = bookOf(2);
    for (const status of ['failed', 'delivered'] as const) book.settle(add(book), status);
    const again = bookOf(2).book;
    again.restore(JSON.parse(JSON.stringify(book.snapshot())));
    again.settle(add(again), 'failed');
    expect(idsOf(again)).toEqual([1, 3]);
  });
});
