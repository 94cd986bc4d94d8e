import { insteadOf } from '../base/nearest.ts';
import { readDuration } from '../base/quantity.ts';
import { type EventType, isEventType } from '../contract/events.ts';
import type { Action, ActionKinds, RawAction } from './action-kinds.ts';
import { readAction } from './action-reading.ts';
import { type RawCondition, readConditions } from './condition-reading.ts';
import { ALL_EVENT_TYPES } from './event-outline.ts';
import { isMapping, type YamlFile } from './placed-yaml.ts';
import { type Problems, placeName, printable } from './problem.ts';
import type { Reaction } from './reactions.ts';
import { reactionsSchema } from './reactions-schema.ts';
import type { ReadSettings } from './read-settings.ts';
import type { ReadTags } from './read-tags.ts';
import { checkShape, compileSchema } from './schema-problems.ts';
import { ValueRuleReader } from './value-rule-reading.ts';

interface RawReaction {
  name: string;
  on: string | string[];
  if?: Record<string, RawCondition> | null;
  cooldown?: string | number;
  max_age?: string | number;
  do: RawAction[];
  on_clear?: RawAction[];
}

/** Default maximum age. An alarm delayed by a long outage must not operate a valve, so it is only logged. */
const MAX_AGE_MS = 600_000;

/** Validates reactions.yaml against the schema and the tags. Invalid reactions are reported and omitted. */
export function readReactions(
  file: YamlFile,
  kinds: ActionKinds,
  tags: ReadTags,
  settings: ReadSettings,
  problems: Problems,
): Reaction[] {
  if (file.data === undefined) return [];
  const verdict = checkShape(compileSchema(reactionsSchema(kinds)), file, problems);
  const entries = (file.data as { reactions?: unknown } | null)?.reactions;
  if (!Array.isArray(entries)) return [];
  const pointerOfName = new Map<string, string>();
  const reactions: Reaction[] = [];
  for (const [index, entry] of entries.entries()) {
    const at = `/reactions/${index}`;
    const raw = entry as RawReaction;
    if (typeof raw?.name === 'string') {
      const earlier = pointerOfName.get(raw.name);
      if (earlier === undefined) pointerOfName.set(raw.name, `${at}/name`);
      else {
        const here = file.placeOf(`${at}/name`);
        const first = file.placeOf(earlier);
        const where = first.file === here.file ? `on line ${first.line}` : `in ${placeName(first)}`;
        const reason = `the name "${printable(raw.name)}" is already used ${where}`;
        problems.error(here, reason, 'use a unique name for each reaction', raw.name);
      }
    }
    reactions.push(...readReaction(raw, at, verdict.isBroken, file, kinds, tags, settings, problems));
  }
  return reactions;
}

/** Reads all parts independently, so that a problem in one does not hide problems in others. */
function readReaction(
  raw: RawReaction,
  at: string,
  isBroken: (pointer: string) => boolean,
  file: YamlFile,
  kinds: ActionKinds,
  tags: ReadTags,
  settings: ReadSettings,
  problems: Problems,
): Reaction[] {
  if (!isMapping(raw)) return [];
  const sound = (member: string) => !isBroken(`${at}/${member}`);
  const isOnValue = raw.on === 'value';
  const on =
    !isOnValue && raw.on !== undefined && sound('on') ? readTypes(raw.on, at, file, settings, problems) : undefined;
  const types = on === undefined ? [] : on === '*' ? ALL_EVENT_TYPES : on;
  const conditions =
    isMapping(raw.if ?? {}) && !isOnValue
      ? readConditions(raw.if ?? {}, types, `${at}/if`, isBroken, file, tags, problems)
      : undefined;
  const rule =
    isOnValue && !isBroken(`${at}/if`)
      ? new ValueRuleReader(`${at}/if`, file, tags, problems).read(raw.name, raw.if ?? {})
      : undefined;
  if (raw.on_clear !== undefined && (!isOnValue || rule?.condition.kind === 'changes')) {
    const reason = isOnValue ? 'a rule with changes is never cleared' : 'on_clear requires on: value';
    problems.error(file.placeOfName(`${at}/on_clear`), reason, 'remove on_clear', 'on_clear');
  }
  const cooldownMs = sound('cooldown') ? readTime('cooldown', raw.cooldown, 0, at, file, problems) : undefined;
  const maxAgeMs = sound('max_age') ? readTime('max_age', raw.max_age, MAX_AGE_MS, at, file, problems) : undefined;
  const readActions = (member: 'do' | 'on_clear') =>
    (Array.isArray(raw[member]) ? raw[member] : []).map((action, index) => {
      const actionAt = `${at}/${member}/${index}`;
      const place = { at: actionAt, file, tags, types, problems };
      return isBroken(actionAt) ? undefined : readAction(action, kinds, place);
    });
  const [actions, clearActions] = [readActions('do'), readActions('on_clear')];
  checkWrites(raw, maxAgeMs, at, file, kinds, settings, problems);
  if (isBroken(at) || cooldownMs === undefined || maxAgeMs === undefined) return [];
  if ([...actions, ...clearActions].some((action) => action === undefined)) return [];
  const { name } = raw;
  if (rule !== undefined) {
    const ofRule = { kind: 'equals', path: 'rule', anyOf: [name] } as const;
    const common = { name, conditions: [ofRule], cooldownMs, maxAgeMs };
    const cleared = { ...common, on: ['value_cleared'], actions: clearActions as Action[] };
    return [
      { ...common, on: ['value_raised'], actions: actions as Action[], rule },
      ...(clearActions.length > 0 ? [cleared] : []),
    ];
  }
  if (on === undefined || conditions === undefined) return [];
  return [{ name, on, conditions, cooldownMs, maxAgeMs, actions: actions as Action[] }];
}

/** Reports reactions that can never write, and reactions that could write regardless of the event's age. */
function checkWrites(
  raw: RawReaction,
  maxAgeMs: number | undefined,
  at: string,
  file: YamlFile,
  kinds: ActionKinds,
  settings: ReadSettings,
  problems: Problems,
): void {
  const writing = kinds.filter(({ writes }) => writes).map(({ kind }) => kind);
  const isWriting = (action: unknown) => isMapping(action) && writing.some((kind) => kind in action);
  const actions = [raw.do, raw.on_clear].flatMap((list) => (Array.isArray(list) ? list : []));
  if (!actions.some(isWriting)) return;
  if (maxAgeMs === 0) {
    const reason = 'a reaction with write requires a maximum age, because an old event must not write';
    problems.error(file.placeOf(`${at}/max_age`), reason, 'use a value such as 10m, or remove it', '0');
  }
  if (settings.writes === false) {
    problems.warning(
      file.placeOfName(at),
      'WRITES is off, so the reaction writes nothing',
      'add WRITES=on to agent.env',
    );
  }
}

function readTypes(
  written: string | string[],
  at: string,
  file: YamlFile,
  settings: ReadSettings,
  problems: Problems,
): '*' | EventType[] | undefined {
  const names = Array.isArray(written) ? written : [written];
  if (names.includes('*')) return '*';
  const types = new Set<EventType>();
  let sound = true;
  for (const [index, name] of names.entries()) {
    const place = () => file.placeOf(Array.isArray(written) ? `${at}/on/${index}` : `${at}/on`);
    if (!isEventType(name)) {
      problems.error(place(), `unknown event type "${printable(name)}"`, insteadOf(name, ALL_EVENT_TYPES), name);
      sound = false;
      continue;
    }
    types.add(name);
    // A webhook registered manually may receive other event types.
    const registered = settings.webhookUrl !== undefined && settings.webhookSecret === undefined;
    if (registered && settings.webhookEvents !== undefined && !settings.webhookEvents.includes(name)) {
      problems.warning(
        place(),
        `${name} is not in WEBHOOK_EVENTS, so the platform does not send it`,
        'add it to WEBHOOK_EVENTS in agent.env',
        name,
      );
    }
  }
  return sound ? [...types] : undefined;
}

function readTime(
  member: 'cooldown' | 'max_age',
  written: string | number | undefined,
  fallback: number,
  at: string,
  file: YamlFile,
  problems: Problems,
): number | undefined {
  if (written === undefined) return fallback;
  const reading = readDuration(String(written));
  if ('value' in reading) return reading.value;
  problems.error(
    file.placeOf(`${at}/${member}`),
    `${member} "${written}" ${reading.reason}`,
    reading.instead,
    String(written),
  );
  return undefined;
}
