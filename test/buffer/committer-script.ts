import { expect } from 'vitest';
import { StoreError } from '../../src/base/errors.ts';
import { Committer } from '../../src/buffer/client/committer.ts';
import type { Note } from '../../src/buffer/client/notes.ts';
import { ValueColumns } from '../../src/buffer/format/value-columns.ts';
import { SeriesCatalogue } from '../../src/buffer/series.ts';
import type { CommitRequest, StoreFacts } from '../../src/buffer/store-facts.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

const QUIET = { dirty: false, maintenanceDue: false, short: false, spare: false, oversized: false };
export const facts = (more: Partial<StoreFacts> = {}) => ({ ...QUIET, ...more }) as StoreFacts;
export const failure = (code: string) => new StoreError('no', { code, retryable: true });

type Answer = StoreFacts | Error;

/** A committer over a store that answers as it is told, at once unless it stalls. What happens is written down, with its time. */
export function script(
  more: { intervalMs?: number; values?: number; maxWaiting?: number; notesOf?: (wallMs: number) => Note[] } = {},
) {
  const clock = new ManualClock(500_000);
  const began = clock.monotonicMs();
  const said: string[] = [];
  const answers: Answer[] = [];
  const commits: CommitRequest[] = [];
  const stalled: (() => void)[] = [];
  let stalls = false;
  const say = (what: string) => void said.push(`${clock.monotonicMs() - began} ${what}`);
  const answer = (): Promise<StoreFacts> => {
    const next = answers.shift() ?? facts();
    const give = () => (next instanceof Error ? Promise.reject(next) : Promise.resolve(next));
    if (!stalls) return give();
    return new Promise<void>((resolve) => stalled.push(resolve)).then(give);
  };
  const port = {
    commit: (request: CommitRequest) => {
      commits.push(request);
      const { columns, newSeries, notes, monotonicMs } = request;
      const readings = columns ? [...columns.value.subarray(0, columns.length)].join(' ') : 'nothing';
      const series = newSeries.length > 0 ? `, new ${newSeries.map(({ key }) => key).join(' ')}` : '';
      const told = notes ? `, notes ${notes.map(({ name, text }) => `${name}=${text}`).join(' ')}` : '';
      expect(monotonicMs).toBe(clock.monotonicMs());
      say(`commit ${readings}${series}${told}`);
      return answer();
    },
    maintain: ({ monotonicMs }: { monotonicMs: number }) => {
      expect(monotonicMs).toBe(clock.monotonicMs());
      say('maintain');
      return answer();
    },
    giveSpaceBack: () => {
      say('give space back');
      return answer();
    },
  };
  const catalogue = new SeriesCatalogue();
  const committer = new Committer(port, {
    clock,
    catalogue,
    intervalMs: 1_000,
    values: 100,
    onFacts: (given) => say(`facts${given.dirty ? ' dirty' : ''}${given.maintenanceDue ? ' due' : ''}`),
    onFailure: (error) => say(`failed ${error.code}: ${error.message}`),
    onEarly: () => say('early'),
    onCommit: (values) => say(`stored ${values}`),
    ...more,
  });
  let next = 0;
  const append = (count: number, notes?: readonly Note[], key = 'k') => {
    const columns = new ValueColumns();
    const first = next + 1;
    for (let i = 0; i < count; i++) columns.add(catalogue.idOf(1, key, undefined, undefined), 0, ++next, 0);
    const name = count > 0 ? `${first}${count > 1 ? `-${next}` : ''}` : 'notes';
    const answered = committer.append(columns, notes).then(
      () => say(`${name} on disk`),
      (error) => {
        expect(error.retryable).toBe(true);
        say(`${name} refused: ${error.code}`);
      },
    );
    return answered;
  };
  /** What was said since it was asked last. */
  const heard = () => said.splice(0);
  const until = async (ms: number) => {
    await clock.advance(ms - (clock.monotonicMs() - began));
    return heard();
  };
  const stall = (on: boolean) => {
    stalls = on;
    if (!on) for (const over of stalled.splice(0)) over();
  };
  return { clock, committer, catalogue, commits, answers, append, until, heard, say, stall };
}
