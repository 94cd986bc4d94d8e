import { describe, expect, it } from 'vitest';
import { AnswerTime } from '../../src/uplink/answer-time.ts';

const S = 1_000;
const MINUTE = 60 * S;
const FULL = 480_000;

describe('the time that an answer may take', () => {
  it('is 90 s while the link has shown nothing, and 15 s at least', () => {
    const answers = new AnswerTime();
    expect(answers.limitMs(1, 100, 0)).toBe(90 * S);
    answers.came(1, 100, 50, 0);
    expect(answers.limitMs(1, 100, 0)).toBe(15 * S);
    expect(answers.limitMs(2, 100, 0)).toBe(15 * S);
  });

  it('leaves a large body the time that 64 kbit/s need, until a large one has shown the speed', () => {
    const answers = new AnswerTime();
    answers.came(1, 100, 50, 0);
    expect(answers.limitMs(1, FULL, 0)).toBe(90 * S);
    answers.came(1, 240_000, 4 * S, 0);
    expect(answers.limitMs(1, FULL, 0)).toBe(24 * S);
    expect(answers.limitMs(1, 10_000, 0)).toBe(15 * S);
    answers.came(1, FULL, 60 * S, 0);
    expect(answers.limitMs(1, FULL, 0)).toBe(90 * S);
  });

  it('is never under twice the slowest recent answer, of whichever asset, for ten minutes', () => {
    const answers = new AnswerTime();
    answers.came(1, 100, 20 * S, 0);
    for (let minute = 0; minute < 10; minute++) {
      answers.came(2, 100, 50, minute * MINUTE);
      expect(answers.limitMs(2, 100, minute * MINUTE)).toBe(40 * S);
    }
    answers.came(2, 100, 50, 10 * MINUTE);
    expect(answers.limitMs(2, 100, 10 * MINUTE)).toBe(15 * S);
    expect(answers.limitMs(2, 100, 25 * MINUTE)).toBe(90 * S);
  });

  it('doubles with each answer of the asset that ran out, whatever the others show, until it is answered', () => {
    const answers = new AnswerTime();
    const limits: number[] = [];
    for (let i = 0; i < 5; i++) {
      answers.came(2, 100, 50, 0);
      limits.push(answers.limitMs(1, 100, 0));
      answers.ranOut(1);
    }
    expect(limits).toEqual([15, 30, 60, 90, 90].map((seconds) => seconds * S));
    expect(answers.limitMs(2, 100, 0)).toBe(15 * S);
    answers.came(1, 100, 25 * S, 0);
    expect(answers.limitMs(1, 100, 0)).toBe(50 * S);
  });

  it('goes for a large body by the slowest byte of the last ten minutes, three times over, once 16 KiB were answered', () => {
    const answers = new AnswerTime();
    const limitMs = (bytes: number, nowMs: number) => Math.round(answers.limitMs(1, bytes, nowMs));
    answers.came(1, 16 * 1024 - 1, 1, 0);
    // 64 kbit/s, twice.
    expect([59_999, 60_000, 100_000].map((bytes) => limitMs(bytes, 0))).toEqual([15 * S, 15 * S, 25 * S]);
    answers.came(1, 16 * 1024, 1_024, 0);
    expect(limitMs(480_000, 0)).toBe(90 * S);
    expect(limitMs(160_000, 0)).toBe(30 * S);
    // Of one minute and of several, the slowest.
    answers.came(1, 20_000, 1_000, 0);
    answers.came(1, 20_000, 2_000, 3 * MINUTE);
    expect(limitMs(160_000, 3 * MINUTE)).toBe(48 * S);
    answers.came(1, 20_000, 500, 3 * MINUTE);
    answers.came(1, 20_000, 1_000, 6 * MINUTE);
    expect(limitMs(160_000, 10 * MINUTE)).toBe(48 * S);
    expect(limitMs(160_000, 13 * MINUTE)).toBe(24 * S);
    expect(limitMs(160_000, 16 * MINUTE)).toBe(90 * S);
  });

  it('knows each of the last ten minutes, however many came before', () => {
    const answers = new AnswerTime();
    for (let minute = 0; minute < 30; minute++) answers.came(1, 100, (40 - minute) * S, minute * MINUTE);
    // The slowest of the last ten was that of minute 20.
    expect(answers.limitMs(1, 100, 29 * MINUTE)).toBe(40 * S);
    expect(answers.limitMs(1, 100, 30 * MINUTE - 1)).toBe(40 * S);
    expect(answers.limitMs(1, 100, 30 * MINUTE)).toBe(38 * S);
  });

  it('stays at 90 s for an asset that is never answered', () => {
    const answers = new AnswerTime();
    answers.came(2, 100, 50, 0);
    for (let post = 0; post < 2_000; post++) answers.ranOut(1);
    expect(answers.limitMs(1, 100, 0)).toBe(90 * S);
  });
});
