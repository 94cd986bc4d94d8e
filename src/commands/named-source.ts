import { UsageError } from '../base/errors.ts';
import type { Tags } from '../config/tags.ts';

/** The source of tags.yaml that somebody named; throws `UsageError` where none of this name can be read. */
export function namedSource(sources: Tags['sources'], name: string) {
  const source = sources.get(name);
  if (source) return source;
  // Sources with a mistake in them are left out by who reads the file leniently.
  const hint = 'Where it stands there, `tagferry check` says what is wrong with it';
  throw new UsageError(`tags.yaml has no source "${name}" that can be read`, hint);
}
