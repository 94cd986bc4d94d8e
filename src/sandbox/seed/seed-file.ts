import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { messageOf, UsageError } from '../../base/errors.ts';
import { problemOf } from '../site/record-check.ts';
import { KINDS, type Kind } from '../site/records.ts';
import { type SandboxSeed, siteOf } from './seed.ts';

const MEMBERS: readonly string[] = [...KINDS, 'owners'];

/** Reads a seed from YAML or JSON. Throws `UsageError` where the file cannot be read or holds what no seed has. */
export function readSeedFile(file: string): SandboxSeed {
  let seed: unknown;
  try {
    seed = parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new UsageError(`the seed ${file} cannot be read: ${messageOf(error)}`);
  }
  if (typeof seed !== 'object' || seed === null || Array.isArray(seed)) {
    throw new UsageError(`the seed ${file} is not a map of lists`, `It may hold: ${MEMBERS.join(', ')}.`);
  }
  for (const [name, records] of Object.entries(seed)) {
    if (!MEMBERS.includes(name)) {
      throw new UsageError(
        `the seed ${file} holds ${name}, which no sandbox knows`,
        `It may hold: ${MEMBERS.join(', ')}.`,
      );
    }
    if (!Array.isArray(records)) throw new UsageError(`${name} in the seed ${file} is not a list`);
    for (const record of records) {
      const needsId = name !== 'permissions' && name !== 'owners';
      if (needsId && !Number.isInteger((record as { id?: unknown } | null)?.id)) {
        throw new UsageError(`an entry of ${name} in the seed ${file} has no id`);
      }
      if (!needsId) continue;
      const problem = problemOf(name as Kind, record as object);
      if (problem) {
        const { id } = record as { id: number };
        throw new UsageError(`${problem.member} of ${name} ${id} in the seed ${file} ${problem.message}`);
      }
    }
  }
  try {
    siteOf(seed as SandboxSeed);
  } catch (error) {
    throw new UsageError(`${messageOf(error)} (${file})`);
  }
  return seed as SandboxSeed;
}
