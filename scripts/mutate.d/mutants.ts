/** The changes of a room, by Stryker's instrumenter, and the tree in which each can be turned on. */
import { execFileSync } from 'node:child_process';
import { cpSync, globSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, matchesGlob, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Random } from '../fuzz.d/random.ts';
import type { Room } from './rooms.ts';

export const ROOT = join(import.meta.dirname, '../..');
const INSTRUMENTER = join(import.meta.dirname, 'node_modules/@stryker-mutator/instrumenter/dist/src/index.js');

interface Place {
  line: number;
  column: number;
}

interface Range {
  start: Place;
  end: Place;
}

export interface Mutant {
  id: string;
  fileName: string;
  mutatorName: string;
  replacement: string;
  location: Range;
  status?: 'Ignored';
}

interface SourceFile {
  name: string;
  content: string;
  /** All of it, or what stands in these ranges. */
  mutate: boolean | Range[];
}

/** Of Stryker's package, which is installed where this is run and nowhere else. */
interface Instrumenter {
  instrument(files: SourceFile[], options: object): Promise<{ files: SourceFile[]; mutants: Mutant[] }>;
}

/** Words for people, or so plainly needed (names of columns, of routes) that to notice its absence shows nothing. */
const LEFT_OUT = ['StringLiteral'];

async function instrumented(files: SourceFile[]): Promise<{ files: SourceFile[]; mutants: Mutant[] }> {
  const { Instrumenter } = (await import(pathToFileURL(INSTRUMENTER).href)) as {
    Instrumenter: new (logger: object) => Instrumenter;
  };
  const silent = { debug() {}, info() {}, warn() {}, isDebugEnabled: () => false };
  const options = { plugins: null, excludedMutations: LEFT_OUT, ignorers: [], noHeader: true };
  const found = await new Instrumenter(silent).instrument(files, options);
  return { ...found, mutants: found.mutants.filter(({ status }) => status !== 'Ignored') };
}

/** Where it stands and what it does: the same however many others are placed. */
const signOf = ({ fileName, location: { start, end }, mutatorName, replacement }: Mutant): string =>
  [fileName, start.line, start.column, end.line, end.column, mutatorName, replacement].join(' ');

export interface Chosen {
  /** How many changes the room has. */
  all: number;
  mutants: Mutant[];
  files: SourceFile[];
}

/** `count` changes of the room (0: all), by the seed, of the files that `of` matches. */
export async function chooseMutants(room: Room, count: number, seed: number, of = '**'): Promise<Chosen> {
  const names = room.sources.flatMap((pattern) => globSync(pattern, { cwd: ROOT })).toSorted();
  const sources = names.map((name) => ({ name, content: readFileSync(join(ROOT, name), 'utf8'), mutate: true }));
  const all = (await instrumented(sources)).mutants.filter(({ fileName }) => matchesGlob(fileName, of));
  const random = new Random(seed);
  const left = [...all];
  const taken = count === 0 || count >= all.length;
  const chosen = taken ? all : Array.from({ length: count }, () => left.splice(random.below(left.length), 1)[0]!);
  const signs = new Set(chosen.map(signOf));
  // Placed are these alone: a tree with all of them in it runs several times slower.
  const { files, mutants } = await instrumented(
    sources.map((source) => ({
      ...source,
      mutate: chosen.filter(({ fileName }) => fileName === source.name).map(({ location }) => location),
    })),
  );
  return { all: all.length, files, mutants: mutants.filter((mutant) => signs.has(signOf(mutant))) };
}

/** The tree as it is worked on, with the changed sources in it. */
export function plantTree(tree: string, files: readonly SourceFile[]): void {
  rmSync(tree, { recursive: true, force: true });
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: ROOT });
  const names = listed.toString().split('\0');
  for (const name of names.filter((one) => one !== '' && globSync(one, { cwd: ROOT }).length > 0)) {
    mkdirSync(dirname(join(tree, name)), { recursive: true });
    cpSync(join(ROOT, name), join(tree, name));
  }
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
  for (const { name, content } of files) {
    const at = join(tree, name);
    const from = relative(dirname(at), join(tree, 'scripts/mutate.d/mutant-switch.ts'));
    const head = `import { coverMutants as stryCov_9fa48, isMutantActive as stryMutAct_9fa48 } from '${from}';\n`;
    if (content.includes('stryMutAct_9fa48')) writeFileSync(at, head + content);
  }
}
