import { expect, it } from 'vitest';
import { ProgressBar } from '../../../src/commands/terminal/output.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

function terminal(isTTY: boolean) {
  const written: string[] = [];
  const stream = { isTTY, write: (text: string) => written.push(text) > 0 } as unknown as NodeJS.WriteStream;
  return { written, stream };
}

it('a progress bar is redrawn in place at most ten times per second, and its final state remains visible', async () => {
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

it('a progress bar shows a count if there is no total, and never exceeds 100 %', () => {
  const { written, stream } = terminal(true);
  new ProgressBar(0, new ManualClock(), stream).show(7);
  new ProgressBar(4, new ManualClock(), stream).show(9);
  expect(written).toEqual(['\r7 values', `\r${'█'.repeat(30)} 100 % 9 values`]);
});

it('no progress bar is printed if standard error is not a terminal', () => {
  const { written, stream } = terminal(false);
  const bar = new ProgressBar(4, new ManualClock(), stream);
  bar.show(1);
  bar.end(4);
  expect(written).toEqual([]);
});
