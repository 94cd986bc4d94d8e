import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { debianTree } from '../../host/debian-tree.ts';
import { contentOf } from '../../old/webhook/event-plant.ts';
import { ManualClock } from '../../unit/doubles/manual-clock.ts';
import { FarEnd } from '../far-end.ts';
import { Oracle, summed, type Verdict } from '../oracle.ts';
import { PushWay } from '../ways/push-way.ts';
import { Loop, pause, Readings } from '../ways/way.ts';
import { type AfterCut, goOn, type Owed } from './after-cut.ts';
import { HOST, lookOn, TOKEN, UNIT_COMMAND, UNIT_ENVIRONMENT, writeGateway } from './gateway-files.ts';
import { debianKernel, makeImage } from './image.ts';
import type { Cut, Plug } from './moments.ts';
import { MountedMachine } from './mounted-machine.ts';
import { type Forward, forwards, type Mounts, QemuMachine } from './qemu-machine.ts';

const PER_SECOND = 160;
/** Request timeout of a pushing program; an emulated machine responds slowly. */
const PATIENCE_MS = 40_000;
const DRAINED_WITHIN_MS = 600_000;
const EVENT_EVERY_MS = 1_500;
/** Time without progress after which open events count as missing. */
const SILENT_MS = 120_000;
/**
 * Asset whose values remain in the buffer while another asset continues alone. The remainder of each flush is then
 * small, and compaction follows after several flushes.
 */
const STUCK_ASSET = 882;
/** Limits that the file exceeds as soon as pages are free, so that the pages are released immediately. */
const SMALL_BYTES = 16_384;
const BOUND_BYTES = 2 * 2 ** 30;
/** Time between an outage and its end while free pages are released. */
const TURN_MS = 15_000;
/** Time limits for an upgrade and a start. */
const UPGRADE_MS = 40_000;
const STARTING_WRITES = 60;

/** The machine's activity at the time of the cut. */
export const MOMENTS = [
  'ingest',
  'flush',
  'compaction',
  'settlement',
  'event',
  'vacuum',
  'salvage',
  'start',
  'package upgrade',
] as const;
export type Moment = (typeof MOMENTS)[number];
/** Activities that can be inspected without a boot. */
export type Glimpsed = Exclude<Moment, 'start' | 'package upgrade'>;

/** Activities that the store reports itself (watch.mjs). */
const WITHIN: Partial<Record<Moment, RegExp>> = {
  flush: /^flush/,
  compaction: /^compaction/,
  settlement: /^settlement/,
  event: /^(event|reaction)/,
  vacuum: /^vacuum/,
  salvage: /^salvage/,
};

export interface CutsOptions {
  deb: string;
  /** Package of another version, for the upgrade. */
  newer: string;
  seed: number;
  moments: readonly Moment[];
  /** Moments before a cut at which copies of the disk are checked on this machine. */
  glimpses: readonly Glimpsed[];
  mounts: Mounts;
  /** Mounts the disk on this machine instead of booting one: images only, much faster. */
  isHere?: boolean;
  /** Control with `synchronous=NORMAL`. */
  isNormal?: boolean;
  say: (what: string) => void;
}

interface CutRecord extends Cut {
  moment: Moment;
  /** Duration of the next startup. */
  bootMs: number;
  /** How it started after a cut during an upgrade. */
  cameUp?: string;
}

interface GlimpseRecord extends Cut, AfterCut {
  moment: Moment;
}

export interface CutsReport {
  seed: number;
  glimpses: GlimpseRecord[];
  cuts: CutRecord[];
  values: Verdict;
  allowedRepeats: number;
  events: { acknowledged: number; missing: number; repeated: number };
  flushes: number;
  /** Errors of file systems and of the databases, other than those that this test caused. */
  said: string[];
}

/**
 * Cuts the power of a machine repeatedly, while values and events arrive over the network. At a random moment its disks
 * stop responding and qemu is killed. Unflushed writes are lost, except for some sectors. The next boot mounts the
 * disks. At the end, every acknowledged value must be on the platform; otherwise it is counted as missing.
 */
export async function pullPlugs(options: CutsOptions): Promise<CutsReport> {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-plug-'));
  const run = new Cuts(options, folder);
  try {
    return await run.run();
  } finally {
    await run.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

class Cuts {
  readonly #options: CutsOptions;
  readonly #folder: string;
  readonly #chance: ManualClock;
  readonly #oracle = new Oracle();
  readonly #sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 }, maxValues: 20_000_000 });
  readonly #farEnd = new FarEnd(this.#sandbox, 500, 4);
  readonly #readings = new Readings(Date.now() - 3_600_000, () => this.#random());
  readonly #journal: Server;
  /** Numbers of the events whose reactions ran. */
  readonly #ran: number[] = [];
  readonly #sent = new Set<number>();
  #machine!: QemuMachine | MountedMachine;
  #forwards!: Record<'ingest' | 'webhook' | 'ops', Forward>;
  #ways: PushWay[] = [];
  #events: NodeJS.Timeout | undefined;
  #endLead = async () => {};
  readonly #said = new Map<string, number>();

  constructor(options: CutsOptions, folder: string) {
    this.#options = options;
    this.#folder = folder;
    this.#chance = new ManualClock(0, options.seed);
    this.#journal = createServer((request, response) => {
      let body = '';
      request.setEncoding('utf8').on('data', (text: string) => {
        body += text;
      });
      request.on('end', () => {
        this.#ran.push(numberOf(body));
        response.writeHead(204).end();
      });
    });
  }

  #random(): number {
    return this.#chance.random();
  }

  async run(): Promise<CutsReport> {
    const { say, moments, seed } = this.#options;
    await this.#sandbox.start();
    await new Promise<void>((resolve) => this.#journal.listen(0, '127.0.0.1', resolve));
    await this.#install();
    const machine = this.#machine;
    say(`booted in ${seconds(await machine.boot(() => this.#answers()))}`);
    await this.#open();
    const glimpses = await this.#glimpseAll();
    const cuts: CutRecord[] = [];
    for (const moment of moments) {
      const cut = await this.#cut(moment);
      this.#farEnd.crashed();
      const { lost, kept, torn } = cut.fates;
      say(
        `cut ${cuts.length + 1}, ${moment}: before ${cut.before}, in "${cut.doing}"; ${lost} writes lost, ${kept} kept, ${torn} torn`,
      );
      const record: CutRecord = { ...cut, moment, bootMs: 0 };
      if (moment === 'package upgrade') {
        record.bootMs = await machine.boot();
        record.cameUp = await this.#finishUpgrade();
        say(`  ${record.cameUp}`);
      } else record.bootMs = await machine.boot(() => this.#answers());
      say(`  up again after ${seconds(record.bootMs)}`);
      await this.#endLead();
      await this.#listen();
      cuts.push(record);
    }
    this.#sandbox.faults.clear();
    await this.#sandbox.goOnline();
    await Promise.all(this.#ways.map((way) => way.rest()));
    clearInterval(this.#events);
    const isEmpty = async () => (await this.#metric('tagferry_buffer_values')) === 0;
    await machine.until(isEmpty, 'the buffer is empty', DRAINED_WITHIN_MS);
    const events = await this.#judgeEvents();
    if (events.missing > 0) say((await machine.journal()).slice(-6_000));
    const values = summed(this.#oracle.judge(this.#sandbox).values());
    const fileSystem = machine.console.match(/(EXT4-fs error|F2FS-fs.*(error|corrupt)|Kernel panic).*/gi) ?? [];
    const said = [...this.#said].map(([event, times]) => `${times} ${event}`);
    return {
      seed,
      glimpses,
      cuts,
      values,
      allowedRepeats: this.#farEnd.allowed,
      events,
      flushes: machine.flushes,
      said: [...fileSystem, ...said],
    };
  }

  async close(): Promise<void> {
    clearInterval(this.#events);
    await Promise.allSettled(this.#ways.map((way) => way.close()));
    await this.#machine?.close();
    this.#journal.close();
    this.#journal.closeAllConnections();
    await this.#sandbox.stop();
  }

  async #install(): Promise<void> {
    const { deb, newer, mounts, isNormal = false, isHere = false } = this.#options;
    const ports = { ingest: 8470, webhook: 8471, ops: 8472 };
    this.#forwards = await forwards(ports);
    const { ingest, webhook, ops } = this.#forwards;
    const image = await makeImage(this.#folder, await debianTree(), [deb], (root) =>
      writeGateway(root, {
        debs: [deb, newer],
        isNormal,
        platformUrl: this.#sandbox.url,
        journalUrl: `http://127.0.0.1:${(this.#journal.address() as AddressInfo).port}/`,
        webhookPort: webhook.port,
        tags: this.#pushWays(() => Promise.resolve(0)).map(({ tags }) => tags),
        ...(isHere
          ? { host: '127.0.0.1', listen: { ingest: ingest.port, webhook: webhook.port, ops: ops.port } }
          : { host: HOST, listen: ports }),
      }),
    );
    const program = { command: UNIT_COMMAND, environment: { ...UNIT_ENVIRONMENT, ...lookOn(isNormal) } };
    this.#machine = isHere
      ? await MountedMachine.open(image, mounts.root ?? 'rw', program, this.#folder)
      : await QemuMachine.open(await debianKernel(), image, mounts, [ingest, webhook, ops], this.#folder);
  }

  async #answers(): Promise<boolean> {
    return (await this.#get('ingest', '/health')) !== undefined;
  }

  async #get(port: 'ingest' | 'ops', path: string): Promise<string | undefined> {
    try {
      const signal = AbortSignal.timeout(5_000);
      return await (await fetch(`http://127.0.0.1:${this.#forwards[port].port}${path}`, { signal })).text();
    } catch {
      return undefined;
    }
  }

  async #metric(name: string): Promise<number | undefined> {
    const found = new RegExp(`^${name} (\\S+)`, 'm').exec((await this.#get('ops', '/metrics')) ?? '')?.[1];
    return found === undefined ? undefined : Number(found);
  }

  #pushWays(post: (path: string, type: string, body: string) => Promise<number>): PushWay[] {
    const context = { oracle: this.#oracle, readings: this.#readings, folder: this.#folder };
    return (['http', 'line'] as const).map(
      (name, i) => new PushWay(name, 881 + i, context, this.#farEnd, post, PATIENCE_MS),
    );
  }

  async #post(path: string, type: string, body: string): Promise<number> {
    const headers = { 'content-type': type, authorization: `Bearer ${TOKEN}` };
    const url = `http://127.0.0.1:${this.#forwards.ingest.port}${path}`;
    const answer = await fetch(url, { method: 'POST', headers, body, signal: AbortSignal.timeout(PATIENCE_MS) });
    await answer.arrayBuffer();
    return answer.status;
  }

  /** Starts the producers of values and events. */
  async #open(): Promise<void> {
    this.#ways = this.#pushWays(async (path, type, body) => {
      const status = await this.#post(path, type, body);
      // Recorded only after the oracle knows, because the latest acknowledged values are lost first.
      if (status === 204) setImmediate(() => this.#machine.answered());
      return status;
    });
    const isThere = () => this.#sandbox.webhooks().length > 0;
    await this.#machine.until(isThere, 'the webhook is registered', 120_000);
    for (const way of this.#ways) way.produce(PER_SECOND / this.#ways.length);
    this.#events = setInterval(() => {
      const number = this.#sent.size + 1;
      this.#sent.add(number);
      const content = () => contentOf(number, true);
      this.#sandbox.announcer.announce({ type: 'threshold_reached', audience: () => true, content });
    }, EVENT_EVERY_MS);
  }

  /** Checks one copy after another while the machine continues. */
  async #glimpseAll(): Promise<GlimpseRecord[]> {
    const records: GlimpseRecord[] = [];
    let looking = Promise.resolve();
    for (const moment of this.#options.glimpses) {
      const chance = this.#fate();
      const endLead = await this.#lead(moment);
      let owed: Owed = { values: [], events: [] };
      const note = () => {
        owed = { values: this.#oracle.owed(this.#sandbox), events: this.#owedEvents() };
      };
      const glimpse = this.#machine.glimpse(this.#plug(moment), note, chance);
      if (moment === 'salvage') await this.#machine.service('start');
      const { images, ...cut } = await glimpse;
      await endLead();
      await looking;
      looking = goOn(images, this.#options.mounts, owed, this.#oracle).then((after) => {
        const record = { moment, ...cut, ...after };
        records.push(record);
        this.#options.say(`glimpse ${records.length}: ${JSON.stringify(record)}`);
      });
      // Reported where the result is awaited.
      looking.catch(() => {});
    }
    await looking;
    return records;
  }

  /** Removes all unflushed writes, or keeps some of them in a random order. */
  #fate(): (() => number) | undefined {
    return this.#random() < 0.5 ? () => this.#random() : undefined;
  }

  /** Starts an activity on the machine, and cuts the power during it. */
  async #cut(moment: Moment): Promise<Cut> {
    const machine = this.#machine;
    if (machine instanceof MountedMachine) throw new Error('the kernel of this machine is not cut off');
    const chance = this.#fate();
    this.#endLead = await this.#lead(moment);
    if (moment === 'start') {
      await machine.off(chance);
      machine.start();
    }
    if (moment === 'package upgrade') {
      const other = (await this.#version()).startsWith('0.0.1') ? '/root/1.deb' : '/root/0.deb';
      await machine.sh(`(dpkg -i ${other} >/root/upgrade.log 2>&1 &)`);
      await pause(this.#random() * UPGRADE_MS);
    }
    const pulled = machine.pull(this.#plug(moment), chance);
    if (moment === 'salvage') await machine.service('start');
    return await pulled;
  }

  /** Repeats an activity until the returned function is called. */
  async #lead(moment: Moment): Promise<() => Promise<void>> {
    const machine = this.#machine;
    const sandbox = this.#sandbox;
    sandbox.faults.clear();
    const isOnline = moment === 'settlement' || moment === 'event' || moment === 'compaction';
    if (isOnline) await sandbox.goOnline();
    else await sandbox.goOffline('refuse');
    if (moment === 'compaction') sandbox.faults.add({ method: 'POST', asset: STUCK_ASSET, status: 500 });
    if (moment === 'salvage') {
      // Damages the header while the agent is stopped. It contains no acknowledged value.
      await machine.service('stop');
      await machine.sh(
        'dd if=/dev/zero of=/var/lib/tagferry/buffer.db bs=16 count=1 conv=notrunc status=none; sync -f /var/lib/tagferry/buffer.db',
      );
    }
    if (moment !== 'vacuum') return async () => {};
    // Values buffered in the outage are delivered at its end. The freed pages then exceed the limit.
    let turn = 0;
    const turns = new Loop(async () => {
      const isAway = turn++ % 2 === 0;
      await this.#bound(isAway ? BOUND_BYTES : SMALL_BYTES);
      await (isAway ? sandbox.goOffline('refuse') : sandbox.goOnline());
    });
    turns.start(TURN_MS);
    return async () => {
      await turns.end().catch(() => {});
      await this.#bound(BOUND_BYTES);
    };
  }

  /** Sets the buffer limit. New values beyond it are rejected; none are dropped. */
  async #bound(bytes: number): Promise<void> {
    const edit = `sed -i 's/^BUFFER_MAX_BYTES=.*/BUFFER_MAX_BYTES=${bytes}/' /etc/tagferry/agent.env; sync -f /etc/tagferry/agent.env`;
    await this.#machine.sh(edit);
    await this.#machine.service('reload');
  }

  #plug(moment: Moment): Plug {
    const within = WITHIN[moment];
    const draw = this.#random();
    // Rare activities of the store have a longer time limit.
    const withinMs = within === undefined ? 60_000 : 240_000;
    const isAnswer = moment === 'ingest' && (draw < 0.4 || this.#options.isNormal === true);
    const before = isAnswer ? 'an acknowledgement' : draw < 0.7 ? 'a flush' : 'a write';
    const isRare = moment === 'compaction' || moment === 'vacuum';
    const most = isRare ? 1 : moment === 'start' ? STARTING_WRITES : within !== undefined || isAnswer ? 4 : 20;
    const count = 1 + Math.floor(this.#random() * most);
    return { before, count, withinMs, ...(within === undefined ? {} : { within }) };
  }

  async #version(): Promise<string> {
    const found = await this.#machine.sh("dpkg -s tagferry | sed -n 's/^Version: //p; s/^Status: //p'", 'give');
    return found.split('\n').reverse().join(', ');
  }

  /** Repairs an interrupted upgrade as an operator does, if the agent does not start by itself. */
  async #finishUpgrade(): Promise<string> {
    const found = await this.#version();
    const says = (how: string) => `${how} (dpkg: ${found})`;
    const isUp = async (withinMs: number) => {
      for (const end = performance.now() + withinMs; performance.now() < end; await pause(200)) {
        if (await this.#answers()) return true;
      }
      return false;
    };
    if (await isUp(60_000)) return says('started without intervention');
    await this.#machine.sh('dpkg --configure -a; systemctl start tagferry', 'give');
    if (await isUp(60_000)) return says('started after dpkg --configure -a');
    await this.#machine.sh('dpkg -i /root/1.deb; systemctl start tagferry', 'give');
    if (await isUp(120_000)) return says('started after the package was reinstalled');
    throw new Error(`it did not start${says('')}`);
  }

  /** Returns the messages about databases since this start. */
  async #listen(): Promise<void> {
    const told = (await this.#machine.journal()).match(/"event":"(store|inbox)\.[a-z_.-]*"/g) ?? [];
    for (const line of told) {
      const event = line.slice('"event":"'.length, -1);
      this.#said.set(event, (this.#said.get(event) ?? 0) + 1);
    }
  }

  /** Events acknowledged with 204. */
  #takenEvents(): Set<number> {
    const taken = this.#sandbox.deliveries().filter(({ status }) => status === 'delivered');
    return new Set(taken.map(({ payload }) => numberOf(payload)));
  }

  #owedEvents(): number[] {
    const ran = new Set(this.#ran);
    return [...this.#takenEvents()].filter((number) => !ran.has(number));
  }

  async #judgeEvents(): Promise<CutsReport['events']> {
    const count = () => {
      const taken = this.#takenEvents();
      const missing = this.#owedEvents().length;
      return { acknowledged: taken.size, missing, repeated: this.#ran.length - new Set(this.#ran).size };
    };
    // Reactions are slow in an emulated machine. The time limit restarts with every reaction.
    let [progress, sinceMs] = [0, performance.now()];
    for (; performance.now() - sinceMs < SILENT_MS; await pause(200)) {
      const { acknowledged, missing } = count();
      if (missing === 0 && acknowledged === this.#sent.size) break;
      if (this.#ran.length + acknowledged > progress)
        [progress, sinceMs] = [this.#ran.length + acknowledged, performance.now()];
      // Lets the agent retry unanswered requests.
      if (acknowledged < this.#sent.size) this.#sandbox.clock.advance(5_000);
    }
    return count();
  }
}

function numberOf(payload: string): number {
  return (JSON.parse(payload) as { content: { data: { value: number } } }).content.data.value;
}

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
