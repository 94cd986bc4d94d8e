/** What `tagferry assets` asks about known objects: of the agent through the control socket, or of a stopped one's file. */
import { MAX_OBJECTS, type ObjectListing, type ObjectQuery } from '../access/known-objects.ts';
import { UsageError } from '../base/errors.ts';
import type { ControlRoutes } from './control-server.ts';

/** Known objects, read at once or later. */
export interface ReadableObjects {
  list(query: ObjectQuery): ObjectListing | Promise<ObjectListing>;
}

const DEFAULT_LIMIT = 100;

/** Of an agent that runs. */
export function assetRoutes(objects: ReadableObjects): ControlRoutes {
  return { 'assets/ls': (params) => listObjects(objects, params) };
}

/** `assets/ls`: last seen first, 100 unless told. */
export async function listObjects(objects: ReadableObjects, params: Record<string, unknown>): Promise<ObjectListing> {
  const { text = '', limit = DEFAULT_LIMIT } = params;
  if (typeof text !== 'string') throw new UsageError('text must be a string');
  if (typeof limit !== 'number' || !Number.isSafeInteger(limit) || limit < 1)
    throw new UsageError('limit must be a positive integer');
  return objects.list({ text, limit: Math.min(limit, MAX_OBJECTS) });
}
