import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createConnection, type Socket } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { VALUE_TAGS, type ValueCount, ValuePlant } from '../../e2e/harness/value-plant.ts';
import { SmallDisk } from '../../host/faults/small-disk.ts';
import { GatewayProcess } from '../../host/gateway-process.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';

const MAX_SERIES = 3_000;
const MiB = 2 ** 20;
const DISK_MB = 64;
/** Server in place of the platform: hotel portal, proxy, or site gateway. */
const PORTAL_ANSWERS = [
  { status: 200, body: '<html>please sign in</html>', contentType: 'text/html' },
  { status: 200, body: { errors: ['no'] } },
  { status: 202, body: { errors: ['later'] } },
  { status: 207, body: { errors: ['some'] } },
];
const TAGS = `tags:\n${VALUE_TAGS}`;
/** Time limit for draining the buffer after the faults. */
const PEACE_MS = 90_000;

/** Faults of one day, and values counted at the platform. */
export interface HostileDayReport {
  happened: string[];
  count: ValueCount;
}

/**
 * A hostile day, accelerated: gateway faults in an order and combination that depend on a seed, on a small disk and
 * within the shipped memory limits. A plant pushes throughout; at the end, the platform has exactly the acknowledged
 * values. Rejects if the agent exited, was killed, or responded incorrectly; the message includes the day.
 */
export async function liveHostileDay(seed: number, happenings: number): Promise<HostileDayReport> {
  const disk = new SmallDisk(DISK_MB);
  const sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  const day = new HostileDay(seed, sandbox, disk);
  try {
    return await day.live(happenings);
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    throw new Error(`seed ${seed}, after ${day.happened.join(', ')}: ${words}`, { cause: error });
  } finally {
    await day.end();
    await sandbox.stop();
    disk.dispose();
  }
}

class HostileDay {
  readonly happened: string[] = [];
  readonly #chance: ManualClock;
  readonly #sandbox: Sandbox;
  readonly #disk: SmallDisk;
  readonly #agent: GatewayProcess;
  readonly #strangers = new Set<Socket>();
  #plant: ValuePlant | undefined;
  #isFull = false;
  #keys = 0;

  constructor(seed: number, sandbox: Sandbox, disk: SmallDisk) {
    this.#chance = new ManualClock(0, seed);
    this.#sandbox = sandbox;
    this.#disk = disk;
    this.#agent = new GatewayProcess(sandbox.url, { tags: TAGS, env: this.#env() });
  }

  async live(happenings: number): Promise<HostileDayReport> {
    const agent = this.#agent;
    this.#moveClock(0);
    await agent.start(this.#environment());
    this.#plant = new ValuePlant(agent, 5);
    for (const name of this.#order(happenings)) {
      this.happened.push(name);
      await this.#happening[name]!();
      // The pause has a fixed length, during which the plant pushes.
      await new Promise((resolve) => setTimeout(resolve, 50 + this.#upTo(600)));
    }
    this.#leave();
    this.#sandbox.faults.clear();
    await this.#sandbox.goOnline();
    this.#empty();
    await this.#plant.stop();
    await this.#reload(this.#env());
    await agent.until(async () => (await this.#buffered()) === 0, 'the buffer is empty', PEACE_MS);
    return { happened: this.happened, count: this.#plant.count(this.#sandbox.values) };
  }

  async end(): Promise<void> {
    this.#leave();
    await this.#plant?.stop();
    await this.#agent.dispose();
  }

  /** Returns each fault once and further faults at random, in random order. */
  #order(happenings: number): string[] {
    const names = Object.keys(this.#happening);
    const more = Math.max(0, happenings - names.length);
    const order = [...names, ...Array.from({ length: more }, () => names[this.#upTo(names.length)]!)];
    for (let i = order.length - 1; i > 0; i--) {
      const other = this.#upTo(i + 1);
      [order[i], order[other]] = [order[other]!, order[i]!];
    }
    return order;
  }

  readonly #happening: Record<string, () => Promise<unknown> | unknown> = {
    portal: () =>
      this.#sandbox.faults.add({ path: '/v1/assets/*', ...PORTAL_ANSWERS[this.#upTo(4)]!, times: 1 + this.#upTo(20) }),
    'lost answers': () => this.#sandbox.faults.add({ path: '/v1/assets/*', drop: 'after', times: 1 + this.#upTo(5) }),
    outage: () => this.#sandbox.goOffline(this.#chance.random() < 0.5 ? 'refuse' : 'drop'),
    return: () => this.#sandbox.goOnline(),
    'smaller bound': () => this.#reload(this.#env({ BUFFER_MAX_BYTES: '16MiB', MAX_SERIES: '100' })),
    'larger bound': () => this.#reload(this.#env()),
    'hostile files': () => this.#reload(this.#env(), `${TAGS}  X: ${'a'.repeat(200_000)}\n`),
    'unknown series': async () => {
      const values = Array.from({ length: 2_000 }, () => ({ asset: 881, key: `flood.${this.#keys++}`, value: 1 }));
      demand([0, 204, 422, 503], await this.#offer(JSON.stringify({ values })));
    },
    'slow strangers': () => this.#crowd(),
    'kill -9': () => this.#kill(),
    'full disk': () => {
      this.#isFull = true;
      this.#disk.fill();
    },
    'room again': () => this.#empty(),
    'foreign Host': async () => {
      const { status, text } = await this.#ops('/status', { Host: 'evil.example' });
      demand([421], status);
      if (text.includes('"buffer"')) throw new Error('a foreign Host was shown the status');
    },
    'huge body': async () => {
      const bodies = [
        () => Buffer.alloc(9 * MiB, ' '),
        () => '['.repeat(7 * MiB),
        () => `{"values":[${'{},'.repeat(2 * MiB)}{}]}`,
        () => `{"values":${'{"a":'.repeat(MiB)}1${'}'.repeat(MiB)}}`,
      ];
      demand([0, 400, 413, 422, 503], await this.#offer(bodies[this.#upTo(bodies.length)]!()));
    },
    'clock step': () => this.#moveClock(Math.round((this.#chance.random() - 0.5) * 2 * 6 * 3_600_000)),
  };

  #env(more: Record<string, string> = {}): Record<string, string> {
    return {
      POST_INTERVAL: '100ms',
      POST_MAX_VALUES: '200',
      MAX_SERIES: String(MAX_SERIES),
      BUFFER_MAX_BYTES: '32MiB',
      OPS_LISTEN: '127.0.0.1:0',
      STATE_DIR: this.#disk.state,
      ...more,
    };
  }

  #upTo(count: number): number {
    return Math.floor(this.#chance.random() * count);
  }

  /** The file sets the offset of the wall clock; see `moved-clock.mjs`. */
  #moveClock(ms: number): void {
    writeFileSync(join(this.#agent.folder, 'moved'), String(ms));
  }

  #environment(): NodeJS.ProcessEnv {
    return {
      NODE_OPTIONS: `--import=${pathToFileURL(join(import.meta.dirname, 'moved-clock.mjs')).href}`,
      MOVED_CLOCK: join(this.#agent.folder, 'moved'),
    };
  }

  /** Sends a request to the operator listener, whose port changes at each start. */
  #ops(path: string, headers: Record<string, string> = {}): Promise<{ status: number; text: string }> {
    const address = JSON.stringify(this.#agent.logged('ops.listening').at(-1)!.address);
    const port = Number(/(\d{2,5})\D*$/.exec(address)![1]);
    return new Promise((resolve, reject) => {
      request({ host: '127.0.0.1', port, path, headers, agent: false }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
      })
        .on('error', reject)
        .end();
    });
  }

  async #buffered(): Promise<number> {
    const { text } = await this.#ops('/metrics');
    return Number(/^tagferry_buffer_values (\S+)$/m.exec(text)?.[1] ?? Number.NaN);
  }

  /** Response, rejection and reset are all acceptable if the agent survives. */
  async #offer(body: string | Buffer): Promise<number> {
    const headers = { 'Content-Type': 'application/json' };
    const { ingest } = this.#agent;
    const answer = await this.#agent.call(ingest, '/v1/values', { body, headers }).catch(() => undefined);
    return answer?.status ?? 0;
  }

  /** A start on a full disk may wait for space, which is freed here. */
  async #kill(): Promise<void> {
    const agent = this.#agent;
    const ended = await agent.end('SIGKILL');
    if (ended !== 'SIGKILL') throw new Error(`it had ended before, with ${ended}`);
    const count = (event: string) => agent.logged(event).length;
    const before = [count('agent.ready'), count('store.unavailable')] as const;
    agent.launch(this.#environment());
    const isReady = () => count('agent.ready') > before[0];
    await agent.until(
      () => isReady() || count('store.unavailable') > before[1],
      'the agent is ready, or is waiting during startup',
    );
    if (!isReady()) this.#empty();
    await agent.until(isReady, 'the agent is ready');
  }

  async #reload(env: Record<string, string>, tags = TAGS): Promise<void> {
    const agent = this.#agent;
    const told = () => agent.logged('config.reloaded').length + agent.logged('config.refused').length;
    const before = told();
    agent.write(this.#sandbox.url, { env, tags });
    agent.signal('SIGHUP');
    await agent.until(() => told() > before, 'the reload is accepted or rejected');
  }

  #crowd(): void {
    for (const path of [this.#agent.ingest, this.#agent.webhook]) {
      for (let i = 0; i < 40; i++) {
        const socket = createConnection(path);
        this.#strangers.add(socket);
        socket.on('error', () => {}).on('close', () => this.#strangers.delete(socket));
        if (i % 2 === 0) socket.write('POST /v1/values HTTP/1.1\r\nHost: x\r\nContent-Le');
      }
    }
  }

  #leave(): void {
    for (const socket of this.#strangers) socket.destroy();
  }

  #empty(): void {
    if (this.#isFull) this.#disk.free();
    this.#isFull = false;
  }
}

function demand(statuses: readonly number[], status: number): void {
  if (!statuses.includes(status)) throw new Error(`answered ${status}, not one of ${statuses.join(', ')}`);
}
