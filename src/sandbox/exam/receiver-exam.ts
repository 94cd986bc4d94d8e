import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { type Clock, systemClock } from '../../base/clock.ts';
import { httpSender, type SendWebhook, signatureHeaders, type WebhookPost } from '../webhooks/sender.ts';
import { isRight, TAMPERING_NAMES, TAMPERINGS, tampered, type Verdict } from '../webhooks/tampering.ts';
import type { Mark } from './mark.ts';
import { sampleEvents } from './sample-events.ts';

export interface ReceiverUnderExam {
  url: string;
  /** The secret that it knows as the webhook's. */
  secret: string;
  /** How long it may take, in milliseconds: as long as the platform waits, 10 s unless given. */
  patienceMs?: number;
  /** PEM of an authority that its certificate is signed by. */
  certificateAuthority?: string;
}

type Answers = (number | string)[];
type Step = [id: string, section: string, requirement: string, verdict: Verdict, run: () => Promise<Answers>];

/** As many as the platform has under way at once. */
const AT_ONCE = 8;
const HANGING = 20;
const LARGE_BYTES = 500_000;

/**
 * Puts a webhook's receiver through what section 6 and 7 ask of it, and gives its mark for each requirement. What it is sent are events that
 * never happened: a receiver that acts on events will act on these.
 */
export async function examineReceiver(receiver: ReceiverUnderExam, clock: Clock = systemClock): Promise<Mark[]> {
  const exam = new ReceiverExam(receiver, clock);
  const marks: Mark[] = [];
  for (const [id, section, requirement, verdict, run] of exam.steps()) {
    const answers = await run();
    const wrong = answers.filter((answer) => !isRight(verdict, answer));
    const seen = [...new Set(wrong.length > 0 ? wrong : answers)].join(', ');
    marks.push({ id, section, requirement, state: wrong.length > 0 ? 'broken' : 'held', seen });
  }
  return marks;
}

class ReceiverExam {
  readonly #receiver: ReceiverUnderExam;
  readonly #clock: Clock;
  readonly #send: SendWebhook;
  readonly #samples = sampleEvents();
  #serial = 0;

  constructor(receiver: ReceiverUnderExam, clock: Clock) {
    this.#receiver = receiver;
    this.#clock = clock;
    this.#send = httpSender(receiver.patienceMs ?? 10_000, receiver.certificateAuthority);
  }

  steps(): Step[] {
    const take = (texts: string[]) => this.#sendAll(texts.map((text) => this.#signed(text)));
    return [
      ['genuine', '6.1', 'takes what is signed rightly', 'take', () => take([this.#event()])],
      ['types', '6.3', 'takes each of the 23 event types', 'take', () => take([...this.#samples.values()])],
      ['times', '6.2', 'takes times with and without offset', 'take', () => take(this.#times())],
      [
        'spelling',
        '6.2',
        'takes both spellings of occurred_at',
        'take',
        () => take([this.#event(), this.#event().replace('"occurred_at"', '"occured_at"')]),
      ],
      [
        'raw-bytes',
        '6.1',
        'checks the bytes as they came, not as it would write them',
        'take',
        () => take(this.#odd()),
      ],
      ['large', '10.2', 'takes an event of 500 kB', 'take', () => take([this.#event('x'.repeat(LARGE_BYTES))])],
      ...TAMPERING_NAMES.filter((name) => !['duplicate', 'reordered', 'delayed'].includes(name)).map((name): Step => {
        const { verdict, does, section } = TAMPERINGS[name];
        const requirement = { take: 'takes', refuse: 'refuses', either: 'answers' }[verdict];
        const post = () => tampered(name, this.#signed(this.#event()));
        return [name, section, `${requirement}: ${does}`, verdict, () => this.#sendAll([post()])];
      }),
      [
        'empty',
        '7',
        'refuses: no body, signed with another secret',
        'refuse',
        () => this.#sendAll([this.#emptyForged()]),
      ],
      ['duplicate', '6.1', 'confirms a delivery that comes again', 'take', () => this.#twice()],
      ['reordered', '6.1', 'takes events whatever their order', 'take', () => take(this.#backwards())],
      [
        'delayed',
        '6.1',
        'takes what comes after three days of retries',
        'take',
        () => take([this.#event('', -3 * 86_400_000)]),
      ],
      [
        'at-once',
        '6.1',
        `takes ${AT_ONCE} deliveries at once`,
        'take',
        () => Promise.all(Array.from({ length: AT_ONCE }, () => this.#send(this.#signed(this.#event())))),
      ],
      ['hanging', '6.1', `answers while ${HANGING} others never end`, 'take', () => this.#besideHanging()],
      ['after-all', '6.1', 'still takes what is signed rightly after all that', 'take', () => take([this.#event()])],
    ];
  }

  async #sendAll(posts: readonly WebhookPost[]): Promise<Answers> {
    const answers: Answers = [];
    for (const post of posts) answers.push(await this.#send(post));
    return answers;
  }

  async #twice(): Promise<Answers> {
    const post = this.#signed(this.#event());
    return this.#sendAll([post, post]);
  }

  #signed(text: string): WebhookPost {
    const { url, secret } = this.#receiver;
    const body = Buffer.from(text, 'utf8');
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'tagferry-sandbox',
      ...signatureHeaders(body, secret),
    };
    return { url, body, headers };
  }

  #emptyForged(): WebhookPost {
    return tampered('forged', this.#signed(''));
  }

  /** An event like no other, so that nothing is taken for a repetition. */
  #event(description = '', agoMs = 0): string {
    const at = new Date(this.#clock.wallMs() + agoMs).toISOString();
    const asset = {
      id: 881,
      href: 'https://platform.example/v1/assets/881',
      serial_number: `E${++this.#serial}`,
      description,
    };
    return JSON.stringify({ event_type: 'asset_updated', occurred_at: at, content: { asset } });
  }

  #times(): string[] {
    const spelled = ['2026-11-22T10:00:00.000Z', '2026-11-22T10:00:00', '2026-11-22T12:00:00+02:00'];
    return spelled.map((time) => this.#event().replace(/"occurred_at":"[^"]*"/, `"occurred_at":"${time}"`));
  }

  /** JSON that is written otherwise than any serializer would: spaces, escapes, numbers. */
  #odd(): string[] {
    const event = this.#event();
    return [
      event.replaceAll(':', ' : '),
      event.replaceAll('/', '\\/'),
      event.replace('881', '881.0'),
      event.replace('"asset_updated"', '"\\u0061sset_updated"'),
      `${event}\n`,
      this.#event('Ablaß, 20 °C, 水'),
    ];
  }

  /** The newest first. */
  #backwards(): string[] {
    return [0, 1, 2, 3, 4].map((minutes) => this.#event('', -minutes * 60_000));
  }

  /** Senders that begin a delivery and never end it hold no other up. */
  async #besideHanging(): Promise<Answers> {
    const sockets = Array.from({ length: HANGING }, () => this.#beginAndHang());
    try {
      await this.#clock.sleep(200);
      return await this.#sendAll([this.#signed(this.#event()), this.#signed(this.#event())]);
    } finally {
      for (const socket of sockets) socket.destroy();
    }
  }

  #beginAndHang(): Socket {
    const { body, headers } = this.#signed(this.#event());
    const url = new URL(this.#receiver.url);
    const isTls = url.protocol === 'https:';
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const port = Number(url.port || (isTls ? 443 : 80));
    const ca = this.#receiver.certificateAuthority;
    const socket = isTls
      ? connectTls({ host, port, servername: host, ...(ca === undefined ? {} : { ca }) })
      : connect({ host, port });
    socket.on('error', () => {});
    const lines = Object.entries({ host: url.host, ...headers, 'content-length': String(body.length) });
    socket.write(
      `POST ${url.pathname}${url.search} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`,
    );
    socket.write(body.subarray(0, 10));
    return socket;
  }
}
