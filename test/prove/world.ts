import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { compileDiskLayer } from '../faults/disk-fault.ts';
import { SmallDisk } from '../faults/small-disk.ts';
import { HungShare } from '../process/hung-share.ts';
import { MemoryBounds } from '../process/memory-bounds.ts';
import { SilentNameServer } from '../process/silent-name-server.ts';
import { EventsWay } from './events-way.ts';
import { FarEnd } from './far-end.ts';
import { MachineClock } from './machine-clock.ts';
import { Oracle } from './oracle.ts';
import { PlatformWay } from './platform-way.ts';
import { ProvenGateway } from './proven-gateway.ts';
import { CsvWay } from './ways/csv-way.ts';
import { ModbusWay } from './ways/modbus-way.ts';
import { MqttWay } from './ways/mqtt-way.ts';
import { NatsWay } from './ways/nats-way.ts';
import { OpcuaWay } from './ways/opcua-way.ts';
import { PushWay } from './ways/push-way.ts';
import { SparkplugWay } from './ways/sparkplug-way.ts';
import { pause, Readings, type Way } from './ways/way.ts';

const HOST = 'platform.prove';
const MAX_POST = 500;
const CONCURRENCY = 4;
const DISK_MB = 192;
const MAX_BOOT_OFFSET_S = 100_000_000;
const BOOT_STEP_S = 10_000_000;
/** Of an access token, in seconds: so that one dies in its sleep. */
const TOKEN_LIFE_S = 8;
/** Of those that the platform of the sandbox knows: each way has its own. */
const ASSETS = {
  http: 881,
  ndjson: 882,
  line: 883,
  mqtt: 884,
  modbus: 885,
  csv: 886,
  fresh: 887,
  nats: 888,
  opcua: 889,
  sparkplug: 890,
};

/** By all ways together, a second; how much of it comes which way. */
const SHARES = { http: 0.4, ndjson: 0.2, line: 0.2, mqtt: 0.05, csv: 0.1 };

/** How an orderly stop went. */
export interface Stop {
  /** What held meanwhile, in words. */
  during: string;
  /** The name of that fault, where there was one. */
  fault?: string | undefined;
  /** It had said that it was ready. */
  wasReady: boolean;
  /** Its exit status, or the signal that ended it. */
  exit: number | string;
  ms: number;
  /** Tokens that live on. */
  tokens: number;
}

export interface WorldOptions {
  /** A seed of its values and of what its faults choose. */
  chance: () => number;
  /** More settings. */
  env?: Record<string, string>;
  /** One that is asked to end and has not is killed then; the unit's time without. */
  stoppedWithinMs?: number;
  /** Adds NATS, OPC UA and Sparkplug, whose servers cost as much as all others. */
  isWhole?: boolean;
}

/**
 * A gateway with everything around it that may fail: the daemon built and bounded as it is shipped, on a small disk of its own behind a
 * layer that takes orders, with a wall clock and names of its own, between a platform with somebody on the way to it and a plant
 * with a broker, a device, files and programs that push. Needs root.
 */
export class World {
  readonly oracle = new Oracle();
  readonly sandbox: Sandbox;
  readonly farEnd: FarEnd;
  readonly platform: PlatformWay;
  readonly disk: SmallDisk;
  readonly clock: MachineClock;
  readonly agent: ProvenGateway;
  readonly chance: () => number;
  ways: Way[] = [];
  mqtt!: MqttWay;
  modbus!: ModbusWay;
  csv!: CsvWay;
  /** Of a whole world alone. */
  nats: NatsWay | undefined;
  opcua: OpcuaWay | undefined;
  sparkplug: SparkplugWay | undefined;
  fresh!: PushWay;
  events!: EventsWay;
  readonly stops: Stop[] = [];
  readonly #library: string;
  readonly #env: Record<string, string>;
  readonly #stoppedWithinMs: number | undefined;
  #frozenReader: number | undefined;
  #share: HungShare | undefined;
  #nameServer: SilentNameServer | undefined;
  #areNamesKnown = true;
  /** Offset of the monotonic clock, in seconds. A reboot lowers it, because that clock starts at 0 with the machine. */
  #bootOffsetS = MAX_BOOT_OFFSET_S;

  private constructor(sandbox: Sandbox, options: WorldOptions, library: string) {
    this.sandbox = sandbox;
    this.chance = options.chance;
    this.#library = library;
    this.#stoppedWithinMs = options.stoppedWithinMs;
    this.farEnd = new FarEnd(sandbox, MAX_POST, CONCURRENCY);
    this.platform = new PlatformWay(sandbox.url, this.farEnd);
    this.disk = new SmallDisk(DISK_MB);
    // The program that reads OPC UA is some 70 MB of the service.
    const bounds = new MemoryBounds(options.isWhole ? 'bounds-with-commands.conf' : 'bounds.conf');
    this.agent = new ProvenGateway('http://nobody.invalid', {}, bounds);
    this.clock = new MachineClock(this.agent.folder);
    this.#env = {
      POST_INTERVAL: '200ms',
      COMMIT_INTERVAL: '100ms',
      POST_MAX_VALUES: String(MAX_POST),
      POST_CONCURRENCY: String(CONCURRENCY),
      BUFFER_MAX_BYTES: '96MiB',
      // Two weeks in one step make nothing old.
      BUFFER_MAX_AGE: '24h',
      WEBHOOK_POLL: '5s',
      STATE_DIR: this.disk.state,
      ...options.env,
    };
  }

  static async open(options: WorldOptions): Promise<World> {
    const sandbox = new Sandbox({
      accessTokenLifeS: TOKEN_LIFE_S,
      limits: { perUser: 0, perApiKey: 0, perAddress: 0 },
      maxValues: 20_000_000,
    });
    await sandbox.start();
    const world = new World(sandbox, options, compileDiskLayer());
    await world.platform.portal.start();
    await world.#openWays(options.isWhole ?? false);
    world.names(true);
    world.orders('');
    await world.configure();
    return world;
  }

  async #openWays(isWhole: boolean): Promise<void> {
    const { agent, oracle, farEnd } = this;
    const context = { oracle, readings: new Readings(Date.now() - 3_600_000, this.chance), folder: agent.folder };
    this.mqtt = await MqttWay.open(ASSETS.mqtt, context, farEnd);
    this.modbus = await ModbusWay.open(agent, ASSETS.modbus, context);
    const push = (name: 'http' | 'ndjson' | 'line') => PushWay.to(agent, name, ASSETS[name], context, farEnd);
    // Another way in is a line here, its share above, and a file in ways/.
    this.csv = new CsvWay(ASSETS.csv, context);
    this.ways = [push('http'), push('ndjson'), push('line'), this.mqtt, this.modbus, this.csv];
    if (isWhole) {
      this.nats = await NatsWay.open(ASSETS.nats, context, farEnd);
      this.ways.push(this.nats);
      this.opcua = await OpcuaWay.open(ASSETS.opcua, context);
      this.ways.push(this.opcua);
      this.sparkplug = await SparkplugWay.open(ASSETS.sparkplug, context);
      this.ways.push(this.sparkplug);
    }
    this.fresh = PushWay.to(agent, 'http', ASSETS.fresh, context, farEnd);
    const port = await freePort();
    this.events = await EventsWay.open(this.sandbox, agent.folder);
    this.#env.WEBHOOK_LISTEN = `127.0.0.1:${port}`;
    this.#env.WEBHOOK_URL = `http://127.0.0.1:${port}/webhook`;
  }

  /** Writes the files; `more` settings on top, or further lines of tags.yaml. */
  async configure(more: Record<string, string> = {}, tags = ''): Promise<void> {
    const all = [...this.ways, this.fresh];
    const url = new URL(this.platform.portal.url);
    this.agent.write(`http://${HOST}:${url.port}`, {
      env: { ...this.#env, ...more },
      tags: `sources:\n${all.map((way) => way.sources).join('')}tags:\n${all.map((way) => way.tags).join('')}${tags}`,
      reactions: this.events.reactions,
    });
  }

  /** Whether the platform's name is known. It always is while the name server is silent. */
  names(areKnown: boolean): void {
    this.#areNamesKnown = areKnown;
    this.#writeNames();
  }

  /** The name server stops responding. The platform's name is in the hosts file, those of the devices are not. */
  async silenceNames(): Promise<void> {
    this.#nameServer = await SilentNameServer.open();
    this.#writeNames();
  }

  restoreNames(): void {
    this.#nameServer?.close();
    this.#nameServer = undefined;
    this.#writeNames();
  }

  /** Resolves when lookups of devices hang and a fresh value has reached the platform over a new connection. */
  async freshBesideLookups(): Promise<void> {
    await this.agent.until(() => (this.#nameServer?.asked.size ?? 0) >= 2, 'names of devices are looked up');
    this.platform.portal.cut();
    this.farEnd.cutOff();
    await this.freshMs();
  }

  #writeNames(): void {
    const server = this.#nameServer;
    const host = this.#areNamesKnown || server ? ` ${HOST}` : '';
    // In place: the files themselves are mounted. Hosts first: a silent server is never asked for the platform.
    writeFileSync(join(this.agent.folder, 'hosts'), `127.0.0.1 localhost${host}\n`);
    writeFileSync(join(this.agent.folder, 'resolv.conf'), server ? `nameserver ${server.address}\n` : '');
  }

  /** What the layer below the daemon does; see `disk-layer.c`. */
  orders(text: string): void {
    writeFileSync(join(this.agent.folder, 'orders'), `${text}\n`);
  }

  /** Syncs and bytes written since the first start. */
  diskCounts(): { syncs: number; bytes: number } {
    const file = join(this.agent.folder, 'counts');
    if (!existsSync(file)) return { syncs: 0, bytes: 0 };
    const bytes = readFileSync(file);
    return { syncs: Number(bytes.readBigUInt64LE(8)), bytes: Number(bytes.readBigUInt64LE(16)) };
  }

  /** Starts the daemon without waiting: what befalls it may go on. */
  launch(): void {
    const { agent, clock } = this;
    const file = (name: string) => join(agent.folder, name);
    const ownNames =
      'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/resolv.conf && shift && exec env LD_PRELOAD="$LAYERS" "$@"';
    agent.surroundings = [
      ...['unshare', '--time', '--fork', '--kill-child', '--monotonic', String(this.#bootOffsetS), '--'],
      ...['unshare', '--mount', '--propagation', 'private', 'sh', '-c'],
      ownNames,
      file('hosts'),
      file('resolv.conf'),
    ];
    agent.launch({
      ...clock.environment,
      LAYERS: `${this.#library}:${clock.library}`,
      DISK_LAYER_PATH: this.disk.state,
      DISK_LAYER_ORDERS: file('orders'),
      DISK_LAYER_COUNTS: file('counts'),
    });
  }

  /** The next start of the agent is on a machine that has restarted. */
  reboot(): void {
    this.#bootOffsetS = this.#bootOffsetS > BOOT_STEP_S ? this.#bootOffsetS - BOOT_STEP_S : MAX_BOOT_OFFSET_S;
  }

  /** The second CSV folder is a share that does not respond, for the agent that runs now. */
  async hangShare(): Promise<void> {
    if (this.agent.isRunning) this.#share = await HungShare.mount([this.csv.share], this.agent.pid);
  }

  async releaseShare(): Promise<void> {
    await this.#share?.unmount();
    this.#share = undefined;
  }

  /** Stops the program that reads OPC UA, as a debugger or a full memory does: no signal ends it, and it closes nothing. */
  async freezeReader(): Promise<void> {
    await this.agent.until(() => readerOf(this.agent.pid) !== undefined, 'the OPC UA reader runs');
    this.#frozenReader = readerOf(this.agent.pid);
    process.kill(this.#frozenReader!, 'SIGSTOP');
  }

  async readerReplaced(): Promise<void> {
    const isReplaced = () => ![undefined, this.#frozenReader].includes(readerOf(this.agent.pid));
    await this.agent.until(isReplaced, 'the frozen OPC UA reader is replaced', 120_000);
  }

  /** An orderly stop, as a service manager has it. */
  async stop(during: string, fault?: string): Promise<Stop> {
    const began = performance.now();
    const wasReady = this.agent.hasBeenReady;
    const exit = await this.agent.stop(this.#stoppedWithinMs);
    if (exit === 'SIGKILL') this.farEnd.crashed();
    const { alive } = this.sandbox.tokens.counts();
    const stop = { during, fault, wasReady, exit, ms: Math.round(performance.now() - began), tokens: alive };
    this.stops.push(stop);
    return stop;
  }

  async ready(): Promise<void> {
    const { agent } = this;
    const isReady = async () => (await agent.call(agent.ops, '/readyz').catch(() => undefined))?.status === 200;
    await agent.until(isReady, 'the agent is ready', 90_000);
  }

  /** All ways begin to give values. */
  produce(perSecond: number): void {
    for (const way of this.ways) way.produce(perSecond * (SHARES[way.name as keyof typeof SHARES] ?? 0.05));
    this.events.produce(2);
  }

  /** All ways end, and nothing is left in the buffer. */
  async drain(): Promise<void> {
    await Promise.all([...this.ways.map((way) => way.rest()), this.events.rest()]);
    const { agent } = this;
    const left = () => agent.metric('tagferry_buffer_values').catch(() => Number.NaN);
    await agent.until(async () => (await left()) === 0, 'the buffer is empty', 180_000);
    // What the device said meanwhile is on its way out.
    await pause(1_000);
    await agent.until(async () => (await left()) === 0, 'the buffer is empty', 60_000);
  }

  /** Until a fresh value has got through, in ms. */
  async freshMs(): Promise<number> {
    const began = performance.now();
    const { timestampMs } = await this.fresh.fresh('a', 180_000);
    const { agent, sandbox } = this;
    await agent.until(
      () => (sandbox.values.list(ASSETS.fresh, 'a').at(-1)?.timestampMs ?? 0) >= timestampMs,
      'a fresh value gets through',
      180_000,
    );
    return performance.now() - began;
  }

  async close(): Promise<void> {
    const ended = await Promise.allSettled([...this.ways, this.fresh].map((way) => way.close()));
    await this.events.close();
    try {
      await this.releaseShare();
      this.restoreNames();
      // A reader that was never replaced holds the control group.
      if (this.#frozenReader !== undefined && readerOf(this.agent.pid) === this.#frozenReader)
        process.kill(this.#frozenReader, 'SIGKILL');
      await this.agent.dispose();
    } finally {
      await this.platform.portal.stop();
      await this.sandbox.stop();
      this.disk.dispose();
    }
    for (const one of ended) if (one.status === 'rejected') throw one.reason;
  }
}

/** Process id of the program that reads OPC UA, a child of the agent. */
function readerOf(agentPid: number): number | undefined {
  try {
    const children = readFileSync(`/proc/${agentPid}/task/${agentPid}/children`, 'utf8').trim().split(' ').map(Number);
    return children.find((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('opcua'));
  } catch {
    return undefined;
  }
}
