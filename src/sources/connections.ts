/**
 * The connections of a listener, so that some who send a byte a second, or nothing, do not keep the others out:
 *
 *   idle ──► sending ──► waiting (for the disk) ──► idle
 *
 * Who sends slower than anybody has to is ended with 408 after a while; where every connection is taken, a newcomer gets
 * the place of the slowest sender, else of the one that is idle longest. Who waits for an answer keeps its place.
 */
import type { Socket } from 'node:net';
import type { Clock } from '../clock.ts';

/** Of the body, in any two looks: the slowest modem link is some times faster. */
export const SLOWEST_BYTES_PER_SECOND = 250;
const LOOK_EVERY_MS = 5_000;
/** Younger than this nobody is slow. */
const GRACE_MS = 1_000;

const TOO_SLOW = 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n';

/** One connection, as decisions see it. */
export interface Line {
  state: 'idle' | 'sending' | 'waiting';
  /** Since when it is in that state. */
  sinceMs: number;
  bytesRead: number;
  /** What it had sent one and two looks ago, or when it began to send. */
  marks: { atMs: number; bytes: number }[];
}

/** Bytes a second since the look before the last; Infinity where it is too young to tell. */
export function rateOf({ marks, bytesRead }: Line, nowMs: number): number {
  const [from] = marks;
  const forMs = from ? nowMs - from.atMs : 0;
  return forMs < GRACE_MS ? Number.POSITIVE_INFINITY : ((bytesRead - from!.bytes) * 1000) / forMs;
}

/** Who makes place for a newcomer; `undefined` where all are at work. */
export function slowestOf<Each extends Line>(lines: Iterable<Each>, nowMs: number): Each | undefined {
  let sender: Each | undefined;
  let lowest = SLOWEST_BYTES_PER_SECOND;
  let idler: Each | undefined;
  for (const line of lines) {
    if (line.state === 'sending') {
      const rate = rateOf(line, nowMs);
      if (rate < lowest) {
        lowest = rate;
        sender = line;
      }
    } else if (line.state === 'idle' && nowMs - line.sinceMs >= GRACE_MS) {
      if (!idler || line.sinceMs < idler.sinceMs) idler = line;
    }
  }
  return sender ?? idler;
}

class OpenLine implements Line {
  readonly socket: Socket;
  state: Line['state'] = 'idle';
  sinceMs: number;
  marks: { atMs: number; bytes: number }[] = [];
  /** Some clients send the next before they have the answer. */
  requests = 0;

  constructor(socket: Socket, nowMs: number) {
    this.socket = socket;
    this.sinceMs = nowMs;
  }

  get bytesRead(): number {
    return this.socket.bytesRead;
  }
}

export class Connections {
  readonly #most: number;
  readonly #clock: Clock;
  readonly #lines = new Map<Socket, OpenLine>();
  readonly #ended: (why: 'slow' | 'replaced') => void;
  #cancel: () => void = () => {};

  /** `ended` is told of each connection that had to go. */
  constructor(most: number, clock: Clock, ended: (why: 'slow' | 'replaced') => void) {
    this.#most = most;
    this.#clock = clock;
    this.#ended = ended;
  }

  start(): void {
    this.#cancel = this.#clock.after(LOOK_EVERY_MS, () => {
      this.#look();
      this.start();
    });
  }

  stop(): void {
    this.#cancel();
  }

  get size(): number {
    return this.#lines.size;
  }

  /** A newcomer. `false` where there is no place for it, and it had better go. */
  open(socket: Socket): boolean {
    const nowMs = this.#clock.monotonicMs();
    if (this.#lines.size >= this.#most) {
      const slowest = slowestOf(this.#lines.values(), nowMs);
      if (!slowest) return false;
      this.#end(slowest, 'replaced');
    }
    this.#lines.set(socket, new OpenLine(socket, nowMs));
    socket.once('close', () => this.#lines.delete(socket));
    return true;
  }

  /** The head of a request has come, its body is to come. */
  sending(socket: Socket): void {
    const line = this.#enter(socket, 'sending');
    if (!line) return;
    line.requests++;
    line.marks = [{ atMs: line.sinceMs, bytes: line.bytesRead }];
  }

  /** All of it has come. */
  waiting(socket: Socket): void {
    this.#enter(socket, 'waiting');
  }

  /** A request is answered. */
  answered(socket: Socket): void {
    const line = this.#lines.get(socket);
    if (line && --line.requests === 0) this.#enter(socket, 'idle');
  }

  #enter(socket: Socket, state: Line['state']): OpenLine | undefined {
    const line = this.#lines.get(socket);
    if (!line) return undefined;
    line.state = state;
    line.sinceMs = this.#clock.monotonicMs();
    return line;
  }

  #look(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const line of [...this.#lines.values()]) {
      if (line.state !== 'sending') continue;
      const isOld = line.marks.length > 1;
      if (isOld && rateOf(line, nowMs) < SLOWEST_BYTES_PER_SECOND) this.#end(line, 'slow');
      else line.marks = [...line.marks.slice(-1), { atMs: nowMs, bytes: line.bytesRead }];
    }
  }

  #end(line: OpenLine, why: 'slow' | 'replaced'): void {
    this.#lines.delete(line.socket);
    if (line.state === 'sending' && line.socket.writable) line.socket.end(TOO_SLOW);
    // It may go on sending for ever.
    line.socket.destroySoon();
    this.#ended(why);
  }
}
