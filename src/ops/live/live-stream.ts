/**
 * The page's stream (server-sent events): what is new goes to all who look once a second, put together once for all of them, so that many
 * cost what one costs. While nobody looks nothing is put together.
 *
 *   each second: what each topic has that is new ──► everyone who looks at that topic ──► tick, with an id
 *
 * The id says up to where a viewer has got it: the daemon's boot, the second, the line of the log, the topics. Who comes again with it
 * (`Last-Event-ID`) gets what it has missed; who comes from another boot, or looks at another topic, gets that from its beginning.
 * A crash leaves nothing behind: the next boot has another name.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';
import { type Hello, type LiveEventName, type LiveEvents, type Sight, TOPICS, type Topic } from './live-events.ts';
import { Viewer } from './viewer.ts';

/** Up to where a viewer has got the stream. */
interface Position {
  /** Of the daemon's seconds, since its boot. */
  second: number;
  /** Of its log, since its boot. */
  line: number;
}

/** One subject of the stream. Frames are written by `frame`. */
export interface Feed {
  /** For one who begins to look; `seen` where it has looked before: what it has got already is left out. */
  begin(seen: Position | undefined): Promise<readonly string[]> | readonly string[];
  /** What is new since the last call. Called once a second while somebody looks. */
  next(): Promise<readonly string[]> | readonly string[];
}

export interface LiveStreamOptions {
  feeds: Readonly<Record<Topic, Feed>>;
  hello(): Omit<Hello, 'boot' | 'sight'>;
  /** Where the stream is now. */
  position(): Position;
  clock: Clock;
  log: Logger;
}

/** Beyond, who watches the agent by the same listener would find no place. */
const MAX_VIEWERS = 40;
const TICK_MS = 1_000;
/** What only those who have shown OPS_TOKEN may see. */
const FOR_ALL_SIGHT: ReadonlySet<Topic> = new Set<Topic>([]);

export class LiveStream {
  readonly #options: LiveStreamOptions;
  /** Known to nobody before: two daemons on one machine, or one after the other, are told apart. */
  readonly #boot: string;
  readonly #viewers = new Set<Viewer>();
  readonly #busy = new Set<Topic>();
  readonly #repeats = new Repeats();
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(options: LiveStreamOptions) {
    this.#options = options;
    this.#boot = Math.floor(options.clock.random() * 2 ** 48).toString(36);
  }

  /** How many look. */
  get viewers(): number {
    return this.#viewers.size;
  }

  /** Answers a request for the stream; it goes on until the viewer leaves. */
  open(request: IncomingMessage, response: ServerResponse, query: URLSearchParams, sight: Sight): void {
    const asked = new Set((query.get('of') ?? 'now').split(','));
    const topics = new Set(
      TOPICS.filter((topic) => asked.has(topic) && (sight === 'all' || !FOR_ALL_SIGHT.has(topic))),
    );
    if (this.#viewers.size >= MAX_VIEWERS || this.#isStopped) {
      response.writeHead(503, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store', 'Retry-After': '10' });
      response.end(`${JSON.stringify({ error: `${MAX_VIEWERS} look already, which is as many as may` })}\n`);
      return;
    }
    response.writeHead(200, {
      'Content-Type': 'text/event-stream; charset=utf-8',
      'Cache-Control': 'no-store',
      // nginx would keep back what is new until there is much of it.
      'X-Accel-Buffering': 'no',
      'X-Content-Type-Options': 'nosniff',
    });
    if (request.method === 'HEAD') {
      response.end();
      return;
    }
    const viewer = new Viewer(response, topics, sight);
    this.#viewers.add(viewer);
    response.once('close', () => this.#viewers.delete(viewer));
    viewer.write(frame('hello', { ...this.#options.hello(), boot: this.#boot, sight }));
    void this.#begin(viewer, seenBy(request.headers['last-event-id'], this.#boot));
    this.#tickLater();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
    for (const viewer of this.#viewers) viewer.end();
  }

  async #begin(viewer: Viewer, seen: Seen | undefined): Promise<void> {
    for (const topic of viewer.topics) {
      const frames = await this.#framesOf(topic, (feed) => feed.begin(seen?.topics.has(topic) ? seen : undefined));
      viewer.begun.add(topic);
      for (const each of frames) viewer.write(each);
    }
    viewer.write(this.#tick(viewer.topicsText));
  }

  #tickLater(): void {
    if (this.#cancel || this.#isStopped) return;
    this.#cancel = this.#options.clock.after(TICK_MS, () => {
      this.#cancel = undefined;
      if (this.#viewers.size === 0) return;
      this.#tickLater();
      void this.#send();
    });
  }

  async #send(): Promise<void> {
    // A store that takes its time over one topic does not keep the others back.
    await Promise.all(TOPICS.map((topic) => this.#sendTopic(topic)));
    const ticks = new Map<string, string>();
    for (const viewer of this.#viewers) {
      const { topicsText } = viewer;
      const tick = ticks.get(topicsText) ?? this.#tick(topicsText);
      ticks.set(topicsText, tick);
      viewer.write(tick);
    }
  }

  async #sendTopic(topic: Topic): Promise<void> {
    const looking = [...this.#viewers].filter((viewer) => viewer.begun.has(topic));
    if (looking.length === 0 || this.#busy.has(topic)) return;
    this.#busy.add(topic);
    try {
      const frames = (await this.#framesOf(topic, (feed) => feed.next())).join('');
      for (const viewer of looking) viewer.write(frames);
    } finally {
      this.#busy.delete(topic);
    }
  }

  /** A topic that breaks is said and left out; the others go on. */
  async #framesOf(topic: Topic, ask: (feed: Feed) => ReturnType<Feed['next']>): Promise<readonly string[]> {
    const { clock, feeds, log } = this.#options;
    try {
      return await ask(feeds[topic]);
    } catch (error) {
      const count = this.#repeats.note(topic, clock.monotonicMs());
      const fields = { event: 'ops.topic_failed', topic, error: messageOf(error), count };
      if (count !== undefined) log.warn(fields, 'a part of the page cannot be told now');
      return [];
    }
  }

  #tick(topics: string): string {
    const { clock, position } = this.#options;
    const { second, line } = position();
    return `id: ${this.#boot}:${second}:${line}:${topics}\n${frame('tick', { atMs: clock.wallMs() })}`;
  }
}

/** One event as it goes over the wire. JSON has no line feeds of its own. */
export function frame<Name extends LiveEventName>(name: Name, data: LiveEvents[Name]): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

interface Seen extends Position {
  topics: ReadonlySet<string>;
}

/** What an id says, where it is of this boot. */
function seenBy(id: string | string[] | undefined, boot: string): Seen | undefined {
  const [of, second, line, topics = ''] = String(id ?? '').split(':');
  const position = { second: Number(second), line: Number(line) };
  const isWhole = Number.isSafeInteger(position.second) && Number.isSafeInteger(position.line);
  if (of !== boot || !isWhole || position.second < 0 || position.line < 0) return undefined;
  return { ...position, topics: new Set(topics.split('+')) };
}
