import type { IncomingMessage, ServerResponse } from 'node:http';
import { beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/base/logger.ts';
import { RecentLines } from '../../../src/base/recent-lines.ts';
import { historyFeed, logFeed } from '../../../src/ops/live/feeds.ts';
import { History } from '../../../src/ops/live/history.ts';
import type { Sight } from '../../../src/ops/live/live-events.ts';
import { type Feed, frame, LiveStream } from '../../../src/ops/live/live-stream.ts';
import { ManualClock } from '../doubles/manual-clock.ts';

let clock: ManualClock;
let history: History;
let recent: RecentLines;
let opened: string[];
let ended: string[];
/** Feed of a slow store, which responds with its state at the time of the request. */
let slowFeed: Feed;

beforeEach(() => {
  clock = new ManualClock();
  history = new History();
  recent = new RecentLines();
  opened = [];
  ended = [];
});

function makeStream(): LiveStream {
  return new LiveStream({
    feed(topic, of) {
      opened.push(`${topic}${of ?? ''}`);
      if (topic === 'history') return historyFeed(history);
      if (topic === 'log') return logFeed(recent);
      if (topic === 'held') return slowFeed;
      if (topic !== 'tag') return undefined;
      return { begin: () => [], next: () => [], end: () => ended.push(String(of)) };
    },
    hello: () => ({ version: '1', gateway: 'gw', startedWallMs: 0, zone: { name: null, offsetMinutes: 0 } }),
    position: () => ({ second: history.second, line: recent.written }),
    clock,
    log: silentLogger(),
  });
}

const sample = (atMs: number) =>
  history.add({ atMs, ingested: 1, delivered: 1, backlog: 0, latencyMs: 5, requests: 1, rssBytes: 1, out: 0 });

/** Opens the stream as a viewer, and returns the received events. */
function look(stream: LiveStream, of: string, { sight = 'all', lastId }: { sight?: Sight; lastId?: string } = {}) {
  let text = '';
  let close = () => {};
  const response = {
    writableEnded: false,
    writableLength: 0,
    destroyed: false,
    writeHead: () => {},
    write: (more: string) => {
      text += more;
    },
    end: () => {},
    once: (_: string, listener: () => void) => {
      close = listener;
    },
  };
  const request = { method: 'GET', headers: lastId === undefined ? {} : { 'last-event-id': lastId } };
  const query = new URLSearchParams({ of });
  stream.open(request as unknown as IncomingMessage, response as unknown as ServerResponse, query, sight);
  const events = (name: string) =>
    [...text.matchAll(/event: (\w+)\ndata: (.*)\n\n/g)]
      .filter((match) => match[1] === name)
      .map((match) => JSON.parse(match[2]!) as Record<string, unknown[]>);
  return { events, leave: () => close(), id: () => [...text.matchAll(/^id: (.*)$/gm)].at(-1)?.[1] };
}

/** Waits until started writes are complete. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('reconnecting viewer', () => {
  it('receives only missed events if it sends its latest event ID', async () => {
    const stream = makeStream();
    for (const second of [1, 2]) sample(second);
    recent.add('{"event":"one"}');
    const first = look(stream, 'history,log');
    await settle();
    first.leave();
    for (const second of [3, 4]) sample(second);
    recent.add('{"event":"two"}');
    const again = look(stream, 'history,log', { lastId: first.id()! });
    await settle();
    expect(again.events('history')).toMatchObject([{ whole: false }]);
    expect(again.events('history')[0]!.seconds!.map((row) => (row as number[])[0])).toEqual([3, 4]);
    expect(again.events('log')).toEqual([{ whole: false, missed: 0, lines: [{ event: 'two' }] }]);
  });

  it('receives a newly requested topic from the beginning', async () => {
    const stream = makeStream();
    recent.add('{"event":"one"}');
    sample(1);
    const first = look(stream, 'history');
    await settle();
    const again = look(stream, 'history,log', { lastId: first.id()! });
    await settle();
    expect(again.events('log')).toMatchObject([{ whole: true, lines: [{ event: 'one' }] }]);
    expect(again.events('history')).toMatchObject([{ whole: false, seconds: [] }]);
  });

  it('receives everything again after a reboot or if its event ID is unknown', async () => {
    const before = look(makeStream(), 'history');
    await settle();
    clock = new ManualClock();
    const stream = makeStream();
    sample(1);
    for (const lastId of [
      before.id()!.replace(/^\w+/, 'other'),
      'nonsense',
      `${before.id()!.split(':')[0]}:-1:0:history`,
    ]) {
      const again = look(stream, 'history', { lastId });
      await settle();
      expect(again.events('history')).toMatchObject([{ whole: true }]);
    }
  });
});

describe('additional viewer', () => {
  const linesOf = (viewer: ReturnType<typeof look>) =>
    viewer.events('log').flatMap(({ lines }) => lines!.map((line) => (line as unknown as { event: string }).event));

  it('receives each line once, like the other viewers', async () => {
    const stream = makeStream();
    const first = look(stream, 'log');
    await settle();
    recent.add('{"event":"before"}');
    const joins = look(stream, 'log');
    recent.add('{"event":"meanwhile"}');
    await settle();
    recent.add('{"event":"after"}');
    await clock.advance(1_000);
    await settle();
    expect(linesOf(first)).toEqual(['before', 'meanwhile', 'after']);
    expect(linesOf(joins)).toEqual(['before', 'meanwhile', 'after']);
  });

  it('misses no events while its initial state is being prepared', async () => {
    let stands = 0;
    const answers: (() => void)[] = [];
    const tell = () => {
      const quarantine = [{ values: stands }];
      return new Promise<string[]>((resolve) => {
        answers.push(() => resolve([frame('held', { quarantine, isMore: false } as never)]));
      });
    };
    slowFeed = { begin: tell, next: tell };
    const answer = async () => {
      for (const each of answers.splice(0)) each();
      await settle();
    };
    const stream = makeStream();
    const first = look(stream, 'held');
    await answer();
    const joins = look(stream, 'held');
    stands = 1;
    await clock.advance(1_000);
    await settle();
    expect(joins.id()).toBeUndefined();
    await answer();
    await clock.advance(1_000);
    await answer();
    for (const viewer of [first, joins]) {
      expect(viewer.events('held').at(-1)).toMatchObject({ quarantine: [{ values: 1 }] });
      expect(viewer.id()).toMatch(/held$/);
    }
  });
});

describe('viewer without a token', () => {
  it('receives neither log lines nor events', async () => {
    const stream = makeStream();
    recent.add('{"event":"secret"}');
    const viewer = look(stream, 'log,events,history', { sight: 'status' });
    await settle();
    expect(viewer.events('log')).toEqual([]);
    expect(opened).toEqual(['history']);
  });
});

describe('shared feed', () => {
  it('is opened once, and closed when the last viewer disconnects', async () => {
    const stream = makeStream();
    const one = look(stream, 'tag.7');
    const other = look(stream, 'tag.7');
    await settle();
    expect(opened).toEqual(['tag7']);
    one.leave();
    expect(ended).toEqual([]);
    other.leave();
    expect(ended).toEqual(['7']);
  });
});
