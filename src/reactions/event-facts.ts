import { valuesAt } from './content-path.ts';
import type { InboxEvent } from './journal.ts';
import type { TagOf } from './tag-names.ts';

/** An event of the inbox, read once: what rules and actions look at. */
export interface EventFacts {
  id: number;
  digest?: string;
  eventType: string;
  /** Platform's clock. */
  occurredAtMs: number | undefined;
  /** JSON text as received. */
  payload: string;
  /** The parsed payload: the root of templates. */
  envelope: Readonly<Record<string, unknown>>;
  /** The root of `if` paths. */
  content: unknown;
  /** Every asset and instrumentation the event names, its own first (platform 6.3; `event_created` names several). */
  assets: readonly number[];
  instrumentations: readonly number[];
  /** The tag of tags.yaml that it is about, else the one that it names itself. */
  tag: string | undefined;
  /** What cooldown and order go by: `instrumentation 4711`. */
  object: string;
}

const ASSET_PATHS = ['asset.id', 'assets.id', 'event.assets.id'];
const INSTRUMENTATION_PATHS = ['instrumentation.id', 'instrumentations.id', 'event.instrumentations.id'];
/** Objects that an event may be about where it names neither an instrumentation nor an asset, the nearest first. */
const OTHER_OBJECTS = ['node', 'edge_device', 'product', 'event', 'add_on'];

/** Reads an event. One whose payload is no JSON object (which the inbox would have marked) has no content and matches nothing by path. */
export function readFacts(
  event: Omit<InboxEvent, 'progress'> & Partial<InboxEvent>,
  tagOf: TagOf = () => undefined,
): EventFacts {
  const { content } = event.envelope;
  const assets = idsAt(content, ASSET_PATHS);
  const instrumentations = idsAt(content, INSTRUMENTATION_PATHS);
  return {
    id: event.id,
    ...(event.digest === undefined ? {} : { digest: event.digest }),
    eventType: event.eventType,
    occurredAtMs: event.occurredAtMs,
    payload: event.payload,
    envelope: event.envelope,
    content,
    assets,
    instrumentations,
    tag: tagOf(assets, instrumentations) ?? ownTag(content),
    object: objectOf(event.eventType, content, assets, instrumentations),
  };
}

function ownTag(content: unknown): string | undefined {
  const [tag] = valuesAt(content, 'instrumentation.tag');
  return typeof tag === 'string' ? tag : undefined;
}

function objectOf(
  eventType: string,
  content: unknown,
  assets: readonly number[],
  instrumentations: readonly number[],
): string {
  if (instrumentations[0] !== undefined) return `instrumentation ${instrumentations[0]}`;
  if (assets[0] !== undefined) return `asset ${assets[0]}`;
  for (const kind of OTHER_OBJECTS) {
    const [id] = idsAt(content, [`${kind}.id`]);
    if (id !== undefined) return `${kind} ${id}`;
  }
  return eventType;
}

function idsAt(content: unknown, paths: readonly string[]): number[] {
  const ids = paths.flatMap((path) => valuesAt(content, path)).filter((id) => Number.isSafeInteger(id)) as number[];
  return [...new Set(ids)];
}
