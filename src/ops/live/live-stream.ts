/**
 * Page stream (server-sent events). Updates are generated once per second for all viewers of a subject, and only while
 * the subject has viewers.
 *
 *     every second: updates of each subject ──► its viewers ──► tick with an ID
 *
 * The ID contains a viewer's position: the agent's boot ID, second, log line and subjects. A viewer that reconnects
 * with the ID (`Last-Event-ID`) receives what it missed. After an agent restart or a change of subjects, it receives
 * everything from the beginning. No state survives a crash.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { eventFrame, idlestOf, MAX_UNREAD_BYTES, StreamReader, writeFrames } from '../../base/inbound/event-stream.ts';
import type { Logger } from '../../base/logger.ts';
import { Repeats } from '../../base/repeats.ts';
import { type Hello, type LiveEventName, type LiveEvents, type Sight, TOPICS, type Topic } from './live-events.ts';

/** Position of a viewer in the stream. */
interface Position {
  /** Number of seconds since startup. */
  second: number;
  /** Number of log lines since startup. */
  line: number;
}

type Frames = readonly string[] | Promise<readonly string[]>;

/** Generates the events of one subject while it has viewers. Frames are created by `frame`. */
export interface Feed {
  /** Returns the initial frames for a viewer. With `seen`, omits the data that the viewer already has. */
  begin(seen: Position | undefined): Frames;
  /** Returns the updates since the previous call. Called once per second. */
  next(): Frames;
  /** Called when the last viewer leaves. */
  end?(): void;
}

export interface LiveStreamOptions {
  /** `of`: identifier within the topic, if it has several feeds. */
  feed(topic: Topic, of: string | undefined): Feed | undefined;
  hello(): Omit<Hello, 'boot' | 'sight'>;
  /** Current position of the stream. */
  position(): Position;
  clock: Clock;
  log: Logger;
}

/** Maximum number of viewers, so that connections remain for monitoring. */
const MAX_VIEWERS = 40;
/** Maximum number of subjects per viewer. A page uses three or four. */
const MAX_SUBJECTS = 8;
const TICK_MS = 1_000;
/** Topics that require OPS_TOKEN. */
const FOR_ALL_SIGHT: ReadonlySet<Topic> = new Set<Topic>(['events', 'deliveries', 'assets', 'log']);

interface Looked {
  feed: Feed;
  /** Pending update. Updates of a subject are serialized. */
  telling: Promise<unknown> | undefined;
}

export class LiveStream {
  readonly #options: LiveStreamOptions;
  /** Random ID, different for each agent and after each restart. */
  readonly #boot: string;
  readonly #viewers = new Set<Viewer>();
  /** Open feeds by subject: `now`, `tag.12`. */
  readonly #looked = new Map<string, Looked>();
  readonly #repeats = new Repeats();
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(options: LiveStreamOptions) {
    this.#options = options;
    this.#boot = Math.floor(options.clock.random() * 2 ** 48).toString(36);
  }

  /** Number of viewers. */
  get viewers(): number {
    return this.#viewers.size;
  }

  /**
   * Responds with the stream, which continues until the viewer disconnects. Above `MAX_VIEWERS`, a new viewer replaces
   * the one that has been idle the longest, so that forgotten pages do not lock out operators.
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
      // Disable response buffering in nginx.
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

  /** Opens the feed for a subject on first use. Returns whether this viewer may use it. */
  #look(subject: string, sight: Sight): boolean {
    const [name, of] = subject.split('.');
    const topic = TOPICS.find((each) => each === name);
    if (topic === undefined || (sight !== 'all' && FOR_ALL_SIGHT.has(topic))) return false;
    if (this.#looked.has(subject)) return true;
    const feed = this.#options.feed(topic, of);
    if (feed) this.#looked.set(subject, { feed, telling: undefined });
    return feed !== undefined;
  }

  /**
   * Disconnects the viewer that has not read anything for the longest time, or the oldest viewer if all of them are
   * reading.
   */
  #evict(): void {
    const { clock, log } = this.#options;
    const nowMs = clock.monotonicMs();
    const idle = idlestOf(this.#viewers, nowMs);
    if (!idle) return;
    this.#leave(idle);
    idle.evict();
    const count = this.#repeats.note('evicted', nowMs);
    const fields = { event: 'ops.viewer_evicted', viewers: MAX_VIEWERS, count };
    if (count !== undefined)
      log.info(fields, 'maximum number of viewers reached, disconnected the longest-idle viewer');
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
    // A slow store delays only the subject that reads from it.
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
   * Sends updates to the current viewers and returns the initial frames for a new viewer. Updates and frames refer to
   * the same moment, so that the new viewer neither misses nor repeats updates.
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

  /** Returns the frames for a subject. Logs an error and omits the subject if it fails. */
  async #framesOf(subject: string, ask: (feed: Feed) => Frames): Promise<readonly string[]> {
    const { clock, log } = this.#options;
    const feed = this.#looked.get(subject)?.feed;
    if (!feed) return [];
    try {
      return await ask(feed);
    } catch (error) {
      const count = this.#repeats.note(subject, clock.monotonicMs());
      const fields = { event: 'ops.topic_failed', topic: subject, error: messageOf(error), count };
      if (count !== undefined) log.warn(fields, 'failed to update a section of the page');
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

/** Parses an event ID. Returns `undefined` if it belongs to another boot. */
function seenBy(id: string | string[] | undefined, boot: string): Seen | undefined {
  const [of, second, line, subjects = ''] = String(id ?? '').split(':');
  const position = { second: Number(second), line: Number(line) };
  const isWhole = Number.isSafeInteger(position.second) && Number.isSafeInteger(position.line);
  if (of !== boot || !isWhole || position.second < 0 || position.line < 0) return undefined;
  return { ...position, subjects: new Set(subjects.split('+')) };
}

/** Amount of initial data after which the stream waits for the viewer, in bytes. */
const PAUSE_BYTES = 256 * 1024;

/** Open page: a response that continues until one side closes it. */
export class Viewer extends StreamReader {
  /** Subjects such as `now` and `tag.12`. */
  readonly subjects: ReadonlySet<string>;
  /** Subjects as written in stream IDs. */
  readonly subjectsText: string;
  /** Subjects whose initial frames have been generated. Later updates are sent to the viewer. */
  readonly begun = new Set<string>();
  /** Updates held until the initial frames have been written. */
  #held: string[] | undefined = [];
  #heldLength = 0;

  constructor(response: ServerResponse, subjects: ReadonlySet<string>, nowMs: number) {
    super(response, nowMs);
    this.subjects = subjects;
    this.subjectsText = [...subjects].join('+');
  }

  write(frames: string): void {
    if (!this.#held) {
      writeFrames(this.response, frames);
      return;
    }
    this.#held.push(frames);
    this.#heldLength += frames.length;
    if (this.#heldLength > MAX_UNREAD_BYTES) this.response.destroy();
  }

  /** Writes initial frames. Resolves when the viewer can receive more data. */
  async writeInTurn(frames: string): Promise<void> {
    writeFrames(this.response, frames);
    const { response } = this;
    if (response.writableLength < PAUSE_BYTES || response.destroyed) return;
    await new Promise<void>((resolve) => {
      response.once('drain', resolve);
      response.once('close', resolve);
    });
  }

  /** Marks the initial frames as written and sends the held updates. */
  endBeginning(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    writeFrames(this.response, held.join(''));
  }

  end(): void {
    this.response.end();
  }
}
