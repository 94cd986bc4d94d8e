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
});
