import type { Tag } from '../config/tags.ts';

/** The tag of tags.yaml that an event is about; `undefined` where none, or no single one, is. */
export type TagOf = (assets: readonly number[], instrumentations: readonly number[]) => string | undefined;

/**
 * Names events by tags.yaml: the platform's references are `{id, href}` (platform 6.2), and most events carry no tag. An
 * instrumentation's own tag decides; an asset's where only one tag has it.
 */
export function tagNames(tags: Iterable<Pick<Tag, 'name' | 'asset' | 'instrumentation'>>): TagOf {
  const byInstrumentation = new Map<number, string>();
  const byAsset = new Map<number, string | undefined>();
  for (const { name, asset, instrumentation } of tags) {
    if (instrumentation !== undefined) byInstrumentation.set(instrumentation, name);
    byAsset.set(asset, byAsset.has(asset) ? undefined : name);
  }
  return (assets, instrumentations) => {
    const [instrumentation] = instrumentations;
    if (instrumentation !== undefined && byInstrumentation.has(instrumentation)) {
      return byInstrumentation.get(instrumentation);
    }
    return assets[0] === undefined ? undefined : byAsset.get(assets[0]);
  };
}
