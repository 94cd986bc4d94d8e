/** `scripts/mutate`: changes lines of a room one at a time, and counts the changes that no test notices. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Random } from '../fuzz.d/random.ts';
import { ROOMS, type Room } from './rooms.ts';

const ROOT = join(import.meta.dirname, '../..');
const STRYKER = join(import.meta.dirname, 'node_modules/@stryker-mutator');
const DONE = join(ROOT, '.cache/tagferry-mutate');
/** Lines that are tried in one go: what was tried stays when the rest is stopped. */
const LINES_AT_ONCE = 25;

const HELP = `usage: scripts/mutate [--lines N] [--seed N] [room…]
Tries every change that Stryker knows on N lines (60 unless told, 0: all) of each room, chosen by the seed, each against the room's tests.
What was tried is kept, and not tried again while sources and tests stay as they are. Rooms: ${ROOMS.map(({ name }) => name).join(', ')}`;

interface Mutant {
  file: string;
  line: number;
  mutator: string;
  replacement: string;
  status: 'Killed' | 'Survived' | 'NoCoverage' | 'Timeout' | 'CompileError' | 'RuntimeError' | 'Ignored';
}

/** `file:line-line` of lines that hold code. */
function linesOf(room: Room): string[] {
  const files = room.sources.flatMap((pattern) => globSync(pattern, { cwd: ROOT })).toSorted();
  return files.flatMap((file) => {
    let inComment = false;
    return readFileSync(join(ROOT, file), 'utf8')
      .split('\n')
      .flatMap((text, at) => {
        const line = text.trim();
        inComment ||= line.startsWith('/*');
        const isCode =
          !inComment && /\w/.test(line) && !/^(\/\/|import\b|export (interface|type)\b|readonly \w+[?]?:)/.test(line);
        if (line.includes('*/')) inComment = false;
        return isCode ? [`${file}:${at + 1}-${at + 1}`] : [];
      });
  });
}

function chosen(lines: readonly string[], count: number, seed: number): string[] {
  if (count === 0 || count >= lines.length) return [...lines];
  const random = new Random(seed);
  const left = [...lines];
  return Array.from({ length: count }, () => left.splice(random.below(left.length), 1)[0]!);
}

/** By what the outcome of a trial depends on. */
function keyOf(room: Room, lines: readonly string[]): string {
  const sum = createHash('sha256').update(lines.join());
  for (const pattern of [...room.sources, ...room.tests]) {
    for (const file of globSync(pattern, { cwd: ROOT }).toSorted()) sum.update(readFileSync(join(ROOT, file)));
  }
  return `${room.name}-${sum.digest('hex').slice(0, 16)}`;
}

function tried(room: Room, lines: readonly string[]): Mutant[] {
  const key = keyOf(room, lines);
  const kept = join(DONE, `${key}.json`);
  if (existsSync(kept)) return JSON.parse(readFileSync(kept, 'utf8')) as Mutant[];
  const folder = join(tmpdir(), `tagferry-${key}`);
  mkdirSync(folder, { recursive: true });
  mkdirSync(DONE, { recursive: true });
  const report = join(folder, 'report.json');
  const configuration = join(folder, 'stryker.json');
  writeFileSync(
    configuration,
    JSON.stringify({
      testRunner: 'vitest',
      plugins: [join(STRYKER, 'vitest-runner/dist/src/index.js')],
      mutate: lines,
      concurrency: 1,
      coverageAnalysis: 'perTest',
      vitest: { configFile: 'scripts/mutate.d/vitest.config.ts', related: false },
      reporters: ['json'],
      jsonReporter: { fileName: report },
      tempDirName: join(folder, 'tree'),
      // Of what tests have built: links to folders, which Stryker cannot copy.
      ignorePatterns: ['.cache'],
      // There is none: Stryker reads it with the API of an older TypeScript.
      tsconfigFile: 'none.json',
      timeoutMS: 30_000,
      dryRunTimeoutMinutes: 60,
    }),
  );
  const run = spawnSync(process.execPath, [join(STRYKER, 'core/bin/stryker.js'), 'run', configuration], {
    cwd: ROOT,
    env: { ...process.env, TAGFERRY_MUTATE_TESTS: room.tests.join('|') },
    encoding: 'utf8',
  });
  if (!existsSync(report))
    throw new Error(`stryker ended with ${run.status}:\n${run.stdout.slice(-3_000)}${run.stderr}`);
  const found = mutantsIn(JSON.parse(readFileSync(report, 'utf8')) as Report);
  writeFileSync(kept, JSON.stringify(found));
  rmSync(folder, { recursive: true, force: true });
  return found;
}

interface Report {
  files: Record<
    string,
    {
      mutants: {
        mutatorName: string;
        replacement?: string;
        status: Mutant['status'];
        location: { start: { line: number } };
      }[];
    }
  >;
}

function mutantsIn({ files }: Report): Mutant[] {
  return Object.entries(files).flatMap(([file, { mutants }]) =>
    mutants.map(({ mutatorName, replacement = '', status, location }) => ({
      file,
      line: location.start.line,
      mutator: mutatorName,
      replacement: replacement.replaceAll(/\s+/g, ' ').slice(0, 100),
      status,
    })),
  );
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    lines: { type: 'string', default: '60' },
    seed: { type: 'string', default: '1' },
    help: { type: 'boolean', default: false },
  },
});
const unknown = positionals.filter((name) => !ROOMS.some((room) => room.name === name));
if (values.help || unknown.length > 0) {
  console.error(unknown.length > 0 ? `mutate: no room ${unknown.join(', ')}\n${HELP}` : HELP);
  process.exit(unknown.length > 0 ? 2 : 0);
}
for (const room of ROOMS.filter(({ name }) => positionals.length === 0 || positionals.includes(name))) {
  const all = linesOf(room);
  const lines = chosen(all, Number(values.lines), Number(values.seed));
  const mutants: Mutant[] = [];
  for (let from = 0; from < lines.length; from += LINES_AT_ONCE) {
    mutants.push(...tried(room, lines.slice(from, from + LINES_AT_ONCE)));
    console.error(`mutate: ${room.name}: ${Math.min(from + LINES_AT_ONCE, lines.length)} of ${lines.length} lines`);
  }
  const counted = (...statuses: Mutant['status'][]) => mutants.filter(({ status }) => statuses.includes(status)).length;
  const noticed = counted('Killed', 'Timeout');
  const missed = counted('Survived', 'NoCoverage');
  console.log(
    `${room.name}: ${noticed} of ${noticed + missed} changes noticed (${((noticed / (noticed + missed || 1)) * 100).toFixed(1)} %), ` +
      `${lines.length} of ${all.length} lines, seed ${values.seed}`,
  );
  for (const { file, line, mutator, replacement, status } of mutants) {
    if (status === 'Survived' || status === 'NoCoverage')
      console.log(`  ${file}:${line} ${mutator} ${status}: ${replacement}`);
  }
}
