/** Reads the origin of a value in tags.yaml, using the kind of its source. */
import { COMMON_VALUE_MEMBERS, readEvery, readNoValue, readShaping } from './common-members.ts';
import type { YamlFile } from './placed-yaml.ts';
import { type Problems, printable } from './problem.ts';
import type { MemberReport, Members, SourceKinds, SourceReading } from './source-kinds.ts';
import type { Source, ValueOrigin } from './tags.ts';
import { readWritable } from './writable.ts';

/** Members of a value that are independent of its source. */
const OWN_MEMBERS = ['unit', 'group', 'from', 'map'];

/** Returns the members that are specific to a kind of source. */
export function originMembersOf(raw: Members): string[] {
  return Object.keys(raw).filter((member) => raw[member] !== undefined && !OWN_MEMBERS.includes(member));
}

/**
 * Returns the kind that the members of a value belong to. Used if the source does not exist, so that further problems
 * are found in the same run.
 */
export function kindByMembers(raw: Members, kinds: SourceKinds): SourceReading | undefined {
  const written = originMembersOf(raw);
  const fitting = kinds.filter(({ needs, valueMembers }) => {
    const fits = (member: string) => Object.hasOwn(valueMembers, member) || Object.hasOwn(COMMON_VALUE_MEMBERS, member);
    return needs !== undefined && written.includes(needs.member) && written.every(fits);
  });
  return fitting.length === 1 ? fitting[0] : undefined;
}

export interface ReadableValue {
  /** Members after replacement of placeholders such as `{tag}`. */
  raw: Members;
  template: Members;
  /** JSON pointers to the value and its members. */
  at: string;
  pointerOf(member: string): string;
  report: MemberReport;
}

/** Returns `undefined` after reporting a problem. `origin`: the source; `undefined` if it has a problem. */
export function readOrigin(
  value: ReadableValue,
  kind: SourceReading,
  kinds: SourceKinds,
  origin: Source | undefined,
  file: YamlFile,
  problems: Problems,
): ValueOrigin | undefined {
  const { raw, at, report } = value;
  const source = String(raw.from);
  const own = Object.keys(kind.valueMembers);
  const common = Object.keys(COMMON_VALUE_MEMBERS).filter((name) => name !== 'every' || (kind.everyMs ?? 0) > 0);
  const foreign = originMembersOf(raw).filter((member) => !own.includes(member) && !common.includes(member));
  for (const member of foreign) {
    const reason = `"${member}" is not supported by the ${kind.kind} source "${printable(source)}"`;
    const fitting = own.filter((one) => raw[one] === undefined);
    const others =
      own.length > 0 ? `support ${(fitting.length > 0 ? fitting : own).join(', ')}` : 'are assigned by tag and key';
    const instead = `remove it; ${kind.kind} values ${others}`;
    problems.error(file.placeOfName(value.pointerOf(member)), reason, instead, member);
  }
  const { needs } = kind;
  if (needs !== undefined && raw[needs.member] === undefined) {
    const reason = `a value from the ${kind.kind} source "${printable(source)}" requires "${needs.member}"`;
    problems.error(file.placeOfName(at), reason, `add ${needs.example}`, at.slice(at.lastIndexOf('/') + 1));
    return undefined;
  }
  if (foreign.length > 0) return undefined;
  const shaping = readShaping(raw, report);
  const every = readEvery(raw, kind, origin?.everyMs ?? kind.everyMs ?? 0, report);
  const spec = kind.readValue(raw, report, value.template);
  if (shaping === undefined || every === undefined || spec === undefined) return undefined;
  const conflict = origin && kind.conflictOf?.(origin.spec, spec);
  if (conflict !== undefined) {
    report.problem(...conflict);
    return undefined;
  }
  if (raw.no_value !== undefined) {
    const textOf = (pointer: string) => file.textOf(value.pointerOf('no_value') + pointer);
    const noValue = readNoValue(raw, kind, spec, report, textOf);
    if (noValue === undefined) return undefined;
    if (noValue.length > 0) shaping.noValue = noValue;
  }
  const read = { kind: kind.kind, source, everyMs: every, shaping, spec };
  if (raw.writable === undefined) return read;
  const writable = readWritable(raw, { kind, kinds, shaping, spec }, report);
  return writable && { ...read, writable };
}
