import { describe, expect, it } from 'vitest';
import { PlatformError } from '../../src/base/errors.ts';
import { HeldSeries } from '../../src/uplink/held-series.ts';
import type { ValuesAnswer, ValuesCall } from '../../src/uplink/ports.ts';
import { askedWaitMs, postBatch } from '../../src/uplink/post.ts';
import { SeriesWaits } from '../../src/uplink/series-waits.ts';
import { ManualClock } from '../doubles/manual-clock.ts';
import { batch } from './effects-world.ts';

const answerOf = (status: number, headers: Record<string, string> = {}): ValuesAnswer => ({
  status,
  text: '',
  header: (name) => headers[name],
  redact: String,
});

describe('a post', () => {
  const signals = () => new AbortController();
  const post = (request: (call: ValuesCall) => Promise<ValuesAnswer>, signal = signals().signal, success = [204]) =>
    postBatch({ request }, '/v1/assets/7/values', batch(1), { success, deadlineMs: 15_000, signal });

  it('is the body as the store cut it, as JSON, to be answered in time, and already paid for', async () => {
    const { signal } = signals();
    const calls: ValuesCall[] = [];
    const verdict = await post(async (call) => {
      calls.push(call);
      return answerOf(204);
    }, signal);
    expect(verdict).toMatchObject({ meaning: 'delivered', code: '204', status: 204 });
    const { body } = batch(1);
    const headers = { 'content-type': 'application/json' };
    const terms = { kind: 'paid', statusSuffices: true, deadlineMs: 15_000, signal };
    expect(calls).toEqual([{ method: 'POST', path: '/v1/assets/7/values', body, headers, ...terms }]);
  });

  it('is taken where the answer is one that says so', async () => {
    const created = async () => answerOf(201, { 'content-length': '0' });
    expect((await post(created))?.meaning).toBe('not-understood');
    expect((await post(created, undefined, [201]))?.meaning).toBe('delivered');
  });

  const reset = new PlatformError('reset', { code: 'platform.connection_reset' });
  const late = new PlatformError('the post took too long', { code: 'platform.timeout' });
  it.each([
    ['that broke, by what broke it', undefined, { meaning: 'later', code: 'platform.connection_reset', status: 0 }],
    ['that took too long, by its deadline', late, { meaning: 'later', code: 'platform.timeout', status: 0 }],
    ['that the agent broke off, by nothing', new Error('the uplink stops'), undefined],
  ])('%s', async (_name, reason, expected) => {
    const abort = signals();
    const verdict = await post(async () => {
      if (reason) abort.abort(reason);
      throw reset;
    }, abort.signal);
    if (expected) expect(verdict).toMatchObject(expected);
    else expect(verdict).toBeUndefined();
  });

  it('is waited for as its answer asks, from now; as long as nothing where it does not ask', () => {
    const clock = new ManualClock(Date.UTC(2026, 10, 21));
    const asked = (answer?: ValuesAnswer) =>
      askedWaitMs({ meaning: 'later', code: '503', status: 503, words: '', ...(answer && { answer }) }, clock);
    expect(asked(answerOf(503, { 'retry-after': '7' }))).toBe(7_000);
    expect(asked(answerOf(503, { 'retry-after': 'Sat, 21 Nov 2026 00:00:10 GMT' }))).toBe(10_000);
    expect([asked(answerOf(503, { 'retry-after': 'soon' })), asked(answerOf(503)), asked()]).toEqual([0, 0, 0]);
  });
});

describe('the series that are not to be taken', () => {
  const world = () => {
    const told: string[] = [];
    const held: number[] = [];
    const answers: { resolve: () => void; reject: (error: Error) => void }[] = [];
    const holdSeries = (series: readonly number[]) => {
      told.push(series.join());
      return new Promise<void>((resolve, reject) => answers.push({ resolve, reject }));
    };
    const waits = new SeriesWaits();
    return { told, held, answers, waits, series: new HeldSeries({ holdSeries }, { heldSeries: () => held }, waits) };
  };
  const turn = () => new Promise((resolve) => setImmediate(resolve));

  it('are those that are held and those that wait, each once', async () => {
    const { told, held, answers, waits, series } = world();
    held.push(3, 1);
    for (const one of [2, 3]) waits.hold(7, one, { status: 400, message: 'no' }, 0);
    const done = series.tell();
    await turn();
    answers[0]!.resolve();
    await done;
    expect(told).toEqual(['3,1,2']);
  });

  it('are told one set after the other, each as it is when its turn comes, also after one that failed', async () => {
    const { told, held, answers, series } = world();
    held.push(1);
    const first = series.tell();
    const failed = expect(first).rejects.toThrow('the disk is away');
    const second = series.tell();
    await turn();
    expect(told).toEqual(['1']);
    held.push(2);
    answers[0]!.reject(new Error('the disk is away'));
    await failed;
    await turn();
    expect(told).toEqual(['1', '1,2']);
    answers[1]!.resolve();
    await second;
  });
});
