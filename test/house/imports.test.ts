import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { describe, expect, it } from 'vitest';

const SRC = join(import.meta.dirname, '../../src');

/** The floors of DESIGN.md. A file imports from floors below its own, or from its own room. */
const FLOORS: Record<string, number> = {
  commands: 5,
  agent: 4,
  sources: 3,
  uplink: 3,
  webhook: 3,
  reactions: 3,
  access: 3,
  buffer: 2,
  platform: 2,
  broker: 2,
  sandbox: 2,
  config: 2,
  contract: 1,
};
const GROUND = [
  'clock.ts',
  'errors.ts',
  'logger.ts',
  'database.ts',
  'repeats.ts',
  'retry.ts',
  'listen.ts',
  'durable-file.ts',
  'installation.ts',
  'node-http.ts',
];

interface Place {
  floor: number;
  room: string;
}

function placeOf(file: string): Place {
  const first = file.split('/')[0]!;
  if (GROUND.includes(file)) return { floor: 0, room: 'ground' };
  if (file === 'main.ts') return { floor: 6, room: 'main' };
  const floor = FLOORS[first];
  if (floor === undefined) throw new Error(`${file} stands in no room of the house`);
  return { floor, room: first };
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => relative(SRC, join(entry.parentPath, entry.name)));
}

function importsOf(file: string): string[] {
  const text = readFileSync(join(SRC, file), 'utf8');
  const found = text.matchAll(/(?:from\s+|import\s*\(\s*|import\s+|new URL\(\s*)'(\.{1,2}\/[^']+\.ts)'/g);
  return [...found].map((match) => normalize(join(dirname(file), match[1]!)));
}

/** Sentences about imports that go the wrong way. */
function wrongWays(files: string[]): string[] {
  const wrong: string[] = [];
  for (const file of files) {
    const from = placeOf(file);
    for (const target of importsOf(file)) {
      const to = placeOf(target);
      const allowed = to.room === from.room || to.floor < from.floor;
      if (!allowed) wrong.push(`${file} imports ${target}`);
      if (from.room === 'sandbox' && !['sandbox', 'contract', 'ground'].includes(to.room)) {
        wrong.push(`${file}: the sandbox imports ${target}, which belongs to the client`);
      }
    }
  }
  return wrong;
}

describe('the house', () => {
  const files = filesBelow(SRC);

  it('has no import that goes up or across, type imports included', () => {
    expect(files.length).toBeGreaterThan(5);
    expect(wrongWays(files)).toEqual([]);
  });

  it('has no file over 400 lines', () => {
    const long = files.filter((file) => readFileSync(join(SRC, file), 'utf8').split('\n').length > 401);
    expect(long).toEqual([]);
  });

  it('reads the wall clock and chance in clock.ts alone', () => {
    const ambient = files.filter(
      (file) =>
        file !== 'clock.ts' &&
        /Date\.now\(\)|new Date\(\)|Math\.random\(\)/.test(readFileSync(join(SRC, file), 'utf8')),
    );
    expect(ambient).toEqual([]);
  });
});
