/**
 * The stream of the sandbox's page (server-sent events): what is new goes to all who look once a second, put together once for all of
 * them. While nobody looks the last sentences about what was done behind the scenes are kept, and nothing else is listened to or put
 * together. An id says up to which request and which sentence a viewer has got it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { eventFrame, idlestOf, StreamReader, writeFrames } from '../../base/inbound/event-stream.ts';
import type { Stage } from '../admin/stage.ts';
import type { PostedSeries } from '../values/values-body.ts';
import type { SandboxEvents } from './sandbox-events.ts';
import { chartOf, deliveriesOf, seriesLine, siteOf, tokensOf, webhooksOf } from './views.ts';

type Sentence = SandboxEvents['happened'][number];
type Point = SandboxEvents['points']['points'][number];

/** An open page. */
class Viewer extends StreamReader {
  /** Series of the chart that the page shows. */
  readonly asset: number | undefined;
  readonly key: string;
  /** Points of that series since the last second. */
  points: Point[] = [];
  /** Chart frame that was sent last. */
  chart = '';

  constructor(response: ServerResponse, nowMs: number, asset: number | undefined, key: string) {
    super(response, nowMs);
    this.asset = asset;
    this.key = key;
  }
}

/** What is sent again where it has changed, and not otherwise. */
const STATES = {
  tokens: tokensOf,
  webhooks: webhooksOf,
  deliveries: deliveriesOf,
  faults: (stage: Stage) => ({ outage: stage.outage ?? null, faults: stage.faults.list() }),
} satisfies { [Name in keyof SandboxEvents]?: (stage: Stage) => SandboxEvents[Name] };

const TICK_MS = 1_000;
const SOON_MS = 100;
const MAX_VIEWERS = 20;
const MAX_REQUESTS = 200;
const MAX_SENTENCES = 100;
const MAX_POINTS = 3_000;
const MAX_SERIES = 2_000;

export class LiveStream {
  readonly #stage: Stage;
  readonly #boot: string;
  readonly #viewers = new Set<Viewer>();
  #touched = new Map<string, readonly [asset: number, key: string]>();
  /** The last ones, also of when nobody looked. */
  #happened: Sentence[] = [];
  #lastHappened = 0;
  #sentHappened = 0;
  /** Frames of the states as all viewers have them. */
  readonly #sent = new Map<string, string>();
  #site: { version: number; frame: string } | undefined;
  #sentSite = '';
  #lastRequest = 0;
  #isTicking = false;
  #isSoon = false;
  #unlisten: (() => void) | undefined;

  constructor(stage: Stage) {
    this.#stage = stage;
    this.#boot = Math.floor(stage.clock.random() * 2 ** 48).toString(36);
    stage.requests.onHappened((happened) => {
      this.#happened.push({ ...happened, id: ++this.#lastHappened });
      if (this.#happened.length > MAX_SENTENCES) this.#happened.shift();
      this.#sendSoon();
    });
  }

  /** Responds with the stream. Beyond `MAX_VIEWERS` the new viewer replaces the one that has read nothing for longest. */
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
    const nowMs = this.#stage.clock.monotonicMs();
    if (this.#viewers.size >= MAX_VIEWERS) this.#evict(nowMs);
    // Present viewers get their news first: from here on all viewers have the same.
    this.#send();
    const viewer = new Viewer(response, nowMs, asset, key);
    this.#viewers.add(viewer);
    response.once('close', () => this.#leave(viewer));
    if (this.#viewers.size === 1) this.#listen();
    this.#begin(viewer, seenBy(request.headers['last-event-id'], this.#boot));
    if (!this.#isTicking) this.#tickLater();
  }

  #begin(viewer: Viewer, seen: Seen): void {
    const stage = this.#stage;
    const frames = [frame('hello', { boot: this.#boot, url: stage.url }), this.#siteFrame()];
    const series = stage.values.series().slice(0, MAX_SERIES);
    const lines = series.map(({ asset, key }) => seriesLine(stage, asset, key));
    frames.push(frame('series', lines));
    for (const [name, text] of this.#stateFrames()) {
      this.#sent.set(name, text);
      frames.push(text);
    }
    const { asset, key } = viewer;
    if (asset !== undefined) {
      const points = stage.values.list(asset, key).slice(-MAX_POINTS);
      frames.push(
        frame('points', { asset, key, points: points.map(({ timestampMs, value }) => [timestampMs, value]) }),
      );
    }
    const requests = stage.requests.list().slice(-MAX_REQUESTS);
    this.#lastRequest = Math.max(this.#lastRequest, requests.at(-1)?.id ?? 0);
    const newRequests = requests.filter(({ id }) => id > seen.request);
    const newSentences = this.#happened.filter(({ id }) => id > seen.sentence);
    frames.push(frame('requests', newRequests), frame('happened', newSentences));
    writeFrames(viewer.response, `${frames.join('')}${this.#chartFrame(viewer)}${this.#tick()}`);
  }

  #evict(nowMs: number): void {
    const idlest = idlestOf(this.#viewers, nowMs);
    if (!idlest) return;
    this.#leave(idlest);
    idlest.evict();
  }

  #listen(): void {
    const { values, requests } = this.#stage;
    this.#lastRequest = requests.list().at(-1)?.id ?? 0;
    this.#sentHappened = this.#lastHappened;
    this.#sentSite = this.#siteFrame();
    this.#unlisten = values.onRecord((asset, posted) => this.#note(asset, posted));
  }

  #leave(viewer: Viewer): void {
    this.#viewers.delete(viewer);
    if (this.#viewers.size > 0) return;
    this.#unlisten?.();
    this.#touched.clear();
    this.#site = undefined;
    this.#sent.clear();
  }

  #note(asset: number, posted: readonly PostedSeries[]): void {
    for (const { key, points } of posted) {
      if (this.#touched.size < MAX_SERIES) this.#touched.set(`${asset} ${key}`, [asset, key]);
      for (const viewer of this.#viewers) {
        if (viewer.asset !== asset || viewer.key !== key) continue;
        viewer.points.push(...points.map(({ timestampMs, value }) => [timestampMs, value] as const));
        if (viewer.points.length > MAX_POINTS) viewer.points = viewer.points.slice(-MAX_POINTS);
      }
    }
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

  /** Somebody did something behind the scenes, perhaps by the page: it is not to wait for the next second. */
  #sendSoon(): void {
    if (this.#isSoon || this.#viewers.size === 0) return;
    this.#isSoon = true;
    this.#stage.later(SOON_MS, async () => {
      this.#isSoon = false;
      this.#send();
    });
  }

  #send(): void {
    if (this.#viewers.size === 0) return;
    const stage = this.#stage;
    const frames: string[] = [];
    const site = this.#siteFrame();
    if (site !== this.#sentSite) frames.push(site);
    this.#sentSite = site;
    const touched = [...this.#touched.values()];
    this.#touched.clear();
    const lines = touched.map(([asset, key]) => seriesLine(stage, asset, key));
    if (lines.length > 0) frames.push(frame('series', lines));
    for (const [name, text] of this.#stateFrames()) {
      if (this.#sent.get(name) === text) continue;
      this.#sent.set(name, text);
      frames.push(text);
    }
    const requests = stage.requests.list().filter(({ id }) => id > this.#lastRequest);
    this.#lastRequest = requests.at(-1)?.id ?? this.#lastRequest;
    if (requests.length > 0) frames.push(frame('requests', requests.slice(-MAX_REQUESTS)));
    const happened = this.#happened.filter(({ id }) => id > this.#sentHappened);
    if (happened.length > 0) frames.push(frame('happened', happened));
    this.#sentHappened = this.#lastHappened;
    const text = frames.join('');
    const tick = this.#tick();
    const nowMs = stage.clock.monotonicMs();
    for (const viewer of this.#viewers) {
      viewer.noteProgress(nowMs);
      writeFrames(viewer.response, `${text}${this.#ownFrames(viewer)}${tick}`);
    }
  }

  #stateFrames(): [name: string, text: string][] {
    return Object.entries(STATES).map(([name, of]) => [name, frame(name as keyof typeof STATES, of(this.#stage))]);
  }

  /** Of the chart that one looks at. */
  #ownFrames(viewer: Viewer): string {
    const { asset, key, points } = viewer;
    if (asset === undefined) return '';
    viewer.points = [];
    return `${this.#chartFrame(viewer)}${points.length === 0 ? '' : frame('points', { asset, key, points })}`;
  }

  /** Its thresholds, where they are others. */
  #chartFrame(viewer: Viewer): string {
    const { asset, key } = viewer;
    if (asset === undefined) return '';
    const chart = frame('chart', chartOf(this.#stage, asset, key));
    if (chart === viewer.chart) return '';
    viewer.chart = chart;
    return chart;
  }

  #siteFrame(): string {
    const { version } = this.#stage.site;
    if (this.#site?.version !== version) this.#site = { version, frame: frame('site', siteOf(this.#stage)) };
    return this.#site.frame;
  }

  #tick(): string {
    const { clock, values, requests } = this.#stage;
    const data = { atMs: clock.wallMs(), speed: clock.speed, received: values.counts().received };
    return `id: ${this.#boot}:${this.#lastRequest}:${this.#sentHappened}\n${frame('tick', { ...data, requests: requests.total })}`;
  }
}

function frame<Name extends keyof SandboxEvents>(name: Name, data: SandboxEvents[Name]): string {
  return eventFrame(name, data);
}

interface Seen {
  request: number;
  sentence: number;
}

/** What an id speaks of, where it is of this sandbox. */
function seenBy(id: string | string[] | undefined, boot: string): Seen {
  const [, of, request, sentence] = /^(\w+):(\d{1,15}):(\d{1,15})$/.exec(String(id ?? '')) ?? [];
  return of === boot ? { request: Number(request), sentence: Number(sentence) } : { request: 0, sentence: 0 };
}
