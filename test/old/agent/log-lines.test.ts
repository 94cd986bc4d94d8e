import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { beforeEach, describe, expect, it } from 'vitest';
import { DropLog, logDamaged, logDropped } from '../../../src/agent/drop-log.ts';
import type { Logger } from '../../../src/base/logger.ts';
import { Repeats } from '../../../src/base/repeats.ts';
import { readLine } from '../../../src/commands/logs/log-line.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';

const ROOT = join(import.meta.dirname, '../../..');

let lines: Record<string, unknown>[];
let log: Logger;
let clock: ManualClock;
beforeEach(() => {
  lines = [];
  log = pino({ base: null, level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  clock = new ManualClock();
});

describe('log in the systemd journal', () => {
  const fields = { event: 'a.b', text: 'two\nlines', values: 3, code: '400', problems: ['x y', 'z'] };

  /** Runs a logger that writes to the journal stream or, with `elsewhere`, to another file. */
  function written(format: string, elsewhere = false): string[] {
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-log-'));
    const stream = openSync(join(folder, 'stream'), 'w+');
    const program = `
      import { fstatSync } from 'node:fs';
      import { createLogger } from ${JSON.stringify(join(ROOT, 'src/base/logger.ts'))};
      const { dev, ino } = fstatSync(1);
      Object.assign(process.env, { JOURNAL_STREAM: dev + ':' + ${elsewhere ? '1' : 'ino'} });
      const log = createLogger({ level: 'trace', format: '${format}' });
      for (const level of ['trace', 'debug', 'info', 'warn', 'error', 'fatal']) log[level](${JSON.stringify(fields)}, 'a message');`;
    try {
      spawnSync(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', stream, 'inherit'] });
      return readFileSync(join(folder, 'stream'), 'utf8').trimEnd().split('\n');
    } finally {
      closeSync(stream);
      rmSync(folder, { recursive: true });
    }
  }

  it.each(['auto', 'json'])('prefixes each line with its syslog priority, and can be read back (%s)', (format) => {
    const lines = written(format);
    expect(lines.map((line) => line.slice(0, 3))).toEqual(['<7>', '<7>', '<6>', '<4>', '<3>', '<2>']);
    for (const line of lines) expect(readLine(line.slice(3))).toMatchObject({ ...fields, msg: 'a message' });
  });

  it('is human-readable text by default', () => {
    expect(written('auto')[4]).toMatch(
      /^<3>level=error event=a\.b msg="a message" text="two\\nlines" values=3 code="400"/,
    );
  });

  it('is JSON without priorities if standard output is redirected', () => {
    for (const line of written('auto', true)) expect(JSON.parse(line)).toMatchObject(fields);
  });
});

describe('repeated problem', () => {
  it('is logged immediately, whenever its count doubles, and every ten minutes until it is resolved', () => {
    const repeats = new Repeats();
    const said = (times: number, everyMs: number, fromMs: number) =>
      Array.from({ length: times }, (_, i) => repeats.note('x', fromMs + i * everyMs)).filter(
        (one) => one !== undefined,
      );
    expect(said(10, 1, 0)).toEqual([1, 2, 4, 8]);
    expect(said(30, 60_000, 600_000)).toEqual([12, 22, 32]);
    repeats.end('x');
    expect(repeats.note('x', 0)).toBe(1);
  });

  it('is logged once per minute with complete totals if the buffer is full', async () => {
    const losses = new DropLog(clock);
    for (let second = 0; second < 150; second++) {
      losses.note('dropped bytes', 10, logDropped(log, 'bytes'));
      await clock.advance(1_000);
    }
    expect(lines).toHaveLength(3);
    losses.settle(Number.POSITIVE_INFINITY);
    expect(lines).toHaveLength(4);
    expect(lines.reduce((sum, line) => sum + Number(line.values), 0)).toBe(1_500);
    expect(lines[0]).toMatchObject({
      event: 'buffer.dropped',
      reason: 'bytes',
      values: 10,
      times: 1,
      hint: expect.any(String),
    });
  });

  it('is logged separately for damaged rows, and cleared when the damage is repaired', async () => {
    const losses = new DropLog(clock);
    losses.note('dropped bytes', 1, logDropped(log, 'bytes'));
    for (let i = 0; i < 100; i++) losses.note('damaged segment', 2, logDamaged(log, 'segment'));
    await clock.advance(60_000);
    losses.settle(clock.monotonicMs());
    await clock.advance(60_000);
    losses.settle(clock.monotonicMs());
    expect(lines.map(({ event, values }) => [event, values])).toEqual([
      ['buffer.dropped', 1],
      ['store.row_damaged', 2],
      ['store.row_damaged', 198],
    ]);
  });
});
