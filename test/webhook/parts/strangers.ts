import { createConnection, type Socket } from 'node:net';
import { sign } from '../../../src/webhook/signature.ts';
import { anEvent } from './listening.ts';

/** What a test has to know of the tricks. */
export interface Told {
  /** A body was signed and sent as a whole, though with letters of the request changed: chance may have spared what counts. */
  mayArrive(body: string): void;
  /** A whole event was sent without a signature or with a wrong one: the beginning of the answer, `''` where there is none. */
  forged(answer: Promise<string>): void;
}

/** What strangers send to a listener that the internet can reach: shared by the fuzzing test and the kill rounds. */
export class Strangers {
  readonly #port: () => number;
  readonly #random: () => number;
  readonly #secret: string;
  readonly #sockets: Socket[] = [];
  readonly #drips = new Set<NodeJS.Timeout>();
  readonly #told: Partial<Told>;

  /** `random` is seeded, so that a run can be repeated. `secret`: what their signatures are made with, right or wrong. */
  constructor(port: () => number, random: () => number, secret: string, told: Partial<Told> = {}) {
    this.#port = port;
    this.#random = random;
    this.#secret = secret;
    this.#told = told;
  }

  open(): Socket {
    const socket = createConnection({ port: this.#port(), host: '127.0.0.1', allowHalfOpen: true });
    socket.on('error', () => {});
    this.#sockets.push(socket);
    return socket;
  }

  /** One trick, chosen by chance. */
  play(): void {
    this.#tricks[this.#below(this.#tricks.length)]!();
  }

  /** Ends every connection that is still there. */
  leave(): void {
    for (const drip of this.#drips) clearInterval(drip);
    this.#drips.clear();
    for (const socket of this.#sockets.splice(0)) socket.destroy();
  }

  /** A signed request, as text. */
  request(body: string, more = ''): string {
    return this.#unsigned(body, `X-Hub-Signature-Sha256: ${this.#sign(body)}\r\n${more}`);
  }

  #sign(body: string, secret = this.#secret): string {
    return sign(new TextEncoder().encode(body), secret);
  }

  #unsigned(body: string, more = ''): string {
    return `POST /webhook HTTP/1.1\r\nHost: x\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
  }

  /** A whole request whose signature, if any, is not this body's. */
  #forged(signature?: string): void {
    const socket = this.open();
    const answer = new Promise<string>((resolve) => {
      socket.once('data', (chunk) => resolve(chunk.toString('latin1')));
      socket.once('close', () => resolve(''));
    });
    this.#told.forged?.(answer);
    socket.end(this.#unsigned(anEvent(), signature === undefined ? '' : `X-Hub-Signature-Sha256: ${signature}\r\n`));
  }

  readonly #tricks: (() => unknown)[] = [
    () => this.open().write(this.#bytes(3_000)),
    () => this.open().end(this.#bytes(300)),
    () => this.open().write(`POST /webhook HTTP/1.1\r\n${'X-A: b\r\n'.repeat(this.#below(5_000))}`),
    () => this.open().write(`POST /webhook HTTP/1.1\r\nX-A: ${'b'.repeat(this.#below(200_000))}`),
    () => this.open().write(`POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: ${this.#below(2 ** 31)}\r\n\r\n`),
    () => this.open().write('POST /webhook HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n'),
    () => this.open().write('POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n'),
    () =>
      this.open().write('POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n'),
    () => this.open().write(`GET ${'/'.repeat(this.#below(10_000))} HTTP/1.1\r\nHost: x\r\n\r\n`),
    () => this.open().write('POST //\\[::%zz/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n'),
    () => this.open().write('CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n'),
    () => this.open().write('POST /webhook HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n'),
    () => this.open().destroy(),
    // In the middle of a request: gone, or half closed.
    () => {
      const socket = this.open();
      const part = this.#part(this.request(anEvent()));
      socket.write(part, () => socket.destroy());
    },
    () => this.open().end(this.#part(this.request(anEvent()))),
    () => {
      const body = anEvent();
      this.#told.mayArrive?.(body);
      const broken = Buffer.from(this.request(body));
      for (let i = 0; i < 3; i++) broken[this.#below(broken.length)] = this.#below(256);
      return this.open().end(broken);
    },
    // Events without a fault, but for who says so.
    () => this.#forged(this.#sign(anEvent())),
    () => this.#forged(this.#sign(anEvent(), `${this.#secret}.`)),
    () => this.#forged(`sha256=${'0'.repeat(64)}`),
    () => this.#forged('sha256='),
    () => this.#forged(),
    // Without waiting for any answer.
    () => this.open().write('GET /webhook HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(this.#below(60))),
    () => this.#drip('POST /webhook HTTP/1.1\r\nHost: x\r\nX-Slow: '),
    () =>
      this.#drip(
        `POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-Sha256: sha256=${'0'.repeat(64)}\r\nContent-Length: 5000\r\n\r\n`,
      ),
  ];

  /** A byte now and then. */
  #drip(beginning: string): void {
    const socket = this.open();
    socket.write(beginning);
    const drip = setInterval(() => socket.writable && socket.write('x'), 20 + this.#below(200));
    this.#drips.add(drip);
    socket.on('close', () => clearInterval(drip));
  }

  #part(text: string): string {
    return text.slice(0, this.#below(text.length));
  }

  #below(bound: number): number {
    return Math.floor(this.#random() * bound);
  }

  #bytes(most: number): Uint8Array {
    return Uint8Array.from({ length: this.#below(most) }, () => this.#below(256));
  }
}
