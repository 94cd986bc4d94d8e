import { createConnection, type Socket } from 'node:net';
import { sign } from '../../../../src/webhook/signature.ts';
import { anEvent } from './listening.ts';

/** Called for requests whose effect a test must track. */
export interface SentRequests {
  /** A signed request was sent with changed bytes, possibly outside its body and signature. */
  mayArrive(body: string): void;
  /** An event was sent without a valid signature. `answer` is the beginning of the response, or empty without one. */
  forged(answer: Promise<string>): void;
}

/** Sends random malicious requests to a public listener. Used by the fuzzing test and the kill rounds. */
export class Strangers {
  readonly #port: () => number;
  readonly #random: () => number;
  readonly #secret: string;
  readonly #sockets: Socket[] = [];
  readonly #drips = new Set<NodeJS.Timeout>();
  readonly #sent: Partial<SentRequests>;

  /** `random` is seeded, so that a run can be repeated. `secret` is the signature key. */
  constructor(port: () => number, random: () => number, secret: string, sent: Partial<SentRequests> = {}) {
    this.#port = port;
    this.#random = random;
    this.#secret = secret;
    this.#sent = sent;
  }

  open(): Socket {
    const socket = createConnection({ port: this.#port(), host: '127.0.0.1', allowHalfOpen: true });
    socket.on('error', () => {});
    this.#sockets.push(socket);
    return socket;
  }

  /** Sends a random request. */
  play(): void {
    this.#tricks[this.#below(this.#tricks.length)]!();
  }

  /** Closes all connections. */
  leave(): void {
    for (const drip of this.#drips) clearInterval(drip);
    this.#drips.clear();
    for (const socket of this.#sockets.splice(0)) socket.destroy();
  }

  /** Returns a signed request as text. */
  request(body: string, more = ''): string {
    return this.#unsigned(body, `X-Hub-Signature-Sha256: ${this.#sign(body)}\r\n${more}`);
  }

  #sign(body: string, secret = this.#secret): string {
    return sign(new TextEncoder().encode(body), secret);
  }

  #unsigned(body: string, more = ''): string {
    return `POST /webhook HTTP/1.1\r\nHost: x\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
  }

  /** Sends a complete request without a valid signature. */
  #forged(signature?: string): void {
    const socket = this.open();
    const answer = new Promise<string>((resolve) => {
      socket.once('data', (chunk) => resolve(chunk.toString('latin1')));
      socket.once('close', () => resolve(''));
    });
    this.#sent.forged?.(answer);
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
    // The connection is closed, or half closed, during a request.
    () => {
      const socket = this.open();
      const part = this.#part(this.request(anEvent()));
      socket.write(part, () => socket.destroy());
    },
    () => this.open().end(this.#part(this.request(anEvent()))),
    () => {
      const body = anEvent();
      this.#sent.mayArrive?.(body);
      const broken = Buffer.from(this.request(body));
      for (let i = 0; i < 3; i++) broken[this.#below(broken.length)] = this.#below(256);
      return this.open().end(broken);
    },
    // Valid events with an invalid or missing signature.
    () => this.#forged(this.#sign(anEvent())),
    () => this.#forged(this.#sign(anEvent(), `${this.#secret}.`)),
    () => this.#forged(`sha256=${'0'.repeat(64)}`),
    () => this.#forged('sha256='),
    () => this.#forged(),
    // Pipelined requests, without reading responses.
    () => this.open().write('GET /webhook HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(this.#below(60))),
    () => this.#drip('POST /webhook HTTP/1.1\r\nHost: x\r\nX-Slow: '),
    () =>
      this.#drip(
        `POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-Sha256: sha256=${'0'.repeat(64)}\r\nContent-Length: 5000\r\n\r\n`,
      ),
  ];

  /** Sends one byte at a time. */
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
