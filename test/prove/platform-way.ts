import type { IncomingMessage, ServerResponse } from 'node:http';
import { Portal } from '../e2e/harness/portal.ts';
import type { FarEnd } from './far-end.ts';

const PAGE = '<html><title>Guest WLAN</title><form action="/login"><input name="password"></form></html>';
type Answer = (request: IncomingMessage, response: ServerResponse) => void;
const status =
  (code: number, headers: Record<string, string> = {}, body?: string): Answer =>
  (_request, response) =>
    void response.writeHead(code, headers).end(body);
const raw =
  (text: string): Answer =>
  (request) =>
    void request.socket.end(text);
const json = { 'content-type': 'application/json' };

/** 2xx and redirect responses of other servers: a guest network, a proxy, a faulty service. */
const FOREIGN: readonly Answer[] = [
  status(200, { 'content-type': 'text/html' }, PAGE),
  status(200, json, '{"errors":[{"type":"x","message":"y"}]}'),
  status(202, { 'content-length': '0' }),
  status(207, { 'content-type': 'application/xml' }, '<multistatus/>'),
  status(302, { location: 'http://portal.example/login' }),
];
/** Malformed responses. */
const MALFORMED: readonly Answer[] = [
  raw('HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"values"'),
  raw('HTTP/1.1 204\r\ncontent-length: -1\r\n\r\n'),
  raw('\u0000\u0001\u0002 SSH-2.0-OpenSSH_9.2\r\n'),
  raw('HTTP/1.1 999 Whatever\r\n\r\n'),
  raw(`HTTP/1.1 200 OK\r\n${'x-filler: y\r\n'.repeat(20_000)}\r\n`),
  status(200, { ...json, 'content-encoding': 'gzip' }, 'not gzip'),
  status(200, json, '{"access_token":'),
];
const STORM = [401, 402, 403, 404, 429, 500, 502, 503, 504];

/** Faults between the agent and the platform, including its token endpoint. */
export class PlatformWay {
  readonly portal: Portal;
  readonly #farEnd: FarEnd;

  constructor(platformUrl: string, farEnd: FarEnd) {
    this.portal = new Portal(platformUrl);
    this.#farEnd = farEnd;
  }

  /** Ends all faults. */
  async restore(): Promise<void> {
    this.portal.answer = this.portal.spoil = undefined;
    this.portal.cut();
    this.#farEnd.cutOff();
  }

  async refuse(): Promise<void> {
    await this.portal.stop();
    this.#farEnd.cutOff();
  }

  /** Accepts connections without a response. */
  hang(): void {
    this.portal.answer = () => {};
  }

  foreign(kind: number): void {
    this.portal.answer = FOREIGN[kind % FOREIGN.length]!;
  }

  /** Responds with the error page of a guest network whose clock is off by `offsetMs`. */
  foreignDate(offsetMs: number): void {
    this.portal.answer = (request, response) =>
      status(
        503,
        { date: new Date(Date.now() + offsetMs).toUTCString(), 'content-type': 'text/html' },
        PAGE,
      )(request, response);
  }

  malformed(kind: number): void {
    this.portal.answer = MALFORMED[kind % MALFORMED.length]!;
  }

  /** Responds with random error statuses, some with `Retry-After`. */
  storm(chance: () => number): void {
    this.portal.answer = (request, response) => {
      const code = STORM[Math.floor(chance() * STORM.length)]!;
      const wait: Record<string, string> = code === 429 || code === 503 ? { 'retry-after': '1' } : {};
      status(code, { ...json, ...wait }, '{"errors":[{"type":"storm","message":"no"}]}')(request, response);
    };
  }

  /** The platform processes the request, and the connection breaks in the response header. */
  reset(): void {
    this.#spoil((request) => {
      request.socket.write('HTTP/1.1 20');
      setImmediate(() => request.socket.destroy());
    });
  }

  /** The platform processes the request, and the response is lost. */
  swallow(): void {
    this.#spoil(() => {});
  }

  #spoil(instead: (request: IncomingMessage) => void): void {
    this.portal.spoil = (from, request) => {
      if (from.statusCode === 204 && request.url?.endsWith('/values')) this.#farEnd.responseLost();
      instead(request);
    };
  }
}
