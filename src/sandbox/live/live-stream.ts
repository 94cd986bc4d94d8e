/**
 * Event stream of the sandbox's page (server-sent events). Every second, each viewer receives all states that have
 * changed since it last received them, and all new requests and changes. The event ID contains the latest request and
 * change that the viewer has received.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { eventFrame, idlestOf, StreamReader, writeFrames } from '../../base/inbound/event-stream.ts';
import { PageFiles } from '../../base/inbound/page-files.ts';
import { BUILT_PAGES } from '../../base/installation.ts';
import { type Answer, type Call, idQuery } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import type { Stage } from '../stage.ts';
import type { SandboxEvents } from './sandbox-events.ts';
import { chartOf, deliveriesOf, seriesLine, siteOf, tokensOf, webhooksOf } from './views.ts';

type Series = { asset: number; key: string };
type Point = SandboxEvents['points']['points'][number];

/** An open page. `sent` contains the latest frame sent for each state. */
class Viewer extends StreamReader {
  /** Series in the chart that the page shows. */
  readonly asset: number | undefined;
  readonly key: string;
  /** Points added to this series since the latest frames were sent. */
  points: Point[] = [];
  readonly sent = new Map<string, string>();
  lastRequest: number;
  lastChange: number;

  constructor(response: ServerResponse, nowMs: number, asset: number | undefined, key: string, seen: Seen) {
    super(response, nowMs);
    this.asset = asset;
    this.key = key;
    this.lastRequest = seen.request;
    this.lastChange = seen.change;
  }
}

const TICK_MS = 1_000;
const SOON_MS = 100;
const MAX_VIEWERS = 20;
const MAX_REQUESTS = 200;
const MAX_CHANGES = 100;
const MAX_POINTS = 3_000;
const MAX_SERIES = 2_000;

export class LiveStream {
  readonly #stage: Stage;
  readonly #boot: string;
  readonly #viewers = new Set<Viewer>();
  /** Latest changes, including changes made while no page was open. */
  readonly #changes: SandboxEvents['happened'][number][] = [];
  #changeCount = 0;
  #site: { version: number; frame: string } | undefined;
  /** Series with new values since the latest tick. */
  #touched = new Map<string, Series>();
  #isTicking = false;
  #isSendScheduled = false;

  constructor(stage: Stage) {
    this.#stage = stage;
    this.#boot = Math.floor(stage.clock.random() * 2 ** 48).toString(36);
    stage.requests.onHappened((happened) => {
      this.#changes.push({ ...happened, id: ++this.#changeCount });
      if (this.#changes.length > MAX_CHANGES) this.#changes.shift();
      this.#sendSoon();
    });
    stage.values.onRecord((asset, posted) => {
      if (this.#viewers.size === 0) return;
      for (const { key, points } of posted) {
        if (this.#touched.size < MAX_SERIES) this.#touched.set(`${asset} ${key}`, { asset, key });
        for (const viewer of this.#viewers) {
          if (viewer.asset === asset && viewer.key === key)
            viewer.points = [...viewer.points, ...pointsOf(points)].slice(-MAX_POINTS);
        }
      }
    });
  }

  /**
   * Responds with the stream. If there are already `MAX_VIEWERS` viewers, the new viewer replaces the one that has been
   * idle for the longest time.
   */
  open(request: IncomingMessage, response: ServerResponse, asset: number | undefined, key: string): void {
    response.writeHead(200, {
      'Content-Type': 'text/event-stream; charset=utf-8',
      'Cache-Control': 'no-store',
      'X-Content-Type-Options': 'nosniff',
    });
    if (request.method === 'HEAD') {
      response.end();
      return;
    }
    const { clock, values, url } = this.#stage;
    const nowMs = clock.monotonicMs();
    if (this.#viewers.size >= MAX_VIEWERS) this.#evict(nowMs);
    const viewer = new Viewer(response, nowMs, asset, key, seenBy(request.headers['last-event-id'], this.#boot));
    if (asset !== undefined) viewer.points = pointsOf(values.list(asset, key).slice(-MAX_POINTS));
    this.#viewers.add(viewer);
    response.once('close', () => this.#viewers.delete(viewer));
    const series = this.#seriesFrame(values.series().slice(0, MAX_SERIES));
    const frames = `${series}${this.#framesFor(viewer, this.#stateFrames())}`;
    writeFrames(response, frame('hello', { boot: this.#boot, url }) + frames);
    if (!this.#isTicking) this.#tickLater();
  }

  #evict(nowMs: number): void {
    const idlest = idlestOf(this.#viewers, nowMs);
    if (!idlest) return;
    this.#viewers.delete(idlest);
    idlest.evict();
  }

  #tickLater(): void {
    this.#isTicking = true;
    this.#stage.later(TICK_MS, async () => {
      this.#isTicking = false;
      if (this.#viewers.size === 0) return;
      this.#tickLater();
      this.#send();
    });
  }

  /** Sends a change without waiting for the next tick, because it may result from an action on the page. */
  #sendSoon(): void {
    if (this.#isSendScheduled || this.#viewers.size === 0) return;
    this.#isSendScheduled = true;
    this.#stage.later(SOON_MS, async () => {
      this.#isSendScheduled = false;
      this.#send();
    });
  }

  #send(): void {
    if (this.#viewers.size === 0) return;
    const nowMs = this.#stage.clock.monotonicMs();
    const states = this.#stateFrames();
    const series = this.#touched.size === 0 ? '' : this.#seriesFrame([...this.#touched.values()]);
    this.#touched = new Map();
    for (const viewer of this.#viewers) {
      viewer.noteProgress(nowMs);
      writeFrames(viewer.response, `${series}${this.#framesFor(viewer, states)}`);
    }
  }

  /** Returns the frames for the states that all viewers receive, by name. */
  #stateFrames(): Record<string, string> {
    const stage = this.#stage;
    const { version } = stage.site;
    if (this.#site?.version !== version) this.#site = { version, frame: frame('site', siteOf(stage)) };
    return {
      site: this.#site.frame,
      tokens: frame('tokens', tokensOf(stage)),
      webhooks: frame('webhooks', webhooksOf(stage)),
      deliveries: frame('deliveries', deliveriesOf(stage)),
      faults: frame('faults', { outage: stage.outage ?? null, faults: stage.faults.list() }),
    };
  }

  #seriesFrame(series: readonly Series[]): string {
    return frame(
      'series',
      series.map(({ asset, key }) => seriesLine(this.#stage, asset, key)),
    );
  }

  #framesFor(viewer: Viewer, states: Record<string, string>): string {
    const stage = this.#stage;
    const { asset, key, sent, points } = viewer;
    const chart = asset === undefined ? {} : { chart: frame('chart', chartOf(stage, asset, key)) };
    const changed = Object.entries({ ...states, ...chart }).filter(([name, text]) => sent.get(name) !== text);
    for (const [name, text] of changed) sent.set(name, text);
    const frames = changed.map(([, text]) => text);

    if (asset !== undefined && points.length > 0) frames.push(frame('points', { asset, key, points }));
    viewer.points = [];

    const requests = stage.requests
      .list()
      .slice(-MAX_REQUESTS)
      .filter(({ id }) => id > viewer.lastRequest);
    if (requests.length > 0) frames.push(frame('requests', requests));
    viewer.lastRequest = requests.at(-1)?.id ?? viewer.lastRequest;
    const changes = this.#changes.filter(({ id }) => id > viewer.lastChange);
    if (changes.length > 0) frames.push(frame('happened', changes));
    viewer.lastChange = this.#changeCount;

    const { clock, values } = stage;
    const tick = { atMs: clock.wallMs(), speed: clock.speed, received: values.counts().received };
    const id = `id: ${this.#boot}:${viewer.lastRequest}:${viewer.lastChange}\n`;
    return `${frames.join('')}${id}${frame('tick', { ...tick, requests: stage.requests.total })}`;
  }
}

function pointsOf(values: readonly { timestampMs: number; value: number }[]): Point[] {
  return values.map(({ timestampMs, value }) => [timestampMs, value]);
}

function frame<Name extends keyof SandboxEvents>(name: Name, data: SandboxEvents[Name]): string {
  return eventFrame(name, data);
}

interface Seen {
  request: number;
  change: number;
}

/** Returns the position contained in an event ID, or the beginning if the ID comes from a different sandbox run. */
function seenBy(id: string | string[] | undefined, boot: string): Seen {
  const [, of, request, change] = /^(\w+):(\d{1,15}):(\d{1,15})$/.exec(String(id ?? '')) ?? [];
  return of === boot ? { request: Number(request), change: Number(change) } : { request: 0, change: 0 };
}

/**
 * Adds `/sandbox/`, the page that shows and controls the sandbox. Available only on loopback, because it requires no
 * sign-in.
 */
export function addPageEndpoints(router: Router, stage: Stage): void {
  const files = new PageFiles(new URL('sandbox/', BUILT_PAGES));
  const live = new LiveStream(stage);
  const add = (path: string, answer: (call: Call) => NonNullable<Answer['write']>) =>
    router.add(
      'GET',
      `/sandbox/${path}`,
      (call) => {
        if (!stage.isLoopback) throw refusal(403, 'the page is available only on loopback');
        return { status: 200, write: answer(call) };
      },
      { auth: 'none' },
    );

  add('', () => (request, response) => files.answerPage(request, response));
  add('page/:name', (call) => async (request, response) => {
    if (await files.answerFile(request, response, call.params.name ?? '')) return;
    response.writeHead(404);
    response.end();
  });
  add('live', (call) => {
    const asset = idQuery(call, 'asset');
    const key = (call.query.get('key') ?? '').toLowerCase();
    return (request, response) => live.open(request, response, asset, key);
  });
}
