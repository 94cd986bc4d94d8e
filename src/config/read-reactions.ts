import { insteadOf } from '../base/nearest.ts';
import { readDuration } from '../base/quantity.ts';
import { type EventType, isEventType } from '../contract/events.ts';
import { type RawAction, readAction } from './action-reading.ts';
import { type RawCondition, readConditions } from './condition-reading.ts';
import { ALL_EVENT_TYPES } from './event-outline.ts';
import type { YamlFile } from './placed-yaml.ts';
import { type Problems, placeName, printable } from './problem.ts';
import type { Action, Reaction } from './reactions.ts';
import { REACTIONS_SCHEMA } from './reactions-schema.ts';
import type { ReadSettings } from './read-settings.ts';
import type { ReadTags } from './read-tags.ts';
import { checkShape, compileSchema } from './schema-problems.ts';
import { checkTemplates } from './template-reading.ts';

interface RawReaction {
  name: string;
  on: string | string[];
  if?: Record<string, RawCondition> | null;
  cooldown?: string | number;
  max_age?: string | number;
  do: RawAction[];
}

/** Old alarms must not move valves: an event that a long outage held back is logged and no more. */
const MAX_AGE_MS = 600_000;

/** Reads reactions.yaml: its shape by the schema, then its meaning beside the tags; what is wrong is reported and left out. */
export function readReactions(file: YamlFile, tags: ReadTags, settings: ReadSettings, problems: Problems): Reaction[] {
  if (file.data === undefined) return [];
  const verdict = checkShape(compileSchema(REACTIONS_SCHEMA), file, problems);
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
        const reason = `the name "${printable(raw.name)}" stands already ${where}`;
        problems.error(here, reason, 'give each reaction a name of its own', raw.name);
      }
    }
    const reaction = readReaction(raw, at, verdict.isBroken, file, tags, settings, problems);
    if (reaction !== undefined) reactions.push(reaction);
  }
  return reactions;
}

function isMapping(data: unknown): boolean {
  return typeof data === 'object' && data !== null && !Array.isArray(data);
}

/** Each part by itself, so that a fault in one hides none in another. */
function readReaction(
  raw: RawReaction,
  at: string,
  isBroken: (pointer: string) => boolean,
  file: YamlFile,
  tags: ReadTags,
  settings: ReadSettings,
  problems: Problems,
): Reaction | undefined {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) return undefined;
  const sound = (member: string) => !isBroken(`${at}/${member}`);
  const on = raw.on !== undefined && sound('on') ? readTypes(raw.on, at, file, settings, problems) : undefined;
  const types = on === undefined ? [] : on === '*' ? ALL_EVENT_TYPES : on;
  const conditions = isMapping(raw.if ?? {})
    ? readConditions(raw.if ?? {}, types, `${at}/if`, isBroken, file, tags, problems)
    : undefined;
  const cooldownMs = sound('cooldown') ? readTime('cooldown', raw.cooldown, 0, at, file, problems) : undefined;
  const maxAgeMs = sound('max_age') ? readTime('max_age', raw.max_age, MAX_AGE_MS, at, file, problems) : undefined;
  const actions: (Action | undefined)[] = [];
  for (const [index, action] of (Array.isArray(raw.do) ? raw.do : []).entries()) {
    const actionAt = `${at}/do/${index}`;
    const read = isBroken(actionAt) ? undefined : readAction(action, actionAt, file, tags, problems);
    actions.push(read);
    if (read?.kind === 'post') checkTemplates(read.body, types, `${actionAt}/body`, file, problems);
    if (read?.kind === 'publish') {
      checkTemplates(read.topic, types, `${actionAt}/publish/topic`, file, problems);
      checkTemplates(read.body, types, `${actionAt}/publish/body`, file, problems);
    }
  }
  if (isBroken(at) || on === undefined || conditions === undefined || cooldownMs === undefined) return undefined;
  if (maxAgeMs === undefined || actions.some((action) => action === undefined)) return undefined;
  return { name: raw.name, on, conditions, cooldownMs, maxAgeMs, actions: actions as Action[] };
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
      problems.error(place(), `there is no event type "${printable(name)}"`, insteadOf(name, ALL_EVENT_TYPES), name);
      sound = false;
      continue;
    }
    types.add(name);
    // A webhook registered by hand may be sent more than these.
    const registered = settings.webhookUrl !== undefined && settings.webhookSecret === undefined;
    if (registered && settings.webhookEvents !== undefined && !settings.webhookEvents.includes(name)) {
      problems.warning(
        place(),
        `${name} is not among WEBHOOK_EVENTS, so the platform does not send it`,
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
