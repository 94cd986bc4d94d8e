import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  type Arbitrary,
  assert,
  asyncProperty,
  constantFrom,
  integer,
  json,
  oneof,
  string,
  tuple,
  uint8Array,
} from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TARGETS } from './targets.ts';

/** TAGFERRY_FUZZ: number of generated inputs per parser. TAGFERRY_SEED: seed of the generator. */
const RUNS = Number(process.env.TAGFERRY_FUZZ ?? 400);
const SEED = Number(process.env.TAGFERRY_SEED ?? 20_261_122);

/** Inputs found by a coverage-guided search. Each line is a JSON string with one character per byte. */
function corpusOf(name: string): Buffer[] {
  const path = join(import.meta.dirname, `corpus/${name}.jsonl`);
  if (!existsSync(path)) return [];
  const lines = readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '');
  return lines.map((line) => Buffer.from(JSON.parse(line) as string, 'latin1'));
}

/** Combines parts of known inputs. */
function spliced(known: readonly Buffer[]): Arbitrary<Buffer> {
  const part = tuple(constantFrom(...known), integer({ min: 0, max: 2_048 }), integer({ min: 0, max: 64 }));
  return tuple(part, part, uint8Array({ maxLength: 8 })).map(([[one, at, length], [other, from, more], bytes]) =>
    Buffer.concat([
      one.subarray(0, at % (one.length + 1)),
      bytes,
      other.subarray(from % (other.length + 1), (from % (other.length + 1)) + more),
      one.subarray((at % (one.length + 1)) + length),
    ]),
  );
}

/** Generates arbitrary bytes and texts, JSON after the first line of a known input, and combined known inputs. */
function inputs(known: readonly Buffer[]): Arbitrary<Buffer> {
  const heads = known.map((input) => input.subarray(0, input.indexOf(10) + 1));
  return oneof(
    { weight: 6, arbitrary: spliced(known) },
    { weight: 1, arbitrary: uint8Array({ maxLength: 512 }).map((bytes) => Buffer.from(bytes)) },
    { weight: 1, arbitrary: string({ unit: 'binary', maxLength: 128 }).map((text) => Buffer.from(text)) },
    {
      weight: 1,
      arbitrary: tuple(constantFrom(...heads), json({ maxDepth: 5 })).map(([head, text]) =>
        Buffer.concat([head, Buffer.from(text)]),
      ),
    },
  );
}

describe.each(TARGETS.map((target) => [target.name, target] as const))('%s', (name, target) => {
  const runs = Math.ceil(RUNS / (target.costs ?? 1));
  const known = [...target.seeds.map((seed) => Buffer.from(seed)), ...corpusOf(name)];

  it('accepts its seeds and the corpus without a crash', async () => {
    expect(known.length).toBeGreaterThan(target.seeds.length);
    for (const input of known) await expect(runWithInput(target.run, input)).resolves.toBeUndefined();
  });

  it(`accepts ${runs} generated inputs without a crash (seed ${SEED})`, async () => {
    const bears = asyncProperty(inputs(known), async (input) => target.run(input));
    await expect(assert(bears, { numRuns: runs, seed: SEED })).resolves.toBeUndefined();
  });
});

/** Adds the input to the error message. */
async function runWithInput(run: (bytes: Buffer) => void | Promise<void>, input: Buffer): Promise<void> {
  try {
    await run(input);
  } catch (error) {
    throw new Error(`at ${JSON.stringify(input.toString('latin1')).slice(0, 2_000)}`, { cause: error });
  }
}
