/**
 * The page's stream (server-sent events): what is new goes to all who look once a second, put together once for all of them, so that many
 * cost what one costs. While nobody looks nothing is put together.
 *
 *   each second: what each subject has that is new ──► everyone who looks at it ──► tick, with an id
 *
 * The id says up to where a viewer has got it: the daemon's boot, the second, the line of the log, the subjects. Who comes again with it
 * (`Last-Event-ID`) gets what it has missed; who comes from another boot, or looks at something else, gets that from its beginning.
 * A crash leaves nothing behind: the next boot has another name.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { eventFrame, idlestOf } from '../../base/inbound/event-stream.ts';
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

type Frames = readonly string[] | Promise<readonly string[]>;

/** One subject of the stream, while somebody looks at it. Frames are written by `frame`. */
export interface Feed {
  /** For one who begins to look; `seen` where it has looked before: what it has got already is left out. */
  begin(seen: Position | undefined): Frames;
  /** What is new since the last call. Called once a second. */
  next(): Frames;
  /** Nobody looks any more. */
  end?(): void;
}

export interface LiveStreamOptions {
  /** `of`: which one, where a topic has several. */
  feed(topic: Topic, of: string | undefined): Feed | undefined;
  hello(): Omit<Hello, 'boot' | 'sight'>;
  /** Where the stream is now. */
  position(): Position;
  clock: Clock;
  log: Logger;
}

/** More would leave no connections for monitoring by the same listener. */
const MAX_VIEWERS = 40;
/** A page looks at three or four. */
const MAX_SUBJECTS = 8;
const TICK_MS = 1_000;
/** What only those who have shown OPS_TOKEN may see. */
const FOR_ALL_SIGHT: ReadonlySet<Topic> = new Set<Topic>(['events', 'deliveries', 'assets', 'log']);

interface Looked {
  feed: Feed;
  /** Under way; one after the other for each subject. */
  telling: Promise<unknown> | undefined;
}

export class LiveStream {
  readonly #options: LiveStreamOptions;
  /** Known to nobody before: two daemons on one machine, or one after the other, are told apart. */
  readonly #boot: string;
  readonly #viewers = new Set<Viewer>();
  /** By subject: `now`, `tag.12`. */
  readonly #looked = new Map<string, Looked>();
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

  /**
   * Responds with the stream, which continues until the viewer leaves. Beyond `MAX_VIEWERS` the newcomer replaces the viewer that has
   * read nothing for longest: forgotten pages must not keep an operator out.
   */
  open(request: IncomingMessage, response: ServerResponse, query: URLSearchParams, sight: Sight): void {
    if (this.#isStopped) {
      response.writeHead(503, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store', 'Retry-After': '10' });
      response.end(`${JSON.stringify({ error: 'the agent is stopping' })}\n`);
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
    if (this.#viewers.size >= MAX_VIEWERS) this.#evict();
    const asked = (query.get('of') ?? 'now').split(',').slice(0, MAX_SUBJECTS);
    const subjects = new Set(asked.filter((subject) => this.#look(subject, sight)));
    const viewer = new Viewer(response, subjects, this.#options.clock.monotonicMs());
    this.#viewers.add(viewer);
    response.once('close', () => this.#leave(viewer));
    void viewer.writeInTurn(frame('hello', { ...this.#options.hello(), boot: this.#boot, sight }));
    void this.#begin(viewer, seenBy(request.headers['last-event-id'], this.#boot));
    this.#tickLater();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
    for (const viewer of this.#viewers) viewer.end();
  }

  /** Opens the subject's feed where nobody looks at it yet. Gives whether there is one for this viewer. */
  #look(subject: string, sight: Sight): boolean {
    const [name, of] = subject.split('.');
    const topic = TOPICS.find((each) => each === name);
    if (topic === undefined || (sight !== 'all' && FOR_ALL_SIGHT.has(topic))) return false;
    if (this.#looked.has(subject)) return true;
    const feed = this.#options.feed(topic, of);
    if (feed) this.#looked.set(subject, { feed, telling: undefined });
    return feed !== undefined;
  }

  /** Ends the viewer that has read nothing for longest; the oldest one if all of them read. */
  #evict(): void {
    const { clock, log } = this.#options;
    const nowMs = clock.monotonicMs();
    const idle = idlestOf(this.#viewers, nowMs);
    if (!idle) return;
    this.#leave(idle);
    idle.evict();
    const count = this.#repeats.note('evicted', nowMs);
    const fields = { event: 'ops.viewer_evicted', viewers: MAX_VIEWERS, count };
    if (count !== undefined) log.info(fields, 'viewer of the page replaced by a new one, maximum number reached');
  }

  #leave(viewer: Viewer): void {
    this.#viewers.delete(viewer);
    const rest = new Set([...this.#viewers].flatMap(({ subjects }) => [...subjects]));
    for (const [subject, { feed }] of this.#looked) {
      if (rest.has(subject)) continue;
      this.#looked.delete(subject);
      feed.end?.();
    }
  }

  async #begin(viewer: Viewer, seen: Seen | undefined): Promise<void> {
    for (const subject of viewer.subjects) {
      const looked = this.#looked.get(subject);
      while (looked?.telling) await looked.telling;
      if (!looked || !this.#viewers.has(viewer)) continue;
      const from = seen?.subjects.has(subject) ? seen : undefined;
      for (const each of await this.#tell(subject, looked, { viewer, from })) await viewer.writeInTurn(each);
    }
    viewer.endBeginning();
    viewer.write(this.#tick(viewer.subjectsText));
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
    // A store that takes its time over one subject does not keep the others back.
    await Promise.all([...this.#looked].map(([subject, looked]) => this.#sendSubject(subject, looked)));
    const ticks = new Map<string, string>();
    const nowMs = this.#options.clock.monotonicMs();
    for (const viewer of this.#viewers) {
      viewer.noteProgress(nowMs);
      const { subjectsText } = viewer;
      const tick = ticks.get(subjectsText) ?? this.#tick(subjectsText);
      ticks.set(subjectsText, tick);
      viewer.write(tick);
    }
  }

  async #sendSubject(subject: string, looked: Looked): Promise<void> {
    const isLookedAt = [...this.#viewers].some((viewer) => viewer.begun.has(subject));
    if (isLookedAt && !looked.telling) await this.#tell(subject, looked);
  }

  /**
   * Tells what is new to those who look already. Who joins them gets its beginning, which this gives, from the same moment: nothing
   * falls between the two, and nothing comes twice.
   */
  async #tell(
    subject: string,
    looked: Looked,
    joining?: { viewer: Viewer; from: Seen | undefined },
  ): Promise<readonly string[]> {
    const looking = [...this.#viewers].filter((viewer) => viewer.begun.has(subject));
    const news = this.#framesOf(subject, (feed) => feed.next());
    const beginning = joining && this.#framesOf(subject, (feed) => feed.begin(joining.from));
    joining?.viewer.begun.add(subject);
    const both = Promise.all([news, beginning ?? []]);
    looked.telling = both;
    const [some, whole] = await both;
    looked.telling = undefined;
    for (const viewer of looking) viewer.write(some.join(''));
    return whole;
  }

  /** A subject that breaks is said and left out; the others go on. */
  async #framesOf(subject: string, ask: (feed: Feed) => Frames): Promise<readonly string[]> {
    const { clock, log } = this.#options;
    const feed = this.#looked.get(subject)?.feed;
    if (!feed) return [];
    try {
      return await ask(feed);
    } catch (error) {
      const count = this.#repeats.note(subject, clock.monotonicMs());
      const fields = { event: 'ops.topic_failed', topic: subject, error: messageOf(error), count };
      if (count !== undefined) log.warn(fields, 'a part of the page cannot be told now');
      return [];
    }
  }

  #tick(subjects: string): string {
    const { clock, position } = this.#options;
    const { second, line } = position();
    const tick = frame('tick', { atMs: clock.wallMs(), monotonicMs: Math.round(clock.monotonicMs()) });
    return `id: ${this.#boot}:${second}:${line}:${subjects}\n${tick}`;
  }
}

export function frame<Name extends LiveEventName>(name: Name, data: LiveEvents[Name]): string {
  return eventFrame(name, data);
}

interface Seen extends Position {
  subjects: ReadonlySet<string>;
}

/** What an id says, where it is of this boot. */
function seenBy(id: string | string[] | undefined, boot: string): Seen | undefined {
  const [of, second, line, subjects = ''] = String(id ?? '').split(':');
  const position = { second: Number(second), line: Number(line) };
  const isWhole = Number.isSafeInteger(position.second) && Number.isSafeInteger(position.line);
  if (of !== boot || !isWhole || position.second < 0 || position.line < 0) return undefined;
  return { ...position, subjects: new Set(subjects.split('+')) };
}
