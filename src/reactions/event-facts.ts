import type { Tag } from '../config/tags.ts';
import { valuesAt } from './content-path.ts';
import type { InboxEvent } from './journal.ts';

/** Properties of an event that rules and actions use. */
export interface EventFacts {
  id: number;
  digest?: string;
  eventType: string;
  /** Event time according to the platform clock, in milliseconds since 1970. */
  occurredAtMs: number | undefined;
  /** JSON text as received. */
  payload: string;
  /** Parsed payload, the root of templates. */
  envelope: Readonly<Record<string, unknown>>;
  /** Root of `if` paths. */
  content: unknown;
  /** Assets and instrumentations to which the event refers, starting with its own (platform 6.3). */
  assets: readonly number[];
  instrumentations: readonly number[];
  /** Tag in tags.yaml, or the tag specified in the event if there is none. */
  tag: string | undefined;
  /** Key for cooldowns and ordering, for example `instrumentation 4711`. */
  object: string;
}

const ASSET_PATHS = ['asset.id', 'assets.id', 'event.assets.id'];
const INSTRUMENTATION_PATHS = ['instrumentation.id', 'instrumentations.id', 'event.instrumentations.id'];
/** Object types of events without an instrumentation or asset, in order of preference. */
const OTHER_OBJECTS = ['node', 'edge_device', 'product', 'event', 'add_on'];

/** Extracts the properties of an event. If the payload is not a JSON object, `content` is undefined. */
export function readFacts(
  event: Pick<InboxEvent, 'id' | 'digest' | 'eventType' | 'occurredAtMs' | 'payload' | 'envelope'>,
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

/** Returns the tag in tags.yaml for the given objects, or `undefined` if no tag or several tags match. */
export type TagOf = (assets: readonly number[], instrumentations: readonly number[]) => string | undefined;

/**
 * Returns a function that finds the tag of an event. The tag is determined by the first instrumentation, or by the
 * first asset if only one tag has this asset. Events do not contain tags with their references (platform 6.2).
 */
export function tagNames(tags: Iterable<Pick<Tag, 'name' | 'asset' | 'instrumentation'>>): TagOf {
  const byInstrumentation = new Map<number, string>();
  const byAsset = new Map<number, string | undefined>();
  for (const { name, asset, instrumentation } of tags) {
    if (instrumentation !== undefined) byInstrumentation.set(instrumentation, name);
    byAsset.set(asset, byAsset.has(asset) ? undefined : name);
  }
  return ([asset], [instrumentation]) => {
    const name = instrumentation === undefined ? undefined : byInstrumentation.get(instrumentation);
    return name ?? (asset === undefined ? undefined : byAsset.get(asset));
  };
}
