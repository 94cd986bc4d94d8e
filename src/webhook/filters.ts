import type { Condition, Reaction } from '../config/reactions.ts';
import { PROPERTIES } from '../contract/events/properties.ts';
import type { EventType } from '../contract/events.ts';

/**
 * Which changes of a type the platform has to tell of (platform 6.3, "Filter through properties"): the names that the rules ask for by
 * a condition. A filter that is too wide costs quota; one that is too narrow loses an alarm, and nothing ever brings back
 * what the platform did not send. So a type gets a filter only where *every* rule for it says by itself what it needs, and none
 * where one rule is for "*", where no rule wants the type (a person registered it to look at), or where anything is in doubt.
 *
 * Tags and holds live on types that have no filter (appeared, disappeared, associations, thresholds): those always come whole.
 */
export type Filters = Readonly<Record<string, readonly string[]>>;

/** The names that one rule needs of a type, or that it has to see everything. */
type Needs = ReadonlySet<string> | 'all';

/** By event type: how a rule's needs are read. A type that is not here has no filter, or says in its content nothing that it goes by. */
const READERS: Partial<Record<EventType, (reaction: Reaction) => Needs>> = {
  asset_values_created: valueKeys,
  instrumentation_values_created: valueKeys,
  asset_updated: (reaction) => attributes(reaction, 'asset'),
  edge_device_updated: (reaction) => attributes(reaction, 'edge_device'),
  asset_specifications_updated: (reaction) => specificationKeys(reaction, 'asset'),
  event_specifications_updated: (reaction) => specificationKeys(reaction, 'event'),
  event_created: eventTypeCodes,
};

/** Attributes that are a reason for a filter: not the serial number, which also identifies an object that changed otherwise. */
const ATTRIBUTES = { asset: attributesOf('asset_updated'), edge_device: attributesOf('edge_device_updated') };

function attributesOf(type: 'asset_updated' | 'edge_device_updated'): readonly string[] {
  const names = PROPERTIES[type];
  return Array.isArray(names) ? names.filter((name) => name !== 'serial_number') : [];
}

/**
 * `properties` of the webhook: for each registered type the list of WEBHOOK_PROPERTIES (an empty one means everything), otherwise what
 * the rules need. `{}` if everything is to be sent.
 */
export function filtersFor(
  reactions: readonly Reaction[],
  eventTypes: readonly string[],
  explicit: Filters = {},
): Filters {
  const filters: Record<string, readonly string[]> = {};
  for (const type of eventTypes) {
    const needs = explicit[type] ?? needsOf(reactions, type);
    if (needs !== 'all' && needs.length > 0) filters[type] = [...needs].sort();
  }
  return filters;
}

/** Registered types whose list in WEBHOOK_PROPERTIES lacks names that a rule needs: such a rule may never run. */
export function narrowedTypes(
  reactions: readonly Reaction[],
  eventTypes: readonly string[],
  explicit: Filters,
): string[] {
  return eventTypes.filter((type) => {
    const list = explicit[type];
    if (list === undefined || list.length === 0) return false;
    if (!reactions.some(({ on }) => on === '*' || (on as readonly string[]).includes(type))) return false;
    const needs = needsOf(reactions, type);
    return needs === 'all' || needs.some((name) => !list.includes(name));
  });
}

/** Names that the rules for a type need; `all` if any of them needs everything, or none is for this type. */
function needsOf(reactions: readonly Reaction[], type: string): readonly string[] | 'all' {
  if (reactions.some((reaction) => reaction.on === '*')) return 'all';
  const read = READERS[type as EventType];
  const concerned = reactions.filter((reaction) => (reaction.on as readonly string[]).includes(type));
  if (!read || concerned.length === 0) return 'all';
  const names = new Set<string>();
  for (const reaction of concerned) {
    const needs = read(reaction);
    if (needs === 'all') return 'all';
    for (const name of needs) names.add(name);
  }
  return [...names];
}

/**
 * The filter also thins out the event: it then lists the values of these keys alone. So a rule that looks at anything else of the
 * values (or at a place in their list) sees all of them.
 */
function valueKeys({ conditions }: Reaction): Needs {
  const onValues = conditions.filter((condition) => /^values(\.|$)/.test(pathOf(condition)));
  const keys = new Set<string>();
  for (const condition of onValues) {
    const texts = condition.kind === 'equals' && condition.path === 'values.key' ? textsOf(condition) : undefined;
    if (!texts) return 'all';
    for (const text of texts) keys.add(text);
  }
  return keys.size > 0 ? keys : 'all';
}

/**
 * The event holds what changed: a rule that wants a member to be something is for changes of that attribute. The other attributes that
 * it or its texts name come along, should they change together. `serial_number` is no reason for a filter: it may be meant, and
 * sent, as the name of the thing.
 */
function attributes({ conditions, actions }: Reaction, object: 'asset' | 'edge_device'): Needs {
  const names = ATTRIBUTES[object];
  const named = (text: string): string[] =>
    [...text.matchAll(new RegExp(`\\b${object}\\.([a-z_]+)`, 'g'))].map((match) => match[1]!);
  const wanting = conditions.some((condition) => {
    const path = pathOf(condition);
    return path.startsWith(`${object}.`) && wantsSomething(condition) && names.includes(path.split('.')[1]!);
  });
  if (!wanting) return 'all';
  const others = [...conditions.map(pathOf), JSON.stringify(actions)].flatMap(named);
  return new Set(others.filter((name) => names.includes(name) || name === 'serial_number'));
}

/** `asset.specifications.eh.pcps.ph.value`: what stands between, dots and all, is the key. */
function specificationKeys({ conditions }: Reaction, object: string): Needs {
  const keys = new Set<string>();
  let wanting = false;
  for (const condition of conditions) {
    const path = pathOf(condition);
    if (!path.startsWith(`${object}.specifications`)) continue;
    const key = /^[a-z_]+\.specifications\.(.+)\.(?:unit|value|updated_at|source_timestamp)$/.exec(path)?.[1];
    if (key === undefined) return 'all';
    keys.add(key);
    wanting ||= wantsSomething(condition);
  }
  return wanting ? keys : 'all';
}

function eventTypeCodes({ conditions }: Reaction): Needs {
  for (const condition of conditions) {
    const texts = condition.kind === 'equals' && condition.path === 'event.type.code' ? textsOf(condition) : undefined;
    if (texts) return new Set(texts);
  }
  return 'all';
}

function pathOf(condition: Condition): string {
  return condition.kind === 'tag' ? '' : condition.path;
}

/** Whether it fails where the member is missing: null is what a missing member counts as. */
function wantsSomething(condition: Condition): boolean {
  return condition.kind === 'range' || (condition.kind === 'equals' && !condition.anyOf.includes(null));
}

/** The texts that it compares with; `undefined` where it compares with anything else. */
function textsOf(condition: Extract<Condition, { kind: 'equals' }>): string[] | undefined {
  const texts = condition.anyOf.filter((one) => typeof one === 'string');
  return texts.length === condition.anyOf.length ? texts : undefined;
}
