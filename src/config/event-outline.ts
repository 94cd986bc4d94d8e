import { EVENT_TYPES, type EventType, LIST, type Members, type Outline, SHAPES } from '../contract/events.ts';

/** What the spec shows of each type's content (6.3), so that `check` can tell of a rule that needs more. */
export type { Members, Outline };

/** What stands at a path of a type's content; `undefined` where the spec shows nothing there. */
export function outlineAt(type: EventType, path: string): Outline | undefined {
  let outline: Outline = outlineOf(type);
  for (const member of path.split('.')) {
    if (outline === 'open') return 'open';
    if (!isMembers(outline)) return undefined;
    // A place in a list, as `valuesAt` reads it.
    if (outline[LIST] && /^\d{1,9}$/.test(member)) continue;
    if (!Object.hasOwn(outline, member)) return undefined;
    outline = outline[member]!;
  }
  return outline;
}

export function isMembers(outline: Outline): outline is Members {
  return typeof outline === 'object' && !Array.isArray(outline);
}

/** Every path of these types that ends in a value. */
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

/** Whether events of a type name the object that a tag stands for. `event_created` lists both. */
export function namesObjectOf(type: EventType, tag: { instrumentation?: number }): boolean {
  if (type === 'event_created') return true;
  return 'asset' in outlineOf(type) || (tag.instrumentation !== undefined && 'instrumentation' in outlineOf(type));
}

export const ALL_EVENT_TYPES: readonly EventType[] = EVENT_TYPES;

function outlineOf(type: EventType): Members {
  return SHAPES[type].outline as Members;
}
