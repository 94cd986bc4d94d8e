import { expect, it } from 'vitest';
import { ProgressBar } from '../../src/commands/progress-bar.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

function terminal(isTTY: boolean) {
  const written: string[] = [];
  const stream = { isTTY, write: (text: string) => written.push(text) > 0 } as unknown as NodeJS.WriteStream;
  return { written, stream };
}

it('a bar is drawn over itself, ten times a second at most, and its last word stays', async () => {
  const clock = new ManualClock();
  const { written, stream } = terminal(true);
  const bar = new ProgressBar(4, clock, stream);
  bar.show(1);
  bar.show(2);
  await clock.advance(100);
  bar.show(3);
  bar.end(4);
  expect(written).toEqual([
    `\r${'█'.repeat(8)}${'░'.repeat(22)}  25 % 1 value`,
    `\r${'█'.repeat(23)}${'░'.repeat(7)}  75 % 3 values`,
    `\r${'█'.repeat(30)} 100 % 4 values`,
    '\n',
  ]);
});

it('where nobody knows how much there is it counts, and is never more than whole where more came', () => {
  const { written, stream } = terminal(true);
  new ProgressBar(0, new ManualClock(), stream).show(7);
  new ProgressBar(4, new ManualClock(), stream).show(9);
  expect(written).toEqual(['\r7 values', `\r${'█'.repeat(30)} 100 % 9 values`]);
});

it('where standard error is no terminal there is none', () => {
  const { written, stream } = terminal(false);
  const bar = new ProgressBar(4, new ManualClock(), stream);
  bar.show(1);
  bar.end(4);
  expect(written).toEqual([]);
});
