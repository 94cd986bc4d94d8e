import type { ChildProcess } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { onTestFinished } from 'vitest';
import { readTagsLeniently } from '../../../../src/config/configuration.ts';
import type { Source } from '../../../../src/config/tags.ts';
import type { CsvSpec, CsvValue } from '../../../../src/sources/csv/columns.ts';
import { CSV } from '../../../../src/sources/csv/csv-kind.ts';
import { type FolderRequest, ForeignFolders, perform } from '../../../../src/sources/csv/folder.ts';
import { Folders } from '../../../../src/sources/csv/folders.ts';
import { Gate } from '../../../../src/sources/intake/gate.ts';
import { SOURCE_KINDS } from '../../../../src/sources/kinds.ts';
import { type Point, pointsOf } from '../../../../src/sources/points.ts';
import { type RunningSource, Shared, type SourceContext } from '../../../../src/sources/source-kind.ts';
import { SourceStatus } from '../../../../src/sources/status.ts';
import type { ManualClock } from '../../doubles/manual-clock.ts';
import { makeIntakeBench, storeFault } from '../sink-double.ts';

/** Runs the operations in this process, because tests of this layer start no programs. */
export class LocalProgram extends EventEmitter {
  readonly #folders = new ForeignFolders();
  /** Requests without a reply, as on an unresponsive share. */
  static isHung: (request: FolderRequest) => boolean = () => false;

  send(request: FolderRequest): void {
    if (LocalProgram.isHung(request)) return;
    const reply = structuredClone(perform(this.#folders, request));
    queueMicrotask(() => this.emit('message', reply));
  }

  kill(): void {
    queueMicrotask(() => this.emit('exit', null, 'SIGKILL'));
  }

  unref(): void {}
}

export function localFolders(clock: ManualClock): Folders {
  return new Folders(clock, () => new LocalProgram() as unknown as ChildProcess);
}

/** A CSV source `drop` over a new folder, with a real gate and a store in memory. `FOLDER` denotes the folder. */
export class CsvBench {
  readonly folder = mkdtempSync(join(tmpdir(), 'tagferry-csv-'));
  readonly spec: CsvSpec;
  readonly shared = new Shared();
  readonly lines: Record<string, unknown>[] = [];
  readonly clock: ManualClock;
  readonly sink: ReturnType<typeof makeIntakeBench>['sink'];
  readonly points: readonly Point<CsvValue>[];
  readonly #bench: ReturnType<typeof makeIntakeBench>;
  readonly #source: Source<CsvSpec>;
  status!: SourceStatus;
  #running: { source: RunningSource; gate: Gate } | undefined;

  /** `members`: members of the source besides `csv`. `values`: values of tag T, in the form of tags.yaml. */
  constructor(members: string, values: string) {
    const separator = members === '' ? '' : ', ';
    const sourceLine = `sources: { drop: { csv: ${this.folder}${separator}${members} } }`;
    const directory = mkdtempSync(join(tmpdir(), 'tagferry-csv-config-'));
    onTestFinished(async () => {
      LocalProgram.isHung = () => false;
      await this.stop();
      for (const path of [this.folder, directory]) rmSync(path, { recursive: true });
    });
    writeFileSync(join(directory, 'tags.yaml'), `${sourceLine}\ntags: { T: { asset: 1, values: { ${values} } } }\n`);
    const { sources, tags } = readTagsLeniently({ directory, environment: {}, kinds: SOURCE_KINDS });
    this.#source = sources.get('drop') as Source<CsvSpec>;
    this.spec = this.#source.spec;
    this.#bench = makeIntakeBench(tags);
    this.clock = this.#bench.clock;
    this.sink = this.#bench.sink;
    this.points = pointsOf<CsvValue>(tags, 'drop', this.#bench.intake);
    this.shared.get('csv', () => localFolders(this.clock));
  }

  /** Opens and starts the source. */
  async open(isTest = false): Promise<void> {
    const { clock, points, shared } = this;
    const log = pino({ base: null }, { write: (line: string) => void this.lines.push(JSON.parse(line)) });
    this.status = new SourceStatus({ name: 'drop', kind: 'csv', points, isPolled: true, clock, log });
    const { stamps } = this.#bench;
    const gate = new Gate({ status: this.status, timeFrom: 'source', committer: this.sink, stamps, clock, log });
    const context = { source: this.#source, points, gate, status: this.status, shared, isTest, clock, log };
    const prefix = 'source/drop/';
    const notes = async () => new Map([...this.sink.notes].map(([name, text]) => [name.slice(prefix.length), text]));
    const source = await CSV.open({ ...context, notes } as unknown as SourceContext<CsvSpec, CsvValue>);
    source.start();
    this.#running = { source, gate };
  }

  async stop(): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    await running?.source.stop();
    const stopped = running?.gate.stop();
    if (this.sink.holds) this.sink.commit();
    await stopped;
  }

  /** Stops the source and loses everything that is not on disk. */
  async crash(): Promise<void> {
    this.sink.holds = true;
    this.sink.fault = storeFault('buffer.closing');
    await this.stop();
    this.sink.fault = undefined;
    this.sink.holds = false;
  }

  write(name: string, text: string | Buffer): void {
    writeFileSync(join(this.folder, name), text);
  }

  below(folder = ''): string[] {
    const path = join(this.folder, folder);
    return existsSync(path) ? readdirSync(path).sort() : [];
  }

  read(name: string): string {
    return readFileSync(join(this.folder, name), 'utf8');
  }

  values(key?: string): number[] {
    const stored =
      key === undefined ? this.sink.stored : this.sink.stored.filter(({ address }) => address.includes(`/${key}/`));
    return stored.map(({ value }) => value);
  }

  logged(event: string): Record<string, unknown>[] {
    return this.lines.filter((line) => line.event === event);
  }

  /** Advances the clock until the condition is true. */
  async until(condition: () => boolean): Promise<void> {
    for (let turn = 0; !condition(); turn++) {
      if (turn > 2_000) throw new Error(`still false; in the folder: ${this.below().join(', ')}`);
      await this.clock.advance(50);
    }
  }
}
