/**
 * The disk under the machines of `scripts/prove machine`. It must lose unflushed writes; otherwise, power cuts prove
 * nothing.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';
import { NbdDisk, SECTOR } from './nbd-disk.ts';

const BYTES = 64 * 1024;
let folder: string;
let disk: NbdDisk;
let clients: Client[];

/** The client side of the protocol, as in qemu. */
class Client {
  readonly #socket: Socket;
  #bytes = Buffer.alloc(0);
  #wake = () => {};

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
      this.#wake();
    });
    socket.on('error', () => {});
  }

  static async open(path: string): Promise<Client> {
    const client = new Client(connect(path));
    clients.push(client);
    await client.#take(18);
    const hello = Buffer.alloc(20);
    hello.writeUInt32BE(3, 0);
    hello.writeBigUInt64BE(0x49484156454f5054n, 4);
    // The option with which old clients select a disk; the response contains the size and flags.
    hello.writeUInt32BE(1, 12);
    client.#socket.write(hello);
    const export_ = await client.#take(10);
    expect(Number(export_.readBigUInt64BE(0))).toBe(BYTES);
    return client;
  }

  async #take(count: number): Promise<Buffer> {
    while (this.#bytes.length < count) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const taken = this.#bytes.subarray(0, count);
    this.#bytes = this.#bytes.subarray(count);
    return taken;
  }

  send(type: number, offset = 0, length = 0, data = Buffer.alloc(0)): void {
    const head = Buffer.alloc(28);
    head.writeUInt32BE(0x25609513, 0);
    head.writeUInt16BE(type, 6);
    head.writeBigUInt64BE(BigInt(offset), 16);
    head.writeUInt32BE(length, 24);
    this.#socket.write(Buffer.concat([head, data]));
  }

  async answer(length = 0): Promise<Buffer> {
    const reply = await this.#take(16);
    expect(reply.readUInt32BE(4)).toBe(0);
    return await this.#take(length);
  }

  async write(offset: number, text: string, length: number): Promise<void> {
    this.send(1, offset, length, Buffer.alloc(length, text));
    await this.answer();
  }

  async flush(): Promise<void> {
    this.send(3);
    await this.answer();
  }

  async read(offset: number, length: number): Promise<string> {
    this.send(0, offset, length);
    return (await this.answer(length)).toString('latin1');
  }

  close(): void {
    this.#socket.destroy();
  }
}

const client = () => Client.open(disk.socketPath);

beforeEach(async () => {
  clients = [];
  folder = mkdtempSync(join(tmpdir(), 'tagferry-disk-'));
  writeFileSync(join(folder, 'image'), Buffer.alloc(BYTES, '.'));
  disk = new NbdDisk(join(folder, 'image'), join(folder, 'socket'));
  await disk.start();
});
afterEach(async () => {
  for (const one of clients) one.close();
  await disk.stop();
  rmSync(folder, { recursive: true, force: true });
});

it('an nbd disk keeps flushed writes across a power cut, loses all others, and leaves the backing file unchanged', async () => {
  const before = await client();
  await before.write(1_000, 'a', 5_000);
  await before.flush();
  await before.write(4_000, 'b', 2_000);
  expect(await before.read(3_999, 2)).toBe('ab');
  expect(disk.cut()).toEqual({ lost: 1, kept: 0, torn: 0 });
  const after = await client();
  expect(await after.read(0, BYTES)).toBe(`${'.'.repeat(1_000)}${'a'.repeat(5_000)}${'.'.repeat(BYTES - 6_000)}`);
  expect(disk.cut()).toEqual({ lost: 0, kept: 0, torn: 0 });
  expect(readFileSync(join(folder, 'image'), 'latin1')).toBe('.'.repeat(BYTES));
});

it('an nbd disk randomly keeps some unflushed writes, some of them torn at sector boundaries', async () => {
  const before = await client();
  const length = 8 * SECTOR;
  for (let write = 0; write < 8; write++) await before.write(write * length, 'abcdefgh'[write]!, length);
  const clock = new ManualClock(0, 1);
  const fates = disk.cut(() => clock.random());
  expect(fates.lost + fates.kept + fates.torn).toBe(8);
  const after = await client();
  const found = { lost: 0, kept: 0, torn: 0 };
  for (let write = 0; write < 8; write++) {
    const sectors = (await after.read(write * length, length)).match(/.{512}/gs)!;
    const whole = 'abcdefgh'[write]!.repeat(SECTOR);
    const kept = sectors.filter((sector) => sector === whole).length;
    // A sector is written completely or not at all.
    expect(sectors.filter((sector) => sector === '.'.repeat(SECTOR))).toHaveLength(8 - kept);
    found[kept === 0 ? 'lost' : kept === 8 ? 'kept' : 'torn']++;
  }
  expect(found).toEqual(fates);
  for (const fate of ['lost', 'kept', 'torn'] as const) expect(fates[fate]).toBeGreaterThan(0);
});

it('an nbd disk loses unflushed writes if the power fails before a flush, and never completes the flush', async () => {
  const before = await client();
  await before.write(0, 'a', SECTOR);
  await before.flush();
  const asked: string[] = [];
  disk.isOver = (step) => asked.push(step) === 2;
  await before.write(0, 'b', SECTOR);
  await before.write(SECTOR, 'b', SECTOR);
  const gone = new Promise<string>((resolve) => {
    disk.isOver = (step) => {
      resolve(step);
      return true;
    };
  });
  before.send(3);
  expect(await gone).toBe('flush');
  expect(asked).toEqual(['write']);
  expect(disk.cut()).toEqual({ lost: 2, kept: 0, torn: 0 });
  const after = await client();
  expect(await after.read(0, 2 * SECTOR)).toBe(`${'a'.repeat(SECTOR)}${'.'.repeat(SECTOR)}`);
  expect(disk.flushes).toBe(1);
});
