import { insteadOf } from '../base/nearest.ts';
import { readDuration } from '../base/quantity.ts';
import type { EventType } from '../contract/events.ts';
import type { Action, ActionKinds, ActionReading, ActionReport, RawAction } from './action-kinds.ts';
import { outlineAt, pathsOf } from './event-outline.ts';
import { escapePointer, type YamlFile } from './placed-yaml.ts';
import { type Problems, printable } from './problem.ts';
import type { ReadTags } from './read-tags.ts';
import { ValueRuleReader } from './value-rule-reading.ts';

/** Limits how long an action can block the queue of its reaction. */
const MAX_TIMEOUT_MS = 3_600_000;

export interface ActionPlace {
  /** JSON pointer of the action in the file. */
  at: string;
  file: YamlFile;
  tags: ReadTags;
  /** Event types that trigger the reaction. */
  types: readonly EventType[];
  problems: Problems;
}

/** Reads one action. Returns `undefined` after reporting a problem. */
export function readAction(raw: RawAction, kinds: ActionKinds, place: ActionPlace): Action | undefined {
  const { at, file, types, problems } = place;
  const found = kinds.filter(({ kind }) => raw[kind] !== undefined);
  const kind = found[0];
  if (kind === undefined || found.length > 1) {
    const names = (some: ActionKinds) => some.map((one) => one.kind);
    const reason = kind ? `one action contains ${names(found).join(' and ')}` : 'the action has no kind';
    const instead = kind ? 'begin each action with a dash' : `add one of ${names(kinds).join(', ')}`;
    problems.error(file.placeOf(at), reason, instead);
    return undefined;
  }
  const strangers = Object.keys(raw).filter((name) => name !== kind.kind && !Object.hasOwn(kind.members ?? {}, name));
  for (const member of strangers) {
    const instead = memberNames(kind.shape).includes(member) ? `move it into ${kind.kind}: { … }` : 'remove it';
    problems.error(
      file.placeOfName(`${at}/${member}`),
      `"${member}" is not supported by ${kind.kind}`,
      instead,
      member,
    );
  }
  const action = kind.read(raw, reportOf(raw, place));
  if (strangers.length > 0 || action === undefined) return undefined;
  for (const member of kind.templates ?? []) {
    checkTemplates(memberAt(raw, member), types, `${at}/${member}`, file, problems);
  }
  return action;
}

function memberNames(shape: ActionReading['shape']): string[] {
  return Object.keys((shape.properties as object | undefined) ?? {});
}

function memberAt(raw: unknown, pointer: string): unknown {
  return pointer.split('/').reduce((value, name) => (value as RawAction | undefined)?.[name], raw);
}

function reportOf(raw: RawAction, { at, file, tags, types, problems }: ActionPlace): ActionReport {
  const report: ActionReport = {
    problem: (member, ...text) => problems.error(file.placeOf(`${at}/${member}`), ...text),
    warning: (member, ...text) => problems.warning(file.placeOf(`${at}/${member}`), ...text),
    timeout(defaultMs) {
      const { timeout } = raw;
      if (timeout === undefined) return defaultMs;
      const reading = readDuration(String(timeout));
      const ms = 'value' in reading ? reading.value : Number.NaN;
      if (ms > 0 && ms <= MAX_TIMEOUT_MS) return ms;
      const reason = 'reason' in reading ? reading.reason : ms === 0 ? 'must be longer than 0' : 'is too long';
      report.problem(
        'timeout',
        `timeout "${timeout}" ${reason}`,
        'use a duration from 1ms to 1h, for example 10s',
        `${timeout}`,
      );
      return undefined;
    },
    broker(member, name) {
      const { sourceKinds } = tags;
      if (tags.unknown || (sourceKinds.has(name) && sourceKinds.get(name) === undefined)) return undefined;
      const source = sourceKinds.get(name);
      if (source?.publishes) return source.publishes;
      const brokers = [...sourceKinds].filter(([, kind]) => kind?.publishes).map(([one]) => one);
      const example = source
        ? 'use the name of a source with mqtt:'
        : `add "${printable(name)}" with mqtt: under sources: in tags.yaml`;
      const reason = source
        ? `"${printable(name)}" is a ${source.kind} source, not a broker`
        : `tags.yaml contains no source "${printable(name)}"`;
      report.problem(member, reason, brokers.length === 0 ? example : insteadOf(name, brokers), name);
      return undefined;
    },
    writable(member, { tag, key, group }) {
      const before = problems.errors.length;
      const raw = { tag, key, ...(group === undefined ? {} : { group }) };
      const value = new ValueRuleReader(`${at}/${member}`, file, tags, problems).readValue(raw);
      if (value === undefined || problems.errors.length > before) return undefined;
      const { from } = value;
      if (from?.writable !== undefined) return from.writable;
      const name = `"${printable(key)}" of tag "${printable(tag)}"`;
      const instead = from
        ? 'add writable: { min: …, max: … } to it in tags.yaml'
        : 'use a value with from: and writable: in tags.yaml';
      report.problem(member, `the value ${name} is not writable`, instead, key);
      return undefined;
    },
    numberTemplate(member, text) {
      const path = ONLY_PLACE.exec(text)?.[1];
      if (path === undefined) {
        const instead = 'use a number, or one template such as "{{content.data.value}}"';
        report.problem(member, `value "${printable(text)}" is not a number`, instead, text);
        return false;
      }
      const inner = path.startsWith('content.') ? path.slice('content.'.length) : '';
      const found = types.map((type) => outlineAt(type, inner));
      const isNumber =
        types.length === 0
          ? VALUE_EVENT_NUMBERS.includes(inner)
          : found.some((outline) => outline === undefined || outline === 'number' || outline === 'open');
      if (isNumber && inner !== '') return true;
      report.problem(member, `{{${printable(path)}}} is never a number`, 'use {{content.data.value}}', text);
      return false;
    },
  };
  return report;
}

const ONLY_PLACE = /^\{\{\s*([^{}]{1,200}?)\s*\}\}$/;
/** Numeric members in the content of events that are created by rules on local values. */
const VALUE_EVENT_NUMBERS = ['data.value', 'asset.id', 'instrumentation.id'];
const PLACE = /\{\{\s*([^{}]{1,200}?)\s*\}\}/g;
/** Members alongside `content` in a payload (platform 6.2). The first two are different spellings of the same name. */
const BESIDE_CONTENT = ['event_type', 'occurred_at', 'occured_at'];
const DEEPEST = 16;

/**
 * Warns about templates in a `post` body or a message that match no member of the event types and would be rendered as
 * empty text. This is not an error, because the platform may send undocumented members.
 */
function checkTemplates(
  written: unknown,
  types: readonly EventType[],
  at: string,
  file: YamlFile,
  problems: Problems,
  depth = 0,
): void {
  if (depth > DEEPEST || types.length === 0) return;
  if (typeof written === 'string') {
    for (const [, path] of written.matchAll(PLACE)) checkTemplate(path!, types, at, file, problems);
  } else if (typeof written === 'object' && written !== null) {
    for (const [name, member] of Object.entries(written)) {
      checkTemplates(member, types, `${at}/${escapePointer(name)}`, file, problems, depth + 1);
    }
  }
}

function checkTemplate(
  path: string,
  types: readonly EventType[],
  at: string,
  file: YamlFile,
  problems: Problems,
): void {
  if (BESIDE_CONTENT.includes(path) || path === 'content') return;
  const inner = path.startsWith('content.') ? path.slice('content.'.length) : undefined;
  if (inner !== undefined && types.some((type) => outlineAt(type, inner) !== undefined)) return;
  const known = [...BESIDE_CONTENT.slice(0, 2), ...pathsOf(types).map((one) => `content.${one}`)];
  const forgot = inner === undefined && types.some((type) => outlineAt(type, path) !== undefined);
  const instead = forgot ? `use {{content.${printable(path)}}}` : insteadOf(path, known);
  const whose = types.length === 1 ? `${types[0]} has` : 'these event types have';
  problems.warning(file.placeOf(at), `{{${printable(path)}}} is always empty: ${whose} no such member`, instead, '');
}
