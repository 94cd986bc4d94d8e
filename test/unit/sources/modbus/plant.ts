import { silentLogger } from '../../../../src/base/logger.ts';
import type { Source } from '../../../../src/config/tags.ts';
import { Gate } from '../../../../src/sources/intake/gate.ts';
import type { ModbusSpec } from '../../../../src/sources/modbus/line-spec.ts';
import { MODBUS } from '../../../../src/sources/modbus/modbus-kind.ts';
import { type Point, pointsOf } from '../../../../src/sources/points.ts';
import { type RunningSource, Shared, type SourceContext } from '../../../../src/sources/source-kind.ts';
import { SourceStatus } from '../../../../src/sources/status.ts';
import { check } from '../../config/folder.ts';
import { makeIntakeBench, until } from '../sink-double.ts';
import { ScriptedDevice } from './device.ts';

/** Poll interval of sources that set no other. */
export const EVERY_MS = 5_000;

/** An opened source, with its gate. */
export interface OpenedSource {
  running: RunningSource;
  status: SourceStatus;
  points: readonly Point[];
  /** Results of the reads so far: values, or the problem with a value. */
  readings: (number | string | boolean | undefined)[];
}

interface Logged {
  event: string;
  [field: string]: unknown;
}

/** Sources that read scripted devices, on a manual clock. */
export class Plant {
  readonly #bench = makeIntakeBench(new Map());
  readonly #shared = new Shared();
  readonly #cleanUps: (() => unknown)[] = [];
  readonly log = silentLogger();
  readonly logged: Logged[] = [];

  constructor() {
    for (const level of ['info', 'warn'] as const) {
      this.log[level] = ((fields: Logged) => this.logged.push(fields)) as typeof this.log.info;
    }
  }

  get clock() {
    return this.#bench.clock;
  }

  /** Modbus events in the log. */
  events(): string[] {
    return this.logged.map(({ event }) => event).filter((event) => event.startsWith('modbus.'));
  }

  async device(isSerial = false, port = 0): Promise<ScriptedDevice> {
    const device = await ScriptedDevice.listen(() => this.clock.monotonicMs(), isSerial, port);
    this.#cleanUps.push(() => device.close());
    return device;
  }

  /** Opens a source as tags.yaml defines it. `registers`: members of values by key. */
  async open(members: string, registers: Record<string, string>, name = 'plc'): Promise<OpenedSource> {
    const values = Object.entries(registers).map(([key, register]) => `${key}: { from: ${name}, ${register} }`);
    const every = members.includes('every:') ? '' : `, every: ${EVERY_MS}ms`;
    const text = `sources: { ${name}: { ${members}${every} } }\ntags: { ${name}: { asset: 900, values: { ${values.join(', ')} } } }\n`;
    const { configuration, errors } = check({ 'tags.yaml': text });
    if (configuration === undefined) throw new Error(errors.join('\n'));
    const { tags, sources } = configuration.tags;
    const source = sources.get(name) as Source<ModbusSpec>;
    const bench = makeIntakeBench(tags);
    const points = pointsOf(tags, name, bench.intake);
    const { clock, log } = this;
    const status = new SourceStatus({ name, kind: 'modbus', points, isPolled: true, clock, log });
    const gate = new Gate({ status, timeFrom: 'source', committer: bench.sink, stamps: bench.stamps, clock, log });
    const context = { source, points, gate, status, shared: this.#shared, clock, log };
    const running = await MODBUS.open(context as unknown as SourceContext<ModbusSpec, never>);
    this.#cleanUps.push(() => running.stop());
    const readings: OpenedSource['readings'] = [];
    status.listen((reading) => readings.push(reading.problem ?? reading.raw));
    return { running, status, points, readings };
  }

  /** Waits until each value of the source has one more reading. Returns the readings in the order of the points. */
  async poll(source: OpenedSource, advanceMs = EVERY_MS): Promise<Record<string, OpenedSource['readings'][number]>> {
    const found = new Map<string, OpenedSource['readings'][number]>();
    const stop = source.status.listen((reading) =>
      found.set(reading.point.name.split(' ').at(-1)!, reading.problem ?? reading.raw),
    );
    if (advanceMs === 0) source.running.start();
    else await this.clock.advance(advanceMs);
    await until(() => found.size === source.points.length);
    stop();
    return Object.fromEntries(
      source.points.map(({ name }) => name.split(' ').at(-1)!).map((key) => [key, found.get(key)]),
    );
  }

  /** Starts the source. Returns its first readings. */
  async start(source: OpenedSource): Promise<Record<string, OpenedSource['readings'][number]>> {
    // Polls begin at multiples of their interval.
    const { clock } = this;
    await clock.advance(EVERY_MS - (clock.monotonicMs() % EVERY_MS));
    return await this.poll(source, 0);
  }

  async close(): Promise<void> {
    for (const end of this.#cleanUps.splice(0).reverse()) await end();
  }
}

/** Address of a device in tags.yaml. */
export function at({ port }: ScriptedDevice): string {
  return `modbus: "tcp://127.0.0.1:${port}"`;
}
