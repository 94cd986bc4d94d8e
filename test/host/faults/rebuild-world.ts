/**
 * State folder on a disk with bad sectors, and a model of its values. Processes use it one after another
 * (`rebuild-process.ts`). At the end, each value was delivered or was in an unreadable sector.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { expect } from 'vitest';
import type { Salvage } from '../../../src/buffer/recovery/salvage.ts';
import { COMPILED_CODE } from '../made-once.ts';
import { mapPages, PAGE, SECTOR } from './page-map.ts';
import type { Said, Told, Work } from './rebuild-process.ts';

interface Sector {
  inode: number;
  from: number;
}

export class RebuildWorld {
  readonly folder = mkdtempSync(join(tmpdir(), 'tagferry-rebuild-'));
  readonly #library: string;
  readonly #ordersFile = join(this.folder, '..', `${this.folder.split('/').at(-1)}.orders`);
  #sectors: Sector[] = [];
  #next = 0;
  /** Accepted values, by number. */
  readonly accepted = new Map<number, Told>();
  /** Values offered when a process ended; they may be stored. */
  readonly perhaps = new Map<number, Told>();
  readonly posts: { numbers: number[]; live: number; isCarrying: boolean }[] = [];
  readonly quarantined = new Set<number>();
  /** Commits acknowledged while a file was being copied. */
  whileCarrying = 0;
  /** Values reported as lost, and pages whose contents are unknown. */
  told = 0;
  unreadPages = 0;
  lostAtEdges = 0;
  failures: string[] = [];

  constructor(library: string) {
    this.#library = library;
  }

  get path(): string {
    return join(this.folder, 'buffer.db');
  }

  /** Creates the same folder on a separate disk. */
  copy(): RebuildWorld {
    const other = new RebuildWorld(this.#library);
    for (const name of readdirSync(this.folder)) copyFileSync(join(this.folder, name), join(other.folder, name));
    other.#next = this.#next;
    for (const [number, told] of this.accepted) other.accepted.set(number, told);
    other.posts.push(...this.posts);
    return other;
  }

  get delivered(): Set<number> {
    return new Set(this.posts.flatMap(({ numbers }) => numbers));
  }

  /** Makes `page` of the current buffer file unreadable. */
  breakSectorOf(page: number): void {
    const from = Math.floor(((page - 1) * PAGE) / SECTOR) * SECTOR;
    this.#sectors.push({ inode: statSync(this.path).ino, from });
  }

  async run(
    kind: Work['kind'],
    seed: number,
    steps: number,
    more = '',
  ): Promise<{ isDone: boolean; setAside: number }> {
    const sectors = this.#sectors.map(({ inode, from }) => `fail_read ${inode} ${from} ${from + SECTOR}`);
    const work: Work = {
      folder: this.folder,
      kind,
      seed,
      first: this.#next,
      steps,
      orders: sectors.join('\n'),
      ordersFile: this.#ordersFile,
    };
    writeFileSync(this.#ordersFile, `${work.orders}\n${more}\n`);
    const script = join(import.meta.dirname, 'rebuild-process.ts');
    const child = spawn(process.execPath, [script, JSON.stringify(work)], {
      env: {
        ...COMPILED_CODE,
        PATH: process.env.PATH,
        LD_PRELOAD: this.#library,
        DISK_LAYER_PATH: 'buffer.db',
        DISK_LAYER_ORDERS: this.#ordersFile,
      },
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (text) => {
      stdout += text;
    });
    child.stderr.on('data', (text) => {
      stderr += text;
    });
    await once(child, 'close');
    const result = this.#take(stdout.split('\n').filter((line) => line.startsWith('{') && line.endsWith('}')));
    if (child.signalCode !== 'SIGKILL') expect(child.exitCode, stderr.slice(0, 3_000)).toBe(0);
    return result;
  }

  #take(lines: string[]): { isDone: boolean; setAside: number } {
    let open: Told[] | undefined;
    let isDone = false;
    let setAside = 0;
    let isCarrying = false;
    for (const line of lines) {
      const said = JSON.parse(line) as Said;
      if (said.tries) {
        for (const told of said.tries) {
          this.perhaps.set(told[0], told);
          this.#next = Math.max(this.#next, told[0] + 1);
        }
        open = said.tries;
      }
      if (said.acknowledged) {
        for (const told of open ?? []) this.accepted.set(told[0], told);
        if (isCarrying) this.whileCarrying++;
      }
      if (said.posted) this.posts.push({ numbers: said.posted, live: said.liveValues!, isCarrying });
      if (said.failed) this.failures.push(said.failed);
      if (said.facts) {
        isCarrying = said.facts.isCarrying;
        for (const { values, file, salvaged } of said.facts.damaged) {
          this.told += values;
          this.#note(salvaged);
          if (file) setAside++;
        }
      }
      for (const { salvaged } of said.opened?.setAside ?? []) {
        setAside++;
        if (salvaged && 'values' in salvaged) this.#note(salvaged);
      }
      if (said.quarantined && !said.done) for (const number of said.quarantined) this.quarantined.add(number);
      if (said.done) isDone = true;
    }
    return { isDone, setAside };
  }

  #note(salvaged: Salvage | undefined): void {
    this.unreadPages += salvaged?.unreadPages ?? 0;
    this.lostAtEdges += salvaged?.lostAtEdges ?? 0;
  }

  /** Numbers that were in a bad sector of any file. */
  inSectors(): Set<number> {
    const names = readdirSync(this.folder).filter((name) => /^buffer\.db(\.corrupt-\d+T\d+Z(-\d+)?)?$/.test(name));
    const found = new Set<number>();
    for (const name of names) {
      const file = join(this.folder, name);
      const bad = this.#sectors.filter(({ inode }) => inode === statSync(file).ino);
      if (bad.length === 0) continue;
      for (const number of this.#standingIn(file, bad)) found.add(number);
    }
    return found;
  }

  /** Returns the values in bad sectors of the file, with its WAL applied. */
  #standingIn(file: string, bad: readonly Sector[]): number[] {
    const copies = mkdtempSync(join(tmpdir(), 'tagferry-pages-'));
    const copy = join(copies, 'copy.db');
    const numbers: number[] = [];
    const gather = () => {
      const map = mapPages(copy);
      for (const { from } of bad) {
        for (let page = from / PAGE + 1; page <= (from + SECTOR) / PAGE; page++)
          numbers.push(...(map.numbers.get(page) ?? []));
      }
    };
    try {
      copyFileSync(file, copy);
      if (existsSync(`${file}-wal`)) copyFileSync(`${file}-wal`, `${copy}-wal`);
      const database = new Database(copy);
      database.pragma('wal_checkpoint(TRUNCATE)');
      database.close();
      gather();
    } finally {
      rmSync(copies, { recursive: true, force: true });
    }
    return numbers;
  }

  /** Among values with equal times, the one accepted last was posted last, even if a crash repeated some. */
  expectLastInOrder(): void {
    const lastAt = new Map(this.posts.flatMap(({ numbers }) => numbers).map((number, at) => [number, at]));
    const last = new Map<string, number>();
    const wrong: object[] = [];
    for (const [number] of [...lastAt].sort(([, a], [, b]) => a - b)) {
      const [, asset, key, timeMs] = (this.accepted.get(number) ?? this.perhaps.get(number))!;
      const place = `${asset}/${key}/${timeMs}`;
      if ((last.get(place) ?? -1) > number) wrong.push({ number, after: last.get(place), place });
      last.set(place, number);
    }
    expect(wrong).toEqual([]);
  }

  end(): void {
    rmSync(this.folder, { recursive: true, force: true });
    rmSync(this.#ordersFile, { force: true });
  }
}
