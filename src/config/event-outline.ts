import { EVENT_TYPES, type EventType, LIST, type Members, type Outline, SHAPES } from '../contract/events.ts';

/**
 * Documented content of each event type (platform 6.3). `check` uses it to detect rules that refer to undocumented
 * members.
 */
export type { Members, Outline };

/** Returns the value at a path in the content, or `undefined` if it is not documented. */
export function outlineAt(type: EventType, path: string): Outline | undefined {
  let outline: Outline = outlineOf(type);
  for (const member of path.split('.')) {
    if (outline === 'open') return 'open';
    if (!isMembers(outline)) return undefined;
    // A list index, as accepted by `valuesAt`.
    if (outline[LIST] && /^\d{1,9}$/.test(member)) continue;
    if (!Object.hasOwn(outline, member)) return undefined;
    outline = outline[member]!;
  }
  return outline;
}

export function isMembers(outline: Outline): outline is Members {
  return typeof outline === 'object' && !Array.isArray(outline);
}

/** Returns the paths of all values in these event types. */
export function pathsOf(types: readonly EventType[]): string[] {
  const paths = new Set<string>();
  const collect = (outline: Outline, path: string): void => {
    if (!isMembers(outline)) paths.add(path);
    else
      for (const [member, part] of Object.entries(outline)) collect(part, path === '' ? member : `${path}.${member}`);
  };
  for (const type of types) collect(outlineOf(type), '');
  return [...paths];
}

/** Returns whether events of this type identify the tag's asset or instrumentation. `event_created` can list both. */
export function namesObjectOf(type: EventType, tag: { instrumentation?: number }): boolean {
  if (type === 'event_created') return true;
  return 'asset' in outlineOf(type) || (tag.instrumentation !== undefined && 'instrumentation' in outlineOf(type));
}

export const ALL_EVENT_TYPES: readonly EventType[] = EVENT_TYPES;

function outlineOf(type: EventType): Members {
  return SHAPES[type].outline as Members;
}
