import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Claim } from '../oracle.ts';
import { Loop, numberText, pause, type Way, type WayContext } from './way.ts';

const ROWS = 50;
const KEYS = ['a', 'b'];
const DONE_WITHIN_MS = 90_000;

/** A data logger that drops files into a folder. The values of a file in `done/` must be delivered. */
export class CsvWay implements Way {
  readonly name = 'csv';
  readonly sources: string;
  readonly tags: string;
  readonly #drop: string;
  /** A second folder that can become an unresponsive network share. */
  readonly share: string;
  readonly #context: WayContext;
  readonly #asset: number;
  readonly #left = new Map<string, Claim[]>();
  readonly #loop = new Loop(() => this.#write());
  #serial = 0;

  constructor(asset: number, context: WayContext) {
    this.#context = context;
    this.#asset = asset;
    this.#drop = join(context.folder, 'drop');
    this.share = join(context.folder, 'share');
    for (const folder of [this.#drop, this.share]) mkdirSync(folder);
    this.sources = `  drop: { csv: "${this.#drop}", separator: ";", settle: 100ms, time_column: time, time_format: unix_ms }\n  share: { csv: "${this.share}", settle: 100ms, time_column: time, time_format: unix_ms }\n`;
    const values = [
      ...KEYS.map((key) => `${key}: { unit: 12, from: drop, column: ${key} }`),
      'shared: { unit: 12, from: share, column: shared }',
    ].join(', ');
    this.tags = `  T-${asset}: { asset: ${asset}, values: { ${values} } }\n`;
  }

  produce(perSecond: number): void {
    this.#loop.start((1000 * ROWS) / perSecond);
  }

  async rest(): Promise<void> {
    await this.#loop.end();
    // The time limit restarts with every processed file, because many may be queued after outages.
    let [left, movedMs] = [this.#left.size, performance.now()];
    for (; this.#left.size > 0; await pause(100)) {
      this.#acknowledgeDone();
      if (this.#left.size < left) [left, movedMs] = [this.#left.size, performance.now()];
      if (performance.now() - movedMs > DONE_WITHIN_MS) throw new Error(`${this.#left.size} files were not processed`);
    }
  }

  async close(): Promise<void> {
    await this.#loop.end();
  }

  async #write(): Promise<void> {
    const { oracle, readings } = this.#context;
    const claims = Array.from({ length: ROWS }, (_, i) =>
      readings.next(this.name, this.#asset, KEYS[i % KEYS.length]!, false),
    );
    const lines = claims.map(({ key, timestampMs, value }) =>
      [timestampMs, ...KEYS.map((column) => (column === key ? numberText(value) : ''))].join(';'),
    );
    for (const claim of claims) oracle.offer(claim);
    const name = `${String(this.#serial++).padStart(8, '0')}.csv`;
    this.#left.set(name, claims);
    writeFileSync(join(this.#drop, `${name}.part`), `time;${KEYS.join(';')}\n${lines.join('\n')}\n`);
    renameSync(join(this.#drop, `${name}.part`), join(this.#drop, name));
    this.#acknowledgeDone();
  }

  #acknowledgeDone(): void {
    for (const [name, claims] of this.#left) {
      const done = join(this.#drop, 'done', name);
      if (!existsSync(done)) continue;
      for (const claim of claims) this.#context.oracle.acknowledge(claim);
      this.#left.delete(name);
      for (const file of [done, `${done}.report.txt`]) rmSync(file, { force: true });
    }
  }
}
