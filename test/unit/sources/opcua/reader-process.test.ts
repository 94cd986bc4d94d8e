import { PassThrough } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { ReaderLine } from '../../../../src/opcua/protocol.ts';
import { handleReaderLines } from '../../../../src/sources/opcua/reader-process.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

const MINUTE_S = 60;
const HEARTBEAT_S = 5;

/** Output of a reader process, and an agent whose disk is full until `makeRoom` is called. */
class Output {
  readonly handled: ReaderLine[] = [];
  isSilent = false;
  readonly ended: Promise<void>;
  readonly #clock = new ManualClock();
  readonly #stream = new PassThrough();
  readonly #room = Promise.withResolvers<void>();

  constructor() {
    this.ended = handleReaderLines(this.#stream, {
      clock: this.#clock,
      handle: async (line) => {
        await this.#room.promise;
        this.handled.push(line);
      },
      silent: () => {
        this.isSilent = true;
      },
    });
    this.ended.catch(() => {});
  }

  async send(line: object): Promise<void> {
    this.#stream.write(`${JSON.stringify(line)}\n`);
    await turn();
  }

  /** Advances the clock by one minute. `isAlive`: whether the process sends heartbeats. */
  async minute(isAlive: boolean): Promise<void> {
    for (let at = 0; at < MINUTE_S; at += HEARTBEAT_S) {
      if (isAlive) await this.send({ alive: true });
      await this.#clock.advance(HEARTBEAT_S * 1_000);
    }
  }

  async makeRoom(): Promise<void> {
    this.#room.resolve();
    this.#stream.end();
    await this.ended;
  }
}

describe('watch of the OPC UA process', () => {
  it('detects a frozen process while its values wait for disk space', async () => {
    const output = new Output();
    await output.send({ values: [[0, 1, 2, 0]] });
    await output.minute(true);
    expect(output.isSilent).toBe(false);
    await output.minute(false);
    expect(output.isSilent).toBe(true);
  });

  it('does not reorder or drop lines that wait', async () => {
    const output = new Output();
    const lines = [{ lost: 1 }, { lost: 2 }, { lost: 3 }];
    for (const line of lines) await output.send(line);
    expect(output.handled).toEqual([]);
    await output.makeRoom();
    expect(output.handled).toEqual(lines);
  });

  it('ends a process that sends values without limit while the disk is full', async () => {
    const output = new Output();
    const values = [[0, 'x'.repeat(1024 * 1024), 2, 0]];
    for (let at = 0; at < 64; at++) await output.send({ values });
    await expect(output.ended).rejects.toThrow('too much unprocessed output');
  });
});
