import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { describe, expect, it } from 'vitest';

const SRC = join(import.meta.dirname, '../../src');

/** Layers in docs/internals/architecture.md. A file imports only from lower layers, or from its own folder. */
const LAYERS: Record<string, number> = {
  commands: 7,
  agent: 6,
  page: 6,
  control: 5,
  ops: 5,
  sources: 4,
  uplink: 4,
  webhook: 4,
  reactions: 4,
  access: 3,
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
  layer: number;
  folder: string;
}

function placeOf(file: string): Place {
  const first = file.split('/')[0]!;
  if (file === 'main.ts') return { layer: 8, folder: 'main' };
  const layer = LAYERS[first];
  if (layer === undefined) throw new Error(`${file} does not belong to a layer`);
  return { layer, folder: first };
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

/** Returns one message per import in a forbidden direction. */
function wrongWays(files: string[]): string[] {
  const wrong: string[] = [];
  for (const file of files) {
    const from = placeOf(file);
    for (const target of importsOf(file)) {
      const to = placeOf(target);
      const allowed = to.folder === from.folder || to.layer < from.layer;
      if (!allowed) wrong.push(`${file} imports ${target}`);
      if (to.folder === 'opcua' && from.folder !== 'opcua' && target !== 'opcua/protocol.ts') {
        wrong.push(`${file} imports ${target}, which loads what only the package tagferry-opcua brings`);
      }
      if (from.folder === 'sandbox' && !['sandbox', 'contract', 'base'].includes(to.folder)) {
        wrong.push(`${file}: the sandbox imports ${target}, which belongs to the client`);
      }
    }
  }
  return wrong;
}

/** Returns import cycles, one for each import that closes a cycle. */
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

describe('source files', () => {
  const files = filesBelow(SRC);

  it('never import upwards or sideways, not even types', () => {
    expect(files.length).toBeGreaterThan(5);
    expect(wrongWays(files)).toEqual([]);
  });

  it('never import from a different kind of source', () => {
    const kindOf = (file: string) => /^sources\/([a-z]+)\//.exec(file)?.[1];
    const kinds = new Set(files.filter((file) => /-kind\.ts$|http-push\.ts$/.test(file)).map(kindOf));
    expect(kinds.size).toBeGreaterThan(8);
    const inKinds = files.filter((file) => kinds.has(kindOf(file)) && kindOf(file) !== undefined);
    const wrong = inKinds.flatMap((file) =>
      importsOf(file)
        .filter(
          (target) => kinds.has(kindOf(target)) && kindOf(target) !== undefined && kindOf(target) !== kindOf(file),
        )
        .map((target) => `${file} imports ${target}`),
    );
    expect(wrong).toEqual([]);
  });

  it('do not refer to a specific kind of source in shared source code', () => {
    const shared = files.filter((file) => /^sources\/(intake|formats|messages)\//.test(file));
    const wrong = shared.flatMap((file) =>
      importsOf(file)
        .filter((target) => /^sources\/(?!intake|formats|messages)[a-z]+\//.test(target))
        .map((target) => `${file} imports ${target}`),
    );
    expect(wrong).toEqual([]);
  });

  it('use the OPC UA library only in its own program', () => {
    const naming = files.filter((file) => /from 'node-opcua/.test(readFileSync(join(SRC, file), 'utf8')));
    expect(naming.length).toBeGreaterThan(0);
    expect(naming.filter((file) => !file.startsWith('opcua/'))).toEqual([]);
    expect(importsOf('opcua/protocol.ts')).toEqual([]);
    expect(readFileSync(join(SRC, 'opcua/protocol.ts'), 'utf8')).not.toMatch(/^import/m);
  });

  it('contain no import cycle, including type imports and dynamic imports', () => {
    const cycle = new Map([
      ['a', ['b']],
      ['b', ['c', 'd']],
      ['c', ['b']],
      ['d', ['d']],
    ]);
    expect(cycles(cycle)).toEqual(['b > c > b', 'd > d']);
    expect(cycles(new Map(files.map((file) => [file, importsOf(file)])))).toEqual([]);
  });

  it('use only inbound-server.ts for HTTP listeners, except in the sandbox', () => {
    const making = files.filter((file) =>
      /\bcreateServer\b[^;]*(?:from '[^']*\bhttps?(?:\.ts)?'|getBuiltinModule\('node:https?'\))|node:https?'\)\.createServer/.test(
        readFileSync(join(SRC, file), 'utf8'),
      ),
    );
    expect(making.sort()).toEqual(['base/inbound/inbound-server.ts', 'base/node-http.ts', 'sandbox/http/listener.ts']);
  });

  it('contain no cast to `never`, and no field that is unset after construction', () => {
    const open = /\bas never\b|^\s+(?:private |readonly |static |#)*\w+!:/m;
    expect(['  #store!: Store;', '  readonly a!: 1;', 'call(x as never)'].filter((line) => !open.test(line))).toEqual(
      [],
    );
    expect(files.filter((file) => open.test(readFileSync(join(SRC, file), 'utf8')))).toEqual([]);
  });

  it('have at most 600 lines', () => {
    const long = files.filter((file) => readFileSync(join(SRC, file), 'utf8').split('\n').length > 601);
    expect(long).toEqual([]);
  });

  it('read the wall clock and random numbers only in base/clock.ts', () => {
    const ambient = files.filter(
      (file) =>
        file !== 'base/clock.ts' &&
        /Date\.now\(\)|new Date\(\)|Math\.random\(\)/.test(readFileSync(join(SRC, file), 'utf8')),
    );
    expect(ambient).toEqual([]);
  });
});
