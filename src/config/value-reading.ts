/** Where a value of tags.yaml comes from, its source's kind being known. */
import { COMMON_VALUE_MEMBERS, readEvery, readShaping } from './common-members.ts';
import type { YamlFile } from './placed-yaml.ts';
import { type Problems, printable } from './problem.ts';
import type { MemberReport, Members, SourceKinds, SourceReading } from './source-kinds.ts';
import type { ValueOrigin } from './tags.ts';

/** Members that a value has whether or not the agent reads it. */
const OWN_MEMBERS = ['unit', 'group', 'from'];

/** What a value says that only a source gives a meaning. */
export function originMembersOf(raw: Members): string[] {
  return Object.keys(raw).filter((member) => raw[member] !== undefined && !OWN_MEMBERS.includes(member));
}

/**
 * What kind of source a value is written for, by its members, where the source that it names is not there: what else is wrong
 * with it is then said in the same look at the file.
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
  /** With `{tag}` and its like filled in. */
  raw: Members;
  template: Members;
  /** Pointers of the value and of its members. */
  at: string;
  pointerOf(member: string): string;
  report: MemberReport;
}

/** `undefined` where it has a problem, which is reported. `everyMs` is that of its source. */
export function readOrigin(
  value: ReadableValue,
  kind: SourceReading,
  everyMs: number,
  file: YamlFile,
  problems: Problems,
): ValueOrigin | undefined {
  const { raw, at, report } = value;
  const source = String(raw.from);
  const own = Object.keys(kind.valueMembers);
  const common = Object.keys(COMMON_VALUE_MEMBERS).filter((name) => name !== 'every' || kind.everyMs !== undefined);
  const strangers = originMembersOf(raw).filter((member) => !own.includes(member) && !common.includes(member));
  for (const member of strangers) {
    const reason = `"${member}" does not fit "${printable(source)}", which is a ${kind.kind} source`;
    const fitting = own.filter((one) => raw[one] === undefined);
    const instead = `remove it; ${kind.kind} values have ${fitting.join(', ') || 'no more'}`;
    problems.error(file.placeOfName(value.pointerOf(member)), reason, instead, member);
  }
  const { needs } = kind;
  if (needs !== undefined && raw[needs.member] === undefined) {
    const reason = `a value from the ${kind.kind} source "${printable(source)}" has no "${needs.member}"`;
    problems.error(file.placeOfName(at), reason, `add ${needs.example}`, at.slice(at.lastIndexOf('/') + 1));
    return undefined;
  }
  if (strangers.length > 0) return undefined;
  const shaping = readShaping(raw, report);
  const every = readEvery(raw, kind, everyMs, report);
  const spec = kind.readValue(raw, report, value.template);
  if (shaping === undefined || every === undefined || spec === undefined) return undefined;
  return { kind: kind.kind, source, everyMs: every, shaping, spec };
}
