/** Snapshots of two databases while another process writes to both. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../src/base/database.ts';
import { withSnapshot } from '../../../src/store/store-snapshot.ts';

let folder: string;
let writer: ChildProcess | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-snapshot-'));
  writer = undefined;
});
afterEach(async () => {
  if (writer && writer.exitCode === null && writer.signalCode === null) {
    const gone = once(writer, 'exit');
    writer.kill('SIGKILL');
    await gone;
  }
  rmSync(folder, { recursive: true, force: true });
});

const pathOf = (name: string) => join(folder, `${name}.db`);

/** Commits increasing numbers to both databases, which grow and shrink and restart their WALs. */
const WRITER = `
  import { openDatabase } from '${join(import.meta.dirname, '../../../src/base/database.ts')}';
  const databases = process.argv.slice(1).map((path) => openDatabase(path, { checkpointPages: 20 }));
  for (const one of databases) {
    one.exec('CREATE TABLE row (n INTEGER PRIMARY KEY, filling BLOB); CREATE TABLE last (n INTEGER); INSERT INTO last VALUES (0)');
  }
  process.stdout.write('ready');
  for (let n = 1; ; n++) {
    for (const one of databases) {
      one.transaction(() => {
        one.prepare('INSERT INTO row VALUES (?, ?)').run(n, Buffer.alloc(n % 7 === 0 ? 20_000 : 100, n % 251));
        one.prepare('DELETE FROM row WHERE n < ?').run(n - 30);
        one.prepare('UPDATE last SET n = ?').run(n);
      })();
      if (n % 5 === 0) one.exec('PRAGMA incremental_vacuum(50)');
      if (n % 11 === 0) one.pragma('wal_checkpoint(PASSIVE)');
    }
    if (n % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  }
`;

async function startWriter(): Promise<void> {
  const flags = ['--input-type=module', '--experimental-strip-types', '-e', WRITER, pathOf('one'), pathOf('two')];
  const child = spawn(process.execPath, flags, { stdio: ['ignore', 'pipe', 'inherit'] });
  writer = child;
  await once(child.stdout!, 'data');
}

/** Copies both slowly while the writer continues. Returns the folder with the copies. */
async function copyTo(name: string): Promise<string> {
  const target = mkdtempSync(join(folder, name));
  await withSnapshot([pathOf('one'), pathOf('two')], async (snapshots) => {
    for (const { path, files } of snapshots) {
      for (const { ending, bytes, read } of files) {
        const file = openSync(join(target, `${basename(path)}${ending}`), 'w');
        let written = 0;
        for (const piece of read()) {
          written += writeSync(file, piece);
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
        closeSync(file);
        expect(written).toBe(bytes);
      }
    }
  });
  return target;
}

function lookAt(path: string): { last: number; rows: number[]; sound: unknown } {
  const database = openDatabase(path);
  try {
    const rows = database.prepare('SELECT n FROM row ORDER BY n').pluck().all() as number[];
    const filled = database.prepare('SELECT count(*) FROM row WHERE length(filling) NOT IN (100, 20000)').pluck().get();
    expect(filled).toBe(0);
    const last = database.prepare('SELECT n FROM last').pluck().get() as number;
    return { last, rows, sound: database.pragma('integrity_check', { simple: true }) };
  } finally {
    database.close();
  }
}

describe('snapshot of two databases', () => {
  it('is consistent during long reads and many writes', async () => {
    await startWriter();
    let before = 0;
    for (let round = 0; round < 25; round++) {
      const target = await copyTo(`round-${round}-`);
      const [one, two] = ['one.db', 'two.db'].map((name) => lookAt(join(target, name)));
      for (const { last, rows, sound } of [one!, two!]) {
        expect(sound).toBe('ok');
        expect(rows).toEqual(Array.from({ length: Math.min(last, 31) }, (_, i) => last - Math.min(last, 31) + 1 + i));
      }
      // The writer commits to the first database, then to the second, so they differ by at most one commit.
      expect([0, 1]).toContain(one!.last - two!.last);
      expect(one!.last).toBeGreaterThanOrEqual(before);
      before = one!.last;
      rmSync(target, { recursive: true });
    }
  });

  it('releases the WAL and leaves no files behind', async () => {
    await startWriter();
    await copyTo('copy-');
    writer!.kill('SIGKILL');
    await once(writer!, 'exit');
    const database = openDatabase(pathOf('one'));
    const [outcome] = database.pragma('wal_checkpoint(TRUNCATE)') as { busy: number }[];
    expect(outcome).toMatchObject({ busy: 0 });
    database.close();
    expect(existsSync(`${pathOf('one')}-wal`)).toBe(false);
  });

  it('contains all commits from a killed process', async () => {
    await startWriter();
    await new Promise((resolve) => setTimeout(resolve, 200));
    writer!.kill('SIGKILL');
    await once(writer!, 'exit');
    const target = await copyTo('copy-');
    expect(lookAt(join(target, 'one.db'))).toEqual(lookAt(pathOf('one')));
    expect(lookAt(join(target, 'two.db'))).toEqual(lookAt(pathOf('two')));
  });
});
