/** `scripts/mutate`: changes a room one change at a time, and counts the changes that no test notices. */
import { createHash } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { chooseMutants, plantTree, ROOT } from './mutants.ts';
import { ROOMS, type Room } from './rooms.ts';
import { type Outcome, Trials } from './trials.ts';

const DONE = join(ROOT, '.cache/tagferry-mutate');

const HELP = `usage: scripts/mutate [--changes N] [--seed N] [--of GLOB] [room…]
Tries N changes (300 unless told, 0: all) of each room, chosen by the seed, each against the tests of the room that reach it;
of those files of it that GLOB matches (src/buffer/recovery/*) where it is given.
What was tried is kept, and not tried again while the room and the test file stay as they are. Rooms: ${ROOMS.map(({ name }) => name).join(', ')}`;

async function tried(
  room: Room,
  count: number,
  seed: number,
  of?: string,
): Promise<{ all: number; outcomes: Outcome[] }> {
  const { all, files, mutants } = await chooseMutants(room, count, seed, of);
  const key = createHash('sha256').update(JSON.stringify(files)).digest('hex').slice(0, 16);
  const tree = join(tmpdir(), `tagferry-mutate-${room.name}-${key}-${process.pid}`);
  try {
    plantTree(tree, files);
    const trials = new Trials(tree, join(DONE, `${room.name}-${key}`), room.tests, (line) => console.error(line));
    return { all, outcomes: await trials.run(mutants) };
  } finally {
    rmSync(tree, { recursive: true, force: true });
  }
}

/** Between which shares the room's own lies, 19 times of 20 (Wilson); a room that was tried wholly has but one. */
function interval(noticed: number, tried: number): string {
  const z = 1.96;
  const share = noticed / tried;
  const middle = (share + z ** 2 / (2 * tried)) / (1 + z ** 2 / tried);
  const half = (z / (1 + z ** 2 / tried)) * Math.sqrt((share * (1 - share)) / tried + z ** 2 / (4 * tried ** 2));
  return `${((middle - half) * 100).toFixed(1)} to ${((middle + half) * 100).toFixed(1)} %`;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    changes: { type: 'string', default: '300' },
    seed: { type: 'string', default: '1' },
    of: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
const unknown = positionals.filter((name) => !ROOMS.some((room) => room.name === name));
if (values.help || unknown.length > 0) {
  console.error(unknown.length > 0 ? `mutate: no room ${unknown.join(', ')}\n${HELP}` : HELP);
  process.exit(unknown.length > 0 ? 2 : 0);
}
for (const room of ROOMS.filter(({ name }) => positionals.length === 0 || positionals.includes(name))) {
  const { all, outcomes } = await tried(room, Number(values.changes), Number(values.seed), values.of);
  const noticed = outcomes.filter(({ noticedBy }) => noticedBy !== undefined).length;
  console.log(
    `${room.name}: ${noticed} of ${outcomes.length} changes noticed (${((noticed / outcomes.length) * 100).toFixed(1)} %, ` +
      `of all ${all}: ${outcomes.length === all ? 'these' : interval(noticed, outcomes.length)}), seed ${values.seed}`,
  );
  const missed = outcomes.filter(({ noticedBy }) => noticedBy === undefined);
  for (const { mutant, isReached } of missed) {
    const { fileName, location, mutatorName, replacement } = mutant;
    const where = `${fileName}:${location.start.line + 1}:${location.start.column}`;
    const what = replacement.replaceAll(/\s+/g, ' ').slice(0, 120);
    console.log(`  ${where} ${mutatorName}${isReached ? '' : ' (not reached)'}: ${what}`);
  }
  writeFileSync(
    join(DONE, `${room.name}-${values.seed}${values.of === undefined ? '' : '-part'}.json`),
    JSON.stringify(outcomes, undefined, 1),
  );
}
