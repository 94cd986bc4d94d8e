import type { ChildProcess } from 'node:child_process';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../../src/base/port-claim.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { Platform } from '../../e2e/harness/platform.ts';
import { SmallDisk } from '../../host/faults/small-disk.ts';
import { wholeLines } from '../../whole-lines.ts';
import { Loop, pause } from '../ways/way.ts';
import { type CrashPlan, PLAN_VARIABLE } from './crash-plan.ts';
import type { DeliveredValue, Evidence, PushedValue } from './judge.ts';

const PRELOAD = new URL('./preload-process.ts', import.meta.url);
const DISK_MB = 48;
/** Assets of the sandbox: one that the platform always accepts, one whose posts fail, and two whose values end early. */
export const ASSETS = { healthy: 881, failing: 882, poisoned: 883, purged: 884 };
const KEYS = ['a', 'b', 'c', 'd'];
const VALUES_A_KEY = 3;
/** A segment must contain fewer than 64 values, or it is not merged. A flush covers about a second. */
const PUSH_EVERY_MS = 75;
const EVENT_EVERY_MS = 250;
const RETRY_MS = 50;
/** First bytes of the database: the file header and the schema, but no values. */
const DAMAGED_BYTES = 1_024;

/** A gateway on a small disk between programs that push values and a platform that sends events. Requires root. */
export class CrashWorld {
  readonly platform: Platform;
  readonly #disk = new SmallDisk(DISK_MB);
  readonly #agent: AgentProcess;
  readonly #pushed = new Map<string, PushedValue>();
  readonly #delivered: DeliveredValue[] = [];
  readonly #crashesMs: number[] = [];
  readonly #sent = new Set<number>();
  readonly #loops = new Map<number, Loop>();
  readonly #events = new Loop(async () => this.#sendEvent());
  /** Exits that are neither a planned kill nor a requested stop. */
  readonly unexpected: string[] = [];
  /** Plans of the next starts. */
  plans: CrashPlan[] = [];
  #child: ChildProcess | undefined;
  #isStopping = false;
  #isClosed = false;
  #nextMs = Date.now() - 3_600_000;

  private constructor(platform: Platform) {
    this.platform = platform;
    this.#agent = new AgentProcess(platform.url);
    platform.onPost((asset, keys) => {
      for (const { key, points } of keys) {
        for (const { timestampMs, value } of points) {
          this.#delivered.push({ atMs: Date.now(), series: `${asset}/${key}`, timestampMs, value });
        }
      }
    });
  }

  static async open(): Promise<CrashWorld> {
    const platform = await Platform.start();
    const world = new CrashWorld(platform);
    const port = await freePort();
    const { journal } = world;
    world.#agent.write(platform.url, {
      env: {
        STATE_DIR: world.#disk.state,
        BUFFER_MIN_FREE: '0',
        WEBHOOK_LISTEN: `127.0.0.1:${port}`,
        WEBHOOK_URL: `http://127.0.0.1:${port}/webhook`,
      },
      tags: `tags:\n${Object.values(ASSETS)
        .map(
          (asset) =>
            `  T-${asset}: { asset: ${asset}, values: { ${KEYS.map((key) => `${key}: { unit: 12 }`).join(', ')} } }\n`,
        )
        .join('')}`,
      reactions: `reactions:\n  - name: note-it\n    on: threshold_reached\n    max_age: 30d\n    do: [{ run: [/bin/sh, -c, 'echo "$TAGFERRY_VALUE $(date +%s%3N)" >> ${journal}'] }]\n`,
    });
    return world;
  }

  get #ballast(): string {
    return join(this.#disk.mount, 'ballast');
  }

  get #mark(): string {
    return join(this.#agent.folder, 'points');
  }

  /** File to which each action appends its event and the time. */
  get journal(): string {
    return join(this.#agent.folder, 'actions');
  }

  get output(): string {
    return this.#agent.output;
  }

  get crashes(): number {
    return this.#crashesMs.length;
  }

  /** Number of plans that were carried out. */
  get fired(): number {
    return wholeLines(this.#mark).length;
  }

  planOf(plan: Pick<CrashPlan, 'point' | 'nth' | 'effect'>): CrashPlan {
    return { ...plan, ballast: this.#ballast, mark: this.#mark };
  }

  /** Starts the agent with the next plan. After each exit it is started again, as systemd would. */
  launch(): void {
    const plan = this.plans.shift();
    const preload = { NODE_OPTIONS: `--import=${PRELOAD.href}`, [PLAN_VARIABLE]: JSON.stringify(plan) };
    const child = this.#agent.launch(plan ? preload : {});
    this.#child = child;
    child.once('exit', (code, signal) => {
      if (this.#isStopping) return;
      this.#crashesMs.push(Date.now());
      if (signal !== 'SIGKILL') this.unexpected.push(`the agent exited with ${code ?? signal}`);
      setTimeout(() => this.launch(), signal === 'SIGKILL' ? 0 : 1_000);
    });
  }

  /** Kills the agent after the scenario, and starts it again. */
  async killOnce(): Promise<void> {
    const crashes = this.crashes;
    process.kill(this.#child!.pid!, 'SIGKILL');
    await this.until(() => this.crashes > crashes, 'the agent is restarted');
    await this.ready();
  }

  /** Stops the agent, damages the start of its buffer, and starts it with the next plan. */
  async restartWithDamage(): Promise<void> {
    this.#isStopping = true;
    await this.#agent.end('SIGTERM');
    this.#isStopping = false;
    const file = openSync(join(this.#disk.state, 'buffer.db'), 'r+');
    writeSync(file, Buffer.alloc(DAMAGED_BYTES, 0xa5), 0, DAMAGED_BYTES, 0);
    closeSync(file);
    this.launch();
  }

  freeDisk(): void {
    rmSync(this.#ballast, { force: true });
  }

  async ready(): Promise<void> {
    await this.until(async () => {
      const answer = await this.#agent.call(this.#agent.ops, '/readyz').catch(() => undefined);
      return answer?.status === 200;
    }, 'the agent is ready');
  }

  /** Starts the pushes to an asset. */
  push(asset: number): void {
    const loop = this.#loops.get(asset) ?? new Loop(() => this.#pushBatch(asset));
    this.#loops.set(asset, loop);
    loop.start(PUSH_EVERY_MS);
  }

  /** Stops the pushes to an asset and waits until all are acknowledged. */
  async restPush(asset: number): Promise<void> {
    await this.#loops.get(asset)?.end();
  }

  sendEvents(): void {
    this.#events.start(EVENT_EVERY_MS);
  }

  async restAll(): Promise<void> {
    await Promise.all([...this.#loops.values(), this.#events].map((loop) => loop.end()));
  }

  /** Makes the list of deliveries fail, because the agent would fetch an event from it that it acknowledged and lost. */
  hideDeliveries(): void {
    const created = this.platform.requests().find(({ method, path }) => method === 'POST' && /\/webhooks$/.test(path));
    const path = `${created?.path}/${this.platform.webhooks()[0]!.id}/events`;
    this.platform.addFault({ method: 'GET', path, status: 503 });
  }

  /** Pushes one value that the platform rejects. */
  async pushPoison(): Promise<void> {
    const timestampMs = this.#nextMs++;
    this.platform.poison({ asset: ASSETS.poisoned, timestampMs });
    await this.#send([this.#newValue(ASSETS.poisoned, 'a', timestampMs)]);
  }

  /** Purges all values of an asset until the agent confirms that none is left. Its pushes must be stopped. */
  async purge(asset: number): Promise<void> {
    await this.until(async () => {
      const purged = await this.#ask<{ failure?: unknown }>('buffer/purge', { asset });
      if (purged === undefined || purged.failure !== undefined) return false;
      const listed = await this.#ask<{ series: { values: number }[] }>('buffer/ls', { asset });
      return listed?.series.every(({ values }) => values === 0) === true;
    }, 'the values are purged');
    const atMs = Date.now();
    for (const value of this.#pushed.values()) if (value.series.startsWith(`${asset}/`)) value.purgedAtMs = atMs;
  }

  /** Records the values in the quarantine and returns them. */
  async quarantined(): Promise<Omit<DeliveredValue, 'atMs'>[]> {
    let rows: { asset: number; key: string; first: { timestamp: string; value: number }[] }[] = [];
    await this.until(async () => {
      const answer = await this.#ask<{ quarantine: typeof rows }>('buffer/quarantine', {});
      if (answer) rows = answer.quarantine;
      return answer !== undefined;
    }, 'the quarantine is listed');
    const values = rows.flatMap(({ asset, key, first }) =>
      first.map(({ timestamp, value }) => ({ series: `${asset}/${key}`, timestampMs: Date.parse(timestamp), value })),
    );
    for (const { series, timestampMs } of values) {
      const pushed = this.#pushed.get(`${series}@${timestampMs}`);
      if (pushed) pushed.quarantinedAtMs ??= Date.now();
    }
    return values;
  }

  /** Waits until each acknowledged value and event has reached its destination, or until progress stops. */
  async drain(withinMs: number): Promise<void> {
    let [left, movedMs] = [Number.POSITIVE_INFINITY, performance.now()];
    while (performance.now() - movedMs < withinMs) {
      // The platform retries deliveries by its own clock.
      this.platform.advance(2_000);
      const buffered = await this.#agent.metric('tagferry_buffer_values').catch(() => Number.NaN);
      const acknowledged = this.#acknowledged();
      const ran = new Set(this.#actions().map(({ event }) => event));
      const open = [...acknowledged].filter((event) => !ran.has(event)).length + this.#sent.size - acknowledged.size;
      if (buffered + open === 0) return;
      if (buffered + open < left) [left, movedMs] = [buffered + open, performance.now()];
      await pause(100);
    }
  }

  evidence(quarantined: Evidence['quarantined']): Evidence {
    return {
      pushed: [...this.#pushed.values()],
      delivered: this.#delivered,
      quarantined,
      crashesMs: this.#crashesMs,
      events: { sent: this.#sent, acknowledged: this.#acknowledged() },
      actions: this.#actions(),
    };
  }

  async until(condition: () => boolean | Promise<boolean>, what: string, withinMs = 60_000): Promise<void> {
    const end = performance.now() + withinMs;
    while (!(await condition())) {
      if (performance.now() > end) throw new Error(`timed out waiting until ${what}`);
      await pause(20);
    }
  }

  async close(): Promise<void> {
    this.#isStopping = true;
    this.freeDisk();
    await this.#agent.end('SIGKILL');
    const ended = Promise.allSettled([...this.#loops.values(), this.#events].map((loop) => loop.end()));
    this.#isClosed = true;
    await ended;
    await this.#agent.dispose();
    await this.platform.stop();
    this.#disk.dispose();
  }

  #newValue(asset: number, key: string, timestampMs: number): PushedValue {
    const value = { series: `${asset}/${key}`, timestampMs, value: timestampMs / 8, isAcknowledged: false, stores: 0 };
    this.#pushed.set(`${value.series}@${timestampMs}`, value);
    return value;
  }

  async #pushBatch(asset: number): Promise<void> {
    const batch = KEYS.flatMap((key) =>
      Array.from({ length: VALUES_A_KEY }, () => this.#newValue(asset, key, this.#nextMs++)),
    );
    await this.#send(batch);
  }

  /** Repeats a push until it is acknowledged. */
  async #send(batch: readonly PushedValue[]): Promise<void> {
    const body = batch.map(({ series, timestampMs, value }) => {
      const [asset, key] = series.split('/');
      return { tag: `T-${asset}`, key, timestamp: timestampMs, value };
    });
    while (!this.#isClosed) {
      const status = await this.#agent.push(body).then(
        (answer) => answer.status,
        (error: NodeJS.ErrnoException) => (error.code === 'ENOENT' || error.code === 'ECONNREFUSED' ? 503 : 0),
      );
      // Without a response, the values may be stored.
      if (status === 204 || status === 0) for (const value of batch) value.stores++;
      if (status === 204) {
        for (const value of batch) value.isAcknowledged = true;
        return;
      }
      if (status !== 0 && status !== 503) throw new Error(`a push was rejected with ${status}`);
      await pause(RETRY_MS);
    }
  }

  #sendEvent(): void {
    if (this.platform.webhooks().length === 0) return;
    const number = this.#sent.size + 1;
    this.#sent.add(number);
    const unit = { code: 'liter_per_minute', symbol: 'l/min' };
    this.platform.announce('threshold_reached', {
      asset: { id: 881, href: 'https://platform.example/v1/assets/881' },
      instrumentation: {
        id: 4700 + (number % 40),
        href: 'https://platform.example/v1/instrumentations/4711',
        tag: 'FT-101',
      },
      data: { value: number, key: 'act', timestamp: new Date().toISOString(), unit },
      threshold: {
        type: 'high',
        name: 'High',
        value: 20,
        unit,
        thresholdable_type: 'Instrumentation',
        value_in_threshold_unit: null,
      },
    });
  }

  /** Returns the events that the agent acknowledged with 204. */
  #acknowledged(): Set<number> {
    const delivered = this.platform.deliveries().filter(({ status }) => status === 'delivered');
    return new Set(
      delivered.map(
        ({ payload }) => (JSON.parse(payload) as { content: { data: { value: number } } }).content.data.value,
      ),
    );
  }

  #actions(): { event: number; atMs: number }[] {
    return wholeLines(this.journal).map((line) => {
      const [event, atMs] = line.split(' ').map(Number);
      return { event: event!, atMs: atMs! };
    });
  }

  /** Calls the control socket. Returns undefined if the agent does not respond with 200. */
  async #ask<Result>(operation: string, params: object): Promise<Result | undefined> {
    const options = { body: JSON.stringify(params), headers: { 'Content-Type': 'application/json' } };
    const socket = join(this.#disk.state, 'control.sock');
    const answer = await this.#agent.call(socket, `/${operation}`, options).catch(() => undefined);
    return answer?.status === 200 ? (JSON.parse(answer.text) as Result) : undefined;
  }
}
