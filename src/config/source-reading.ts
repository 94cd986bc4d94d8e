/** One source of tags.yaml: which kind it is, and what its kind makes of it. */
import { resolve } from 'node:path';
import { readEvery } from './common-members.ts';
import { checkPemFile } from './pem-files.ts';
import type { YamlFile } from './placed-yaml.ts';
import { escapePointer } from './placed-yaml.ts';
import { type Problems, printable } from './problem.ts';
import type { MemberReport, Members, SourceKinds, SourceReading } from './source-kinds.ts';
import type { GroupMember, Source } from './tags.ts';

/** Where files are named from, and what kinds of sources there are. */
export interface TagsContext {
  kinds: SourceKinds;
  /** The configuration folder. */
  directory: string;
  /** VALUES_PATH names an instrumentation, so that it tells values of one asset and key apart. */
  byInstrumentation: boolean;
}

/** What kind a source says it is; `undefined` where it says none or several. */
export function kindOf(raw: Members, kinds: SourceKinds): SourceReading | undefined {
  const named = kinds.filter(({ kind }) => raw[kind] !== undefined);
  return named.length === 1 ? named[0] : undefined;
}

/** Reads one source; `undefined` where it has a problem, which is reported. */
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
    const reason = `"${member}" means nothing for a ${kind.kind} source`;
    problems.error(file.placeOfName(`${at}/${escapePointer(member)}`), reason, 'remove it', member);
    sound = false;
  }
  const report = reportAt((member) => `${at}/${escapePointer(member)}`, name, raw, file, problems, context.directory);
  const everyMs = readEvery(raw, kind, kind.everyMs ?? 0, report);
  const spec = kind.readSource(raw, report);
  if (!sound || everyMs === undefined || spec === undefined) return undefined;
  const member = raw.member === undefined ? undefined : readMember(String(raw.member), kind.groupOf?.(spec), report);
  if (member === 'wrong') return undefined;
  const timeFrom = raw.time_from === 'arrival' ? 'arrival' : 'source';
  return { kind: kind.kind, name, everyMs, timeFrom, ...(member === undefined ? {} : { member }), spec };
}

/** `2/3`: the second of three agents. */
function readMember(text: string, group: string | undefined, report: MemberReport): GroupMember | 'wrong' {
  const [, number, of] = /^(\d{1,2})\/(\d{1,2})$/.exec(text)?.map(Number) ?? [];
  if (number === undefined || of === undefined || number < 1 || number > of) {
    report.problem('member', `member "${printable(text)}" is not a number of a group`, 'write for example 2/3');
    return 'wrong';
  }
  if (group === undefined) {
    const reason = 'member says which agent of a group this is, and the source has no group';
    report.problem('member', reason, 'add share: (MQTT) or durable: (NATS), or remove it');
    return 'wrong';
  }
  return { index: number - 1, of };
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
  const examples = kinds.flatMap(({ example }) => (example === undefined ? [] : [example]));
  const [reason, instead] =
    named.length === 0
      ? [`source "${printable(name)}" does not say what it is`, `add one of ${examples.join(', ')}`]
      : [`source "${printable(name)}" is ${named.join(' and ')} at once`, 'make a source of each'];
  problems.error(file.placeOfName(at), reason, instead, name);
}

/** Says what is wrong with members of a source or value, each where it stands. */
export function reportAt(
  pointerOf: (member: string) => string,
  name: string,
  raw: Members,
  file: YamlFile,
  problems: Problems,
  directory: string,
): MemberReport {
  const textOf = (member: string) => (typeof raw[member] === 'object' ? '' : String(raw[member] ?? ''));
  const pathOf = (path: string) => resolve(directory, path);
  return {
    name: printable(name),
    problem: (member, reason, instead) =>
      problems.error(file.placeOf(pointerOf(member)), reason, instead, textOf(member)),
    warning: (member, reason, instead) =>
      problems.warning(file.placeOf(pointerOf(member)), reason, instead, textOf(member)),
    pathOf,
    pemPathOf(member, path, holds) {
      const written = { text: path, place: file.placeOf(pointerOf(member)) };
      checkPemFile(member, pathOf(path), holds, written, problems);
      return pathOf(path);
    },
  };
}
