import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { promisify } from 'node:util';

const BLOCK = 4096;
/** Size of an atomic write of a disk and of flash, in bytes. */
export const SECTOR = 512;
export const FLASH_PAGE = 4096;
const NBDMAGIC = 0x4e42444d41474943n;
const IHAVEOPT = 0x49484156454f5054n;
const REQUEST = 0x25609513;
const REPLY = 0x67446698;
const OPTION = { exportName: 1, abort: 2, info: 6, go: 7 };
const REPLY_TYPE = { ack: 1, info: 3, unsupported: 0x80000001 };
const COMMAND = { read: 0, write: 1, disconnect: 2, flush: 3 };
/** HAS_FLAGS, SEND_FLUSH. */
const FLAGS = 1 | 4;

interface Write {
  offset: number;
  bytes: Buffer;
}

/** Disk content after a cut: blocks by number, on top of the backing file. */
export interface DiskImage {
  file: string;
  blocks: Map<number, Buffer>;
  fates: Fates;
}

/** What a cut did to unflushed writes. */
export interface Fates {
  lost: number;
  kept: number;
  /** Number of writes of which only some sectors were kept. */
  torn: number;
}

/**
 * A network block device (newstyle protocol) that keeps writes in memory until a flush makes them durable. `cut`
 * discards unflushed writes, or keeps random ones, torn at sectors, because disks write in their own order. The
 * backing file is never written, so that each run begins with the same disk.
 */
export class NbdDisk {
  readonly socketPath: string;
  readonly #path: string;
  readonly #atomBytes: number;
  flushes = 0;
  /** Called before each write and flush while something is unflushed. Returns `true` to cut the power at this moment. */
  isOver: ((step: 'write' | 'flush') => boolean | Promise<boolean>) | undefined;
  readonly #file: number;
  readonly #bytes: number;
  readonly #durable = new Map<number, Buffer>();
  /** Content as seen by the machine: blocks with unflushed writes. */
  #seen = new Map<number, Buffer>();
  #unflushed: Write[] = [];
  #hasPower = true;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  /** `atomBytes` is the atomic write size. */
  constructor(file: string, socketPath: string, atomBytes = SECTOR) {
    this.#path = file;
    this.#atomBytes = atomBytes;
    this.#file = openSync(file, 'r');
    this.#bytes = fstatSync(this.#file).size;
    this.socketPath = socketPath;
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => {}).on('close', () => this.#sockets.delete(socket));
      void this.#serve(new Reading(socket), socket).catch(() => socket.destroy());
    });
  }

  async start(): Promise<void> {
    this.#server.listen(this.socketPath);
    await once(this.#server, 'listening');
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
    closeSync(this.#file);
  }

  /** Stops accepting and responding to requests. */
  powerOff(): void {
    this.#hasPower = false;
  }

  /**
   * Restores the power. Without `chance`, unflushed writes are lost. With it, a third of them survive completely, and
   * another third partly.
   */
  cut(chance?: () => number): Fates {
    for (const socket of this.#sockets) socket.destroy();
    const fates = this.#decide(this.#durable, chance);
    this.#forget();
    this.#hasPower = true;
    return fates;
  }

  /** Returns the content that a cut at this moment would leave. The disk continues. */
  imageOfCut(chance?: () => number): DiskImage {
    const blocks = new Map(this.#durable);
    return { file: this.#path, blocks, fates: this.#decide(blocks, chance) };
  }

  #decide(durable: Map<number, Buffer>, chance?: () => number): Fates {
    const fates: Fates = { lost: 0, kept: 0, torn: 0 };
    for (const write of this.#unflushed) {
      const fate = chance === undefined ? 'lost' : (['lost', 'kept', 'torn'] as const)[Math.floor(chance() * 3)]!;
      fates[fate]++;
      if (fate === 'kept') this.#put(durable, write);
      if (fate === 'torn')
        for (const atom of atomsOf(write, this.#atomBytes)) if (chance!() < 0.5) this.#put(durable, atom);
    }
    return fates;
  }

  #forget(): void {
    this.#unflushed = [];
    this.#seen = new Map();
  }

  async #serve(reading: Reading, socket: Socket): Promise<void> {
    const hello = Buffer.alloc(18);
    hello.writeBigUInt64BE(NBDMAGIC, 0);
    hello.writeBigUInt64BE(IHAVEOPT, 8);
    // FIXED_NEWSTYLE, NO_ZEROES.
    hello.writeUInt16BE(3, 16);
    socket.write(hello);
    await reading.take(4);
    while (!(await this.#option(reading, socket)));
    for (;;) {
      const head = await reading.take(28);
      if (head.readUInt32BE(0) !== REQUEST) throw new Error('no request');
      const type = head.readUInt16BE(6);
      const [offset, length] = [Number(head.readBigUInt64BE(16)), head.readUInt32BE(24)];
      if (type === COMMAND.disconnect) return void socket.end();
      const reply = Buffer.alloc(16);
      reply.writeUInt32BE(REPLY, 0);
      head.copy(reply, 8, 8, 16);
      if (type === COMMAND.read) {
        socket.write(Buffer.concat([reply, this.#read(offset, length)]));
        continue;
      }
      const bytes = type === COMMAND.write ? Buffer.from(await reading.take(length)) : undefined;
      if (this.#unflushed.length > 0 && (await this.isOver?.(bytes ? 'write' : 'flush'))) this.powerOff();
      if (!this.#hasPower) return;
      if (bytes !== undefined) this.#write({ offset, bytes });
      else if (type === COMMAND.flush) this.#flush();
      // EINVAL: no other option is supported.
      else reply.writeUInt32BE(22, 4);
      socket.write(reply);
    }
  }

  /** Returns whether the negotiation is complete. */
  async #option(reading: Reading, socket: Socket): Promise<boolean> {
    const head = await reading.take(16);
    const [option, length] = [head.readUInt32BE(8), head.readUInt32BE(12)];
    await reading.take(length);
    const reply = (type: number, data = Buffer.alloc(0)) => {
      const bytes = Buffer.alloc(20);
      bytes.writeBigUInt64BE(0x3e889045565a9n, 0);
      bytes.writeUInt32BE(option, 8);
      bytes.writeUInt32BE(type, 12);
      bytes.writeUInt32BE(data.length, 16);
      socket.write(Buffer.concat([bytes, data]));
    };
    const size = Buffer.alloc(10);
    size.writeBigUInt64BE(BigInt(this.#bytes), 0);
    size.writeUInt16BE(FLAGS, 8);
    if (option === OPTION.exportName) {
      socket.write(size);
      return true;
    }
    if (option === OPTION.abort) throw new Error('the client went');
    if (option !== OPTION.go && option !== OPTION.info) {
      reply(REPLY_TYPE.unsupported);
      return false;
    }
    reply(REPLY_TYPE.info, Buffer.concat([Buffer.alloc(2), size]));
    reply(REPLY_TYPE.ack);
    return option === OPTION.go;
  }

  #block(number: number, of = this.#seen): Buffer {
    const known = of.get(number) ?? this.#durable.get(number);
    if (known !== undefined) return known;
    const bytes = Buffer.alloc(BLOCK);
    readSync(this.#file, bytes, 0, BLOCK, number * BLOCK);
    return bytes;
  }

  #read(offset: number, length: number): Buffer {
    const into = Buffer.alloc(length);
    for (const { block, from, to, at } of piecesOf(offset, length)) this.#block(block).copy(into, at, from, to);
    return into;
  }

  #put(into: Map<number, Buffer>, { offset, bytes }: Write): void {
    for (const { block, from, to, at } of piecesOf(offset, bytes.length)) {
      const next = Buffer.from(this.#block(block, into));
      bytes.copy(next, from, at, at + to - from);
      into.set(block, next);
    }
  }

  #write(write: Write): void {
    this.#unflushed.push(write);
    this.#put(this.#seen, write);
  }

  #flush(): void {
    this.flushes++;
    for (const [block, bytes] of this.#seen) this.#durable.set(block, bytes);
    this.#forget();
  }
}

/** Writes the disk content to a file. */
export async function writeImage({ file, blocks }: DiskImage, to: string): Promise<void> {
  await promisify(execFile)('cp', ['--sparse=always', '--reflink=auto', file, to]);
  const handle = openSync(to, 'r+');
  try {
    for (const [block, bytes] of blocks) writeSync(handle, bytes, 0, BLOCK, block * BLOCK);
  } finally {
    closeSync(handle);
  }
}

function* atomsOf({ offset, bytes }: Write, atomBytes: number): Generator<Write> {
  for (let at = 0; at < bytes.length; at += atomBytes)
    yield { offset: offset + at, bytes: bytes.subarray(at, at + atomBytes) };
}

function piecesOf(offset: number, length: number): { block: number; from: number; to: number; at: number }[] {
  const pieces = [];
  for (let at = 0; at < length; ) {
    const block = Math.floor((offset + at) / BLOCK);
    const from = (offset + at) % BLOCK;
    const to = Math.min(BLOCK, from + length - at);
    pieces.push({ block, from, to, at });
    at += to - from;
  }
  return pieces;
}

/** Reads an exact number of bytes from a socket. */
class Reading {
  #chunks: Buffer[] = [];
  #length = 0;
  #wake: (() => void) | undefined;
  #over = false;

  constructor(socket: Socket) {
    socket.on('data', (chunk: Buffer) => {
      this.#chunks.push(chunk);
      this.#length += chunk.length;
      this.#wake?.();
    });
    socket.on('close', () => {
      this.#over = true;
      this.#wake?.();
    });
  }

  async take(count: number): Promise<Buffer> {
    while (this.#length < count) {
      if (this.#over) throw new Error('the connection is over');
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const all = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks);
    this.#chunks = [all.subarray(count)];
    this.#length -= count;
    return all.subarray(0, count);
  }
}
