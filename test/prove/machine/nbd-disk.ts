import { once } from 'node:events';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';

const BLOCK = 4096;
const NBDMAGIC = 0x4e42444d41474943n;
const IHAVEOPT = 0x49484156454f5054n;
const REQUEST = 0x25609513;
const REPLY = 0x67446698;
const OPTION = { exportName: 1, abort: 2, info: 6, go: 7 };
const REPLY_TYPE = { ack: 1, info: 3, unsupported: 0x80000001 };
const COMMAND = { read: 0, write: 1, disconnect: 2, flush: 3 };
/** HAS_FLAGS, SEND_FLUSH, SEND_FUA. */
const FLAGS = 1 | 4 | 8;
const FUA = 1;

/**
 * A disk that keeps its word and no more: a network block device (the protocol of nbd, newstyle) whose writes are in memory until a flush, or
 * their own FUA, makes them durable. `cut` is the plug: what was not flushed is gone, or half of it by chance, as a disk's own order has it.
 * The file below is never written, so that each run begins with the same disk.
 */
export class NbdDisk {
  readonly socketPath: string;
  flushes = 0;
  /** Blocks that cuts have thrown away. */
  dropped = 0;
  readonly #file: number;
  readonly #bytes: number;
  readonly #durable = new Map<number, Buffer>();
  #volatile = new Map<number, Buffer>();
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(file: string, socketPath: string) {
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

  /** Its machine is gone. `keep` says of each block that was not flushed whether the disk had written it by itself. */
  async cut(keep: () => boolean = () => false): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    for (const [block, bytes] of this.#volatile) {
      if (keep()) this.#durable.set(block, bytes);
      else this.dropped++;
    }
    this.#volatile = new Map();
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
      const [flags, type] = [head.readUInt16BE(4), head.readUInt16BE(6)];
      const [offset, length] = [Number(head.readBigUInt64BE(16)), head.readUInt32BE(24)];
      if (type === COMMAND.disconnect) return void socket.end();
      const reply = Buffer.alloc(16);
      reply.writeUInt32BE(REPLY, 0);
      head.copy(reply, 8, 8, 16);
      if (type === COMMAND.read) {
        socket.write(Buffer.concat([reply, this.#read(offset, length)]));
        continue;
      }
      if (type === COMMAND.write) this.#write(offset, await reading.take(length), (flags & FUA) !== 0);
      else if (type === COMMAND.flush) this.#flush();
      // EINVAL: nothing else was offered.
      else reply.writeUInt32BE(22, 4);
      socket.write(reply);
    }
  }

  /** Gives whether the haggling is over. */
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

  #block(number: number): Buffer {
    const known = this.#volatile.get(number) ?? this.#durable.get(number);
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

  #write(offset: number, bytes: Buffer, isDurable: boolean): void {
    for (const { block, from, to, at } of piecesOf(offset, bytes.length)) {
      const next = Buffer.from(this.#block(block));
      bytes.copy(next, from, at, at + to - from);
      if (isDurable) {
        this.#durable.set(block, next);
        this.#volatile.delete(block);
      } else this.#volatile.set(block, next);
    }
  }

  #flush(): void {
    this.flushes++;
    for (const [block, bytes] of this.#volatile) this.#durable.set(block, bytes);
    this.#volatile.clear();
  }
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

/** Bytes of a socket, so many at a time. */
class Reading {
  readonly #socket: Socket;
  #chunks: Buffer[] = [];
  #length = 0;
  #wake: (() => void) | undefined;
  #over = false;

  constructor(socket: Socket) {
    this.#socket = socket;
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
        this.#socket.resume();
      });
    }
    const all = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks);
    this.#chunks = [all.subarray(count)];
    this.#length -= count;
    return all.subarray(0, count);
  }
}
