import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { contentOf } from '../process/event-plant.ts';
import { wholeLines } from '../whole-lines.ts';
import { Loop, pause } from './ways/way.ts';

const SETTLED_WITHIN_MS = 120_000;
const SILENT_EVENTS = 40;

export interface EventVerdict {
  sent: number;
  /** Answered 204. */
  acknowledged: number;
  /** Acknowledged, and the reaction has left no line. */
  missing: number;
  invented: number;
  /** Ran more than once: only where something failed. */
  repeated: number;
}

/** Webhook events: a 204 is an obligation, the journal that the reaction writes is the judge. */
export class EventsWay {
  reactions: string;
  readonly #sandbox: Sandbox;
  readonly #journal: string;
  readonly #sent = new Set<number>();
  readonly #loop = new Loop(async () => void this.#send());
  #serial = 0;
  #read = 0;

  /** Receives what a second rule posts. */
  readonly #receiver = createServer((request, response) => {
    request.resume();
    if (this.#isSilent) this.#unanswered.add(response);
    else response.writeHead(204).end();
  });
  readonly #unanswered = new Set<ServerResponse>();
  #isSilent = false;

  static async open(sandbox: Sandbox, folder: string): Promise<EventsWay> {
    const way = new EventsWay(sandbox, folder);
    way.#receiver.listen(0, '127.0.0.1');
    await once(way.#receiver, 'listening');
    const { port } = way.#receiver.address() as AddressInfo;
    way.reactions += `  - name: forward-it\n    on: threshold_reached\n    max_age: 30d\n    do: [{ post: "http://127.0.0.1:${port}/" }]\n`;
    return way;
  }

  // The platform's retries are days apart, and its clock is moved: no event is too old for the judge.
  private constructor(sandbox: Sandbox, folder: string) {
    this.#sandbox = sandbox;
    this.#journal = join(folder, 'reactions-ran');
    writeFileSync(this.#journal, '');
    this.reactions = `reactions:\n  - name: note-it\n    on: threshold_reached\n    max_age: 30d\n    do: [{ run: [/bin/sh, -c, 'echo "$TAGFERRY_VALUE" >> ${this.#journal}'] }]\n`;
  }

  produce(perSecond: number): void {
    this.#loop.start(1000 / perSecond);
  }

  async rest(): Promise<void> {
    await this.#loop.end();
  }

  async close(): Promise<void> {
    await this.rest().catch(() => {});
    this.silence(false);
    this.#receiver.closeAllConnections();
    await new Promise((resolve) => this.#receiver.close(resolve));
  }

  /** Whether the receiver of the second rule accepts requests and never responds; more of them than the agent runs actions at once. */
  silence(isSilent: boolean): void {
    this.#isSilent = isSilent;
    if (isSilent) {
      for (let i = 0; i < SILENT_EVENTS; i++) this.#send();
      return;
    }
    for (const response of this.#unanswered) response.writeHead(204).end();
    this.#unanswered.clear();
  }

  /** Resolves when an event that is sent now has run the rule of the journal. */
  async reacts(): Promise<void> {
    const end = performance.now() + SETTLED_WITHIN_MS;
    const number = this.#send();
    while (number === undefined || !this.#lines().includes(number)) {
      if (performance.now() > end) throw new Error(`event ${number} has run no reaction`);
      await pause(100);
    }
  }

  /** Lets the platform's retries come due until every delivery was taken and every reaction has run, or nothing moves any more, and counts. */
  async judge(withinMs = SETTLED_WITHIN_MS): Promise<EventVerdict> {
    // As long as one after the other has run all is well: commands take their time where many wait for a core.
    let [left, movedMs] = [Number.POSITIVE_INFINITY, performance.now()];
    const isOver = () => {
      const { sent, acknowledged, missing } = this.#count();
      const open = sent - acknowledged + missing;
      if (open < left) [left, movedMs] = [open, performance.now()];
      return open === 0 || performance.now() - movedMs > withinMs;
    };
    while (!isOver()) {
      this.#sandbox.clock.advance(5_000);
      await pause(100);
    }
    const verdict = this.#count();
    this.#read = this.#lines().length;
    this.#sent.clear();
    return verdict;
  }

  #send(): number | undefined {
    // The webhook exists once the agent has registered it.
    if (this.#sandbox.webhooks().length === 0) return undefined;
    const number = ++this.#serial;
    this.#sent.add(number);
    this.#sandbox.announcer.announce({
      type: 'threshold_reached',
      audience: () => true,
      content: () => contentOf(number, true),
    });
    return number;
  }

  #count(): EventVerdict {
    const times = new Map<number, number>();
    for (const number of this.#lines().slice(this.#read)) times.set(number, (times.get(number) ?? 0) + 1);
    const taken = new Set(
      this.#sandbox
        .deliveries()
        .filter(({ status }) => status === 'delivered')
        .map(({ payload }) => numberOf(payload)),
    );
    const verdict = { sent: this.#sent.size, acknowledged: 0, missing: 0, invented: 0, repeated: 0 };
    for (const number of this.#sent) {
      if (!taken.has(number)) continue;
      verdict.acknowledged++;
      if (!times.has(number)) verdict.missing++;
    }
    for (const [number, count] of times) {
      if (number > this.#serial || !(number >= 1)) verdict.invented++;
      verdict.repeated += this.#sent.has(number) ? count - 1 : count;
    }
    return verdict;
  }

  #lines(): number[] {
    return wholeLines(this.#journal).map(Number);
  }
}

function numberOf(payload: string): number {
  return (JSON.parse(payload) as { content: { data: { value: number } } }).content.data.value;
}
