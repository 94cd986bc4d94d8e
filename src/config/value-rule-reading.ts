import { insteadOf } from '../base/nearest.ts';
import { readDuration } from '../base/quantity.ts';
import { type RawCondition, readTag } from './condition-reading.ts';
import type { YamlFile } from './placed-yaml.ts';
import { type Problems, printable, shown } from './problem.ts';
import type { ValueCondition, ValueRule } from './reactions.ts';
import type { ReadTags } from './read-tags.ts';
import type { TagValue } from './tags.ts';

/** Members of `if` that select the condition, each with the members that may accompany it. */
const CONDITIONS: Readonly<Record<string, readonly string[]>> = {
  above: ['clear_below', 'for'],
  below: ['clear_above', 'for'],
  outside: ['for'],
  changes: [],
  quality: ['for'],
  silent: [],
  rate_above: ['for'],
};
const SERIES_MEMBERS = ['tag', 'key', 'group'];

/** Reads the `if` of one rule on values (`on: value`). Returns `undefined` after reporting a problem. */
export class ValueRuleReader {
  readonly #at: string;
  readonly #file: YamlFile;
  readonly #tags: ReadTags;
  readonly #problems: Problems;

  /** `at`: JSON pointer of the `if` member. */
  constructor(at: string, file: YamlFile, tags: ReadTags, problems: Problems) {
    this.#at = at;
    this.#file = file;
    this.#tags = tags;
    this.#problems = problems;
  }

  read(name: string, raw: Readonly<Record<string, RawCondition>>): ValueRule | undefined {
    const before = this.#problems.errors.length;
    const kinds = Object.keys(CONDITIONS).filter((member) => raw[member] !== undefined);
    const [kind] = kinds;
    if (kind === undefined || kinds.length > 1) {
      const reason = kind
        ? `a rule on values must have one condition, not ${kinds.join(' and ')}`
        : 'the rule has no condition';
      this.#report(
        '',
        reason,
        kind ? 'use one rule per condition' : `add one of ${Object.keys(CONDITIONS).join(', ')}`,
      );
      return undefined;
    }
    const known = [...SERIES_MEMBERS, kind, ...CONDITIONS[kind]!];
    for (const member of Object.keys(raw)) {
      if (!known.includes(member))
        this.#report(member, `"${printable(member)}" does not apply to ${kind}`, insteadOf(member, known));
    }
    const series = this.#readSeries(raw);
    const condition = this.#readCondition(kind, raw);
    const forMs = raw.for === undefined ? 0 : this.#readTime('for', raw.for);
    if (series === undefined || condition === undefined || forMs === undefined) return undefined;
    return this.#problems.errors.length > before ? undefined : { name, ...series, condition, forMs };
  }

  #readSeries(
    raw: Readonly<Record<string, RawCondition>>,
  ): Omit<ValueRule, 'name' | 'condition' | 'forMs'> | undefined {
    const value = this.readValue(raw);
    const named = value && this.#tags.tags.get(String(raw.tag));
    if (value === undefined || named === undefined) return undefined;
    const { name: tag, asset, instrumentation } = named;
    const { key, group } = value;
    return {
      tag,
      asset,
      ...(instrumentation === undefined ? {} : { instrumentation }),
      key,
      ...(group === undefined ? {} : { group }),
    };
  }

  /** Returns the value that `tag`, `key` and `group` select, or `undefined` after reporting a problem. */
  readValue(raw: Readonly<Record<string, RawCondition>>): TagValue | undefined {
    if (raw.tag === undefined || typeof raw.key !== 'string') {
      const missing = raw.tag === undefined ? 'tag' : 'key';
      this.#report('', `${missing} is missing`, `add the ${missing} of a value in tags.yaml`);
      return undefined;
    }
    if (Array.isArray(raw.tag)) {
      return this.#report('tag', 'a rule on values must have one tag, not a list', 'use one rule per tag');
    }
    const named = readTag(raw.tag, `${this.#at}/tag`, this.#file, this.#tags, this.#problems);
    const tag = named && this.#tags.tags.get(named.tag);
    if (named === undefined || tag === undefined) return undefined;
    const key = raw.key.toLowerCase();
    const group = typeof raw.group === 'string' ? raw.group.toLowerCase() : undefined;
    const values = [...tag.values.values()].filter(
      (value) => value.key === key && (group ?? value.group) === value.group,
    );
    if (values.length === 1) return values[0];
    if (values.length > 1) {
      const groups = values.map(({ group: name = '' }) => `"${name}"`).join(' and ');
      this.#report('key', `"${printable(raw.key)}" is in the groups ${groups}`, 'add group: with one of them');
    } else {
      const keys = [...new Set([...tag.values.values()].map((value) => value.key))];
      this.#report(
        'key',
        `the tag "${printable(named.tag)}" has no value "${printable(raw.key)}"`,
        insteadOf(key, keys),
        raw.key,
      );
    }
    return undefined;
  }

  #readCondition(kind: string, raw: Readonly<Record<string, RawCondition>>): ValueCondition | undefined {
    const written = raw[kind]!;
    switch (kind) {
      case 'above':
      case 'below':
        return this.#readThreshold(kind, written, raw);
      case 'outside': {
        const [low, high, ...rest] = Array.isArray(written) ? written : [];
        if (typeof low === 'number' && typeof high === 'number' && rest.length === 0 && low < high) {
          return { kind, low, high };
        }
        return this.#report(kind, `outside must be two numbers in ascending order`, 'use a value such as [10, 90]');
      }
      case 'changes':
        if (written === true) return { kind };
        return this.#report(kind, `changes must be true`, 'use changes: true');
      case 'quality':
        if (written === 'bad') return { kind: 'bad' };
        return this.#report(kind, `quality must be bad`, 'use quality: bad');
      case 'silent': {
        const ms = this.#readTime(kind, written);
        return ms === undefined ? undefined : { kind, ms };
      }
      default:
        return this.#readRate(written);
    }
  }

  #readThreshold(
    kind: 'above' | 'below',
    written: RawCondition,
    raw: Readonly<Record<string, RawCondition>>,
  ): ValueCondition | undefined {
    const member = kind === 'above' ? 'clear_below' : 'clear_above';
    const clear = raw[member];
    if (typeof written !== 'number')
      return this.#report(kind, `${kind} must be a number`, `specify a number, for example ${kind}: 80`);
    if (clear === undefined) return { kind, raise: written };
    if (typeof clear !== 'number')
      return this.#report(member, `${member} must be a number`, `specify a number, for example ${member}: 75`);
    const isApart = kind === 'above' ? clear <= written : clear >= written;
    if (isApart) return { kind, raise: written, clear };
    const side = kind === 'above' ? 'at most' : 'at least';
    return this.#report(member, `${member} ${clear} overlaps with ${kind} ${written}`, `use ${side} ${written}`);
  }

  #readRate(written: RawCondition): ValueCondition | undefined {
    const { change, per } = (typeof written === 'object' ? written : {}) as { change?: unknown; per?: unknown };
    const perMs = per === undefined ? undefined : this.#readTime('rate_above/per', per as string);
    if (typeof change === 'number' && change >= 0 && perMs !== undefined) return { kind: 'rate', change, perMs };
    if (per !== undefined && perMs === undefined) return undefined;
    return this.#report(
      'rate_above',
      'rate_above requires change and per',
      'specify both, for example { change: 2, per: 1s }',
    );
  }

  /** Reads a duration, which must be greater than 0. */
  #readTime(member: string, written: RawCondition): number | undefined {
    const reading = readDuration(String(written));
    if ('value' in reading && reading.value > 0) return reading.value;
    const reason = 'value' in reading ? 'must be longer than 0' : reading.reason;
    const instead = 'value' in reading ? 'use a value such as 5s' : reading.instead;
    return this.#report(member, `${member.split('/').at(-1)} ${shown(String(written))} ${reason}`, instead);
  }

  #report(member: string, reason: string, instead: string, text = member.split('/')[0]): undefined {
    const pointer = member === '' ? this.#at : `${this.#at}/${member}`;
    const place = member === '' ? this.#file.placeOfName(pointer) : this.#file.placeOf(pointer);
    this.#problems.error(place, reason, instead, text);
    return undefined;
  }
}
