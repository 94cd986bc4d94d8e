/** Reads one source in tags.yaml, using its kind. */
import { resolve } from 'node:path';
import { readEvery } from './common-members.ts';
import { checkPemFile } from './pem-files.ts';
import type { YamlFile } from './placed-yaml.ts';
import { escapePointer } from './placed-yaml.ts';
import { type Problems, printable, printableAddress } from './problem.ts';
import type { MemberReport, Members, SourceKinds, SourceReading } from './source-kinds.ts';
import type { Source } from './tags.ts';

/** Context for reading tags.yaml. */
export interface TagsContext {
  kinds: SourceKinds;
  /** Configuration folder. */
  directory: string;
  /** VALUES_PATH contains the instrumentation, which therefore distinguishes values with the same asset and key. */
  byInstrumentation: boolean;
}

/** Returns the kind of a source, or `undefined` if it has none or several. */
export function kindOf(raw: Members, kinds: SourceKinds): SourceReading | undefined {
  const named = kinds.filter(({ kind }) => raw[kind] !== undefined);
  return named.length === 1 ? named[0] : undefined;
}

/** Reads one source. Returns `undefined` after reporting a problem. */
export function readSource(
  name: string,
  raw: Members,
  at: string,
  file: YamlFile,
  problems: Problems,
  context: TagsContext,
): Source | undefined {
  const { kinds } = context;
  const kind = kindOf(raw, kinds);
  if (kind === undefined) {
    reportNoKind(name, raw, at, file, problems, kinds);
    return undefined;
  }
  const known = [...Object.keys(kind.sourceMembers), 'time_from', ...(kind.everyMs === undefined ? [] : ['every'])];
  let sound = true;
  for (const member of Object.keys(raw)) {
    if (known.includes(member)) continue;
    const reason = `"${member}" is not supported by ${kind.kind} sources`;
    problems.error(file.placeOfName(`${at}/${escapePointer(member)}`), reason, 'remove it', member);
    sound = false;
  }
  const report = reportAt((member) => `${at}/${escapePointer(member)}`, name, raw, file, problems, context.directory);
  const everyMs = readEvery(raw, kind, kind.everyMs ?? 0, report);
  const spec = kind.readSource(raw, report);
  if (!sound || everyMs === undefined || spec === undefined) return undefined;
  const timeFrom = raw.time_from === 'arrival' ? 'arrival' : 'source';
  return { kind: kind.kind, name, everyMs, timeFrom, spec };
}

function reportNoKind(
  name: string,
  raw: Members,
  at: string,
  file: YamlFile,
  problems: Problems,
  kinds: SourceKinds,
): void {
  const named = kinds.filter(({ kind }) => raw[kind] !== undefined).map(({ kind }) => kind);
  const [reason, instead] =
    named.length === 0
      ? [`source "${printable(name)}" has no kind`, `add one of ${examplesOf(kinds)}`]
      : [`source "${printable(name)}" has more than one kind: ${named.join(' and ')}`, 'use one source per kind'];
  problems.error(file.placeOfName(at), reason, instead, name);
}

/** Returns an example of each kind, as suggested for a source without a known kind. */
export function examplesOf(kinds: SourceKinds): string {
  return kinds.flatMap(({ example }) => (example === undefined ? [] : [example])).join(', ');
}

/** Reports problems with members of a source or value at their locations. */
export function reportAt(
  pointerOf: (member: string) => string,
  name: string,
  raw: Members,
  file: YamlFile,
  problems: Problems,
  directory: string,
): MemberReport {
  const textOf = (member: string) => {
    const text = typeof raw[member] === 'object' ? '' : String(raw[member] ?? '');
    // Any address may contain a password.
    return /@|:\/\//.test(text) ? printableAddress(text) : text;
  };
  const pathOf = (path: string) => resolve(directory, path);
  return {
    name: printable(name),
    problem(member, reason, instead) {
      problems.error(file.placeOf(pointerOf(member)), reason, instead, textOf(member));
    },
    warning: (member, reason, instead) =>
      problems.warning(file.placeOf(pointerOf(member)), reason, instead, textOf(member)),
    writtenText: (member, below = '') => file.textOf(pointerOf(member) + below),
    pathOf,
    pemPathOf(member, path, holds) {
      const written = { text: path, place: file.placeOf(pointerOf(member)) };
      checkPemFile(member, pathOf(path), holds, written, problems);
      return pathOf(path);
    },
  };
}
