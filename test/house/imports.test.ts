import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { describe, expect, it } from 'vitest';

const SRC = join(import.meta.dirname, '../../src');

/** The floors of docs/architecture.md. A file imports from floors below its own, or from its own room. */
const FLOORS: Record<string, number> = {
  commands: 7,
  daemon: 6,
  page: 6,
  control: 5,
  ops: 5,
  sources: 4,
  uplink: 4,
  webhook: 4,
  reactions: 4,
  access: 4,
  store: 3,
  buffer: 2,
  platform: 2,
  broker: 2,
  sandbox: 2,
  opcua: 2,
  config: 2,
  contract: 1,
  base: 0,
};

interface Place {
  floor: number;
  room: string;
}

function placeOf(file: string): Place {
  const first = file.split('/')[0]!;
  if (file === 'main.ts') return { floor: 8, room: 'main' };
  const floor = FLOORS[first];
  if (floor === undefined) throw new Error(`${file} stands in no room of the house`);
  return { floor, room: first };
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => relative(SRC, join(entry.parentPath, entry.name)));
}

function importsOf(file: string): string[] {
  const text = readFileSync(join(SRC, file), 'utf8');
  const found = text.matchAll(/(?:from\s+|import\s*\(\s*|import\s+|new URL\(\s*)'(\.{1,2}\/[^']+\.tsx?)'/g);
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
      if (to.room === 'opcua' && from.room !== 'opcua' && target !== 'opcua/protocol.ts') {
        wrong.push(`${file} imports ${target}, which loads what only the package tagferry-opcua brings`);
      }
      if (from.room === 'sandbox' && !['sandbox', 'contract', 'base'].includes(to.room)) {
        wrong.push(`${file}: the sandbox imports ${target}, which belongs to the client`);
      }
    }
  }
  return wrong;
}

/** Ways of imports that come back to where they began, one for each import that closes one. */
function cycles(importsOfFile: ReadonlyMap<string, readonly string[]>): string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const way: string[] = [];
  function follow(file: string): void {
    const begun = way.indexOf(file);
    if (begun >= 0) found.push([...way.slice(begun), file].join(' > '));
    if (begun >= 0 || done.has(file)) return;
    way.push(file);
    for (const target of importsOfFile.get(file) ?? []) follow(target);
    way.pop();
    done.add(file);
  }
  for (const file of importsOfFile.keys()) follow(file);
  return found;
}

describe('the house', () => {
  const files = filesBelow(SRC);

  it('has no import that goes up or across, type imports included', () => {
    expect(files.length).toBeGreaterThan(5);
    expect(wrongWays(files)).toEqual([]);
  });

  it('names the library of OPC UA in the room of its program alone', () => {
    const naming = files.filter((file) => /from 'node-opcua/.test(readFileSync(join(SRC, file), 'utf8')));
    expect(naming.length).toBeGreaterThan(0);
    expect(naming.filter((file) => !file.startsWith('opcua/'))).toEqual([]);
    expect(importsOf('opcua/protocol.ts')).toEqual([]);
    expect(readFileSync(join(SRC, 'opcua/protocol.ts'), 'utf8')).not.toMatch(/^import/m);
  });

  it('has no cycle of imports, type imports and those made later included', () => {
    const cycle = new Map([
      ['a', ['b']],
      ['b', ['c', 'd']],
      ['c', ['b']],
      ['d', ['d']],
    ]);
    expect(cycles(cycle)).toEqual(['b > c > b', 'd > d']);
    expect(cycles(new Map(files.map((file) => [file, importsOf(file)])))).toEqual([]);
  });

  it('listens for HTTP by one part, inbound-server.ts; the sandbox, which breaks connections on purpose, by its own', () => {
    const making = files.filter((file) =>
      /\bcreateServer\b[^;]*(?:from '[^']*\bhttps?(?:\.ts)?'|getBuiltinModule\('node:https?'\))|node:https?'\)\.createServer/.test(
        readFileSync(join(SRC, file), 'utf8'),
      ),
    );
    expect(making.sort()).toEqual(['base/inbound/inbound-server.ts', 'base/node-http.ts', 'sandbox/http/listener.ts']);
  });

  it('casts nothing to `never`, and has no field that its constructor leaves open', () => {
    const open = /\bas never\b|^\s+(?:private |readonly |static |#)*\w+!:/m;
    expect(['  #store!: Store;', '  readonly a!: 1;', 'call(x as never)'].filter((line) => !open.test(line))).toEqual(
      [],
    );
    expect(files.filter((file) => open.test(readFileSync(join(SRC, file), 'utf8')))).toEqual([]);
  });

  it('has no file over 400 lines', () => {
    const long = files.filter((file) => readFileSync(join(SRC, file), 'utf8').split('\n').length > 401);
    expect(long).toEqual([]);
  });

  it('reads the wall clock and chance in base/clock.ts alone', () => {
    const ambient = files.filter(
      (file) =>
        file !== 'base/clock.ts' &&
        /Date\.now\(\)|new Date\(\)|Math\.random\(\)/.test(readFileSync(join(SRC, file), 'utf8')),
    );
    expect(ambient).toEqual([]);
  });
});
