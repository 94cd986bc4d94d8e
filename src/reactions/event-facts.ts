import { valuesAt } from './content-path.ts';
import type { InboxEvent } from './journal.ts';

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
  /** Every asset and instrumentation the event names, its own first (spec 6.3; `event_created` names several). */
  assets: readonly number[];
  instrumentations: readonly number[];
  /** What cooldown and order go by: `instrumentation 4711`. */
  object: string;
}

const ASSET_PATHS = ['asset.id', 'assets.id', 'event.assets.id'];
const INSTRUMENTATION_PATHS = ['instrumentation.id', 'instrumentations.id', 'event.instrumentations.id'];
/** Objects that an event may be about where it names neither an instrumentation nor an asset, the nearest first. */
const OTHER_OBJECTS = ['node', 'edge_device', 'product', 'event', 'add_on'];

/** Reads an event. A payload that is no JSON object (which the inbox would have marked) has no content and matches nothing by path. */
export function readFacts(event: InboxEvent): EventFacts {
  const envelope = parseObject(event.payload);
  const content = envelope.content;
  const assets = idsAt(content, ASSET_PATHS);
  const instrumentations = idsAt(content, INSTRUMENTATION_PATHS);
  return {
    id: event.id,
    ...(event.digest === undefined ? {} : { digest: event.digest }),
    eventType: event.eventType,
    occurredAtMs: event.occurredAtMs,
    payload: event.payload,
    envelope,
    content,
    assets,
    instrumentations,
    object: objectOf(event.eventType, content, assets, instrumentations),
  };
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

function parseObject(text: string): Record<string, unknown> {
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)) {
      return parsed as Record<string, unknown>;
    }
  } catch {
    // Told by the empty envelope.
  }
  return {};
}
