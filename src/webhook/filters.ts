import type { Condition, Reaction } from '../config/reactions.ts';
import { PROPERTIES } from '../contract/events/properties.ts';
import type { EventType } from '../contract/events.ts';

/**
 * Filters per event type (platform 6.3, "Filter through properties"), derived from the names in rule conditions. If a
 * filter is too narrow, alarms are permanently lost. An event type is therefore filtered only if all its rules have
 * conditions that specify every member they use. It is not filtered if there is a rule for "*", no rule, or any
 * uncertainty.
 */
export type Filters = Readonly<Record<string, readonly string[]>>;

/** Names that a rule requires for an event type, or `all` if it requires all changes. */
type Needs = ReadonlySet<string> | 'all';

/** Functions that return a rule's requirements, by event type. Other event types have no filter. */
const READERS: Partial<Record<EventType, (reaction: Reaction) => Needs>> = {
  asset_values_created: valueKeys,
  instrumentation_values_created: valueKeys,
  asset_updated: (reaction) => attributes(reaction, 'asset'),
  edge_device_updated: (reaction) => attributes(reaction, 'edge_device'),
  asset_specifications_updated: (reaction) => specificationKeys(reaction, 'asset'),
  event_specifications_updated: (reaction) => specificationKeys(reaction, 'event'),
  event_created: eventTypeCodes,
};

/**
 * Attributes that may be filtered. `serial_number` is excluded, because it also identifies the object in other changes.
 */
const ATTRIBUTES = { asset: attributesOf('asset_updated'), edge_device: attributesOf('edge_device_updated') };

function attributesOf(type: 'asset_updated' | 'edge_device_updated'): readonly string[] {
  const names = PROPERTIES[type];
  return Array.isArray(names) ? names.filter((name) => name !== 'serial_number') : [];
}

/**
 * Returns the webhook's `properties`. For each registered event type, contains the list in WEBHOOK_PROPERTIES (an empty
 * list means no filter) or the members that the rules use. Returns `{}` if no event type is filtered.
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

/**
 * Returns the registered event types for which WEBHOOK_PROPERTIES does not contain all names that a rule requires. Such
 * a rule may never run.
 */
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

/**
 * Returns the names that the rules for an event type require, or `all` if a rule requires all changes or there is no
 * rule.
 */
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
 * Returns the required keys. Because a filter also removes other values from the event, a rule with any other condition
 * on values requires all values.
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
 * Returns the required attributes. An event contains only changed attributes, so a condition on an attribute selects
 * changes to it. Other attributes that the rule mentions are included.
 */
function attributes({ conditions, actions }: Reaction, object: 'asset' | 'edge_device'): Needs {
  const names = ATTRIBUTES[object];
  const named = (text: string): string[] =>
    [...text.matchAll(new RegExp(`\\b${object}\\.([a-z_]+)`, 'g'))].map((match) => match[1]!);
  const isFiltered = conditions.some((condition) => {
    const path = pathOf(condition);
    return path.startsWith(`${object}.`) && needsMember(condition) && names.includes(path.split('.')[1]!);
  });
  if (!isFiltered) return 'all';
  const others = [...conditions.map(pathOf), JSON.stringify(actions)].flatMap(named);
  return new Set(others.filter((name) => names.includes(name) || name === 'serial_number'));
}

/**
 * Returns the required specification keys. A key may contain dots: in `asset.specifications.eh.pcps.ph.value`, it is
 * `eh.pcps.ph`.
 */
function specificationKeys({ conditions }: Reaction, object: string): Needs {
  const keys = new Set<string>();
  let isFiltered = false;
  for (const condition of conditions) {
    const path = pathOf(condition);
    if (!path.startsWith(`${object}.specifications`)) continue;
    const key = /^[a-z_]+\.specifications\.(.+)\.(?:unit|value|updated_at|source_timestamp)$/.exec(path)?.[1];
    if (key === undefined) return 'all';
    keys.add(key);
    isFiltered ||= needsMember(condition);
  }
  return isFiltered ? keys : 'all';
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

/** Returns whether the condition is false if the member is missing (treated as null). */
function needsMember(condition: Condition): boolean {
  return condition.kind === 'range' || (condition.kind === 'equals' && !condition.anyOf.includes(null));
}

/** Returns the texts in a condition, or `undefined` if the condition contains other values. */
function textsOf(condition: Extract<Condition, { kind: 'equals' }>): string[] | undefined {
  const texts = condition.anyOf.filter((one) => typeof one === 'string');
  return texts.length === condition.anyOf.length ? texts : undefined;
}
