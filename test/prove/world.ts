import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../src/base/port-claim.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { HungShare } from '../e2e/harness/hung-share.ts';
import { compileDiskLayer } from '../host/faults/disk-fault.ts';
import { SmallDisk } from '../host/faults/small-disk.ts';
import { MemoryBounds } from '../host/memory-bounds.ts';
import { EventsWay } from './events-way.ts';
import { FarEnd } from './far-end.ts';
import { MachineClock } from './machine-clock.ts';
import { Oracle } from './oracle.ts';
import { PlatformWay } from './platform-way.ts';
import { ProvenGateway } from './proven-gateway.ts';
import { RulesWay } from './rules-way.ts';
import { SilentNameServer } from './silent-name-server.ts';
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
/**
 * Lifetime of an access token, in seconds. Shorter than the time for which the process is stopped, so that a token
 * expires meanwhile.
 */
const TOKEN_LIFE_S = 8;
/** Asset of each input, from those that the sandbox knows. */
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
  modbusGateway: 893,
};

/** Share of each input in the total rate. */
const SHARES = { http: 0.4, ndjson: 0.2, line: 0.2, mqtt: 0.05, csv: 0.1 };

/** Result of a clean shutdown. */
export interface Stop {
  /** Description of the active fault. */
  during: string;
  /** Name of the active fault, if any. */
  fault?: string | undefined;
  /** Whether the agent had reported readiness. */
  wasReady: boolean;
  /** Exit status or signal name. */
  exit: number | string;
  ms: number;
  /** Number of tokens still valid. */
  tokens: number;
}

export interface WorldOptions {
  /** Source of randomness for values and faults. */
  chance: () => number;
  /** Additional settings. */
  env?: Record<string, string>;
  /** Time after which a stopping agent is killed, in milliseconds. Default: the unit's timeout. */
  stoppedWithinMs?: number;
  /** Adds NATS, OPC UA and Sparkplug, whose servers need as much CPU as all others together. */
  isWhole?: boolean;
}

/**
 * A gateway and everything around it that may fail: the agent built and limited as it is shipped, on a small disk
 * behind a fault-injecting layer, with its own wall clock and host names, between a platform behind a faulty proxy and
 * a plant with a broker, a device, files and pushing programs. Requires root.
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
  /** Set only in a complete world. */
  nats: NatsWay | undefined;
  opcua: OpcuaWay | undefined;
  sparkplug: SparkplugWay | undefined;
  fresh!: PushWay;
  events!: EventsWay;
  rules!: RulesWay;
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
    // The OPC UA reader process uses about 70 MB of the service's memory.
    const bounds = new MemoryBounds(options.isWhole ? 'bounds-with-commands.conf' : 'bounds.conf');
    this.agent = new ProvenGateway('http://nobody.invalid', {}, bounds);
    this.clock = new MachineClock(this.agent.folder);
    this.#env = {
      POST_INTERVAL: '200ms',
      COMMIT_INTERVAL: '100ms',
      POST_MAX_VALUES: String(MAX_POST),
      POST_CONCURRENCY: String(CONCURRENCY),
      BUFFER_MAX_BYTES: '96MiB',
      // A clock step of two weeks must not make values too old.
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
    // Another input is a line here, its share above, and a file in ways/.
    this.csv = new CsvWay(ASSETS.csv, context);
    this.ways = [push('http'), push('ndjson'), push('line'), this.mqtt, this.modbus, this.csv];
    if (isWhole) {
      this.nats = await NatsWay.open(ASSETS.nats, context, farEnd);
      this.ways.push(this.nats);
      this.opcua = await OpcuaWay.open(ASSETS.opcua, context, this.sandbox);
      this.ways.push(this.opcua);
      this.sparkplug = await SparkplugWay.open(ASSETS.sparkplug, context);
      this.ways.push(this.sparkplug);
      this.ways.push(await ModbusWay.openRestricted(agent, ASSETS.modbusGateway, context));
    }
    this.fresh = PushWay.to(agent, 'http', ASSETS.fresh, context, farEnd);
    this.rules = new RulesWay(agent, context, farEnd);
    const port = await freePort();
    this.events = await EventsWay.open(this.sandbox, agent.folder);
    this.#env.WEBHOOK_LISTEN = `127.0.0.1:${port}`;
    this.#env.WEBHOOK_URL = `http://127.0.0.1:${port}/webhook`;
  }

  /** Writes the configuration files, with additional settings `more` and lines of tags.yaml. */
  async configure(more: Record<string, string> = {}, tags = ''): Promise<void> {
    const all = [...this.ways, this.fresh];
    const url = new URL(this.platform.portal.url);
    this.agent.write(`http://${HOST}:${url.port}`, {
      env: { ...this.#env, ...more },
      tags: `sources:\n${all.map((way) => way.sources).join('')}tags:\n${all.map((way) => way.tags).join('')}${this.rules.tags}${tags}`,
      reactions: this.events.reactions + this.rules.reactions,
    });
  }

  /** Whether the platform's name is known. It always is while the name server is silent. */
  names(areKnown: boolean): void {
    this.#areNamesKnown = areKnown;
    this.#writeNames();
  }

  /** Stops the name server from responding. The platform's name is in the hosts file; those of the devices are not. */
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
    // Overwrite the files in place, because they are mounted. Write hosts first, so that a silent name server is never
    // asked for the platform.
    writeFileSync(join(this.agent.folder, 'hosts'), `127.0.0.1 localhost${host}\n`);
    writeFileSync(join(this.agent.folder, 'resolv.conf'), server ? `nameserver ${server.address}\n` : '');
  }

  /** Orders to the layer below the file system; see `disk-layer.c`. */
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

  /** Starts the agent without waiting, because faults may be active. */
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

  /** Makes the agent's next start run as on a rebooted machine. */
  reboot(): void {
    this.#bootOffsetS = this.#bootOffsetS > BOOT_STEP_S ? this.#bootOffsetS - BOOT_STEP_S : MAX_BOOT_OFFSET_S;
  }

  /** Makes the second CSV folder an unresponsive share for the running agent. */
  async hangShare(): Promise<void> {
    if (this.agent.isRunning) this.#share = await HungShare.mount([this.csv.share], this.agent.pid);
  }

  async releaseShare(): Promise<void> {
    await this.#share?.unmount();
    this.#share = undefined;
  }

  /** Stops the OPC UA reader process. It keeps its connections open and reacts only to SIGKILL. */
  async freezeReader(): Promise<void> {
    await this.agent.until(() => readerOf(this.agent.pid) !== undefined, 'the OPC UA reader is running');
    this.#frozenReader = readerOf(this.agent.pid);
    process.kill(this.#frozenReader!, 'SIGSTOP');
  }

  async readerReplaced(): Promise<void> {
    const isReplaced = () => ![undefined, this.#frozenReader].includes(readerOf(this.agent.pid));
    await this.agent.until(isReplaced, 'the frozen OPC UA reader is replaced', 120_000);
  }

  /** Stops the agent as a service manager does. */
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

  /** Starts all producers. */
  produce(perSecond: number): void {
    for (const way of this.ways) way.produce(perSecond * (SHARES[way.name as keyof typeof SHARES] ?? 0.05));
    this.events.produce(2);
    this.rules.produce(5);
  }

  /** Stops all producers and waits until the buffer is empty. */
  async drain(): Promise<void> {
    await Promise.all([...this.ways.map((way) => way.rest()), this.events.rest(), this.rules.rest()]);
    const { agent } = this;
    const left = () => agent.metric('tagferry_buffer_values').catch(() => Number.NaN);
    await agent.until(async () => (await left()) === 0, 'the buffer is empty', 180_000);
    // Values that the device returned in the meantime may still be posted.
    await pause(1_000);
    await agent.until(async () => (await left()) === 0, 'the buffer is empty', 60_000);
  }

  /** Pushes a fresh value and returns the time until it is on the platform, in milliseconds. */
  async freshMs(): Promise<number> {
    const began = performance.now();
    const { timestampMs } = await this.fresh.fresh('a', 180_000);
    const { agent, sandbox } = this;
    await agent.until(
      () => (sandbox.values.list(ASSETS.fresh, 'a').at(-1)?.timestampMs ?? 0) >= timestampMs,
      'a fresh value is on the platform',
      180_000,
    );
    return performance.now() - began;
  }

  async close(): Promise<void> {
    const ended = await Promise.allSettled([...this.ways, this.fresh].map((way) => way.close()));
    await this.events.close();
    await this.rules.close();
    try {
      await this.releaseShare();
      this.restoreNames();
      // A reader that was not replaced keeps the control group busy.
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

/** Returns the process id of the OPC UA reader, a child of the agent. */
function readerOf(agentPid: number): number | undefined {
  try {
    const children = readFileSync(`/proc/${agentPid}/task/${agentPid}/children`, 'utf8').trim().split(' ').map(Number);
    return children.find((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('tagferry-opcua/main.'));
  } catch {
    return undefined;
  }
}
