import { isDeepStrictEqual } from 'node:util';
import { type Document, isMap, parseDocument } from 'yaml';
import type { SourceAddress } from '../sources/direct-access.ts';

export interface FirstTag {
  name: string;
  asset: number;
  instrumentation: number | undefined;
  key: string;
  /** Unit number or code; `''` means no unit. */
  unit: string;
}

/** Source of the value, and the address within the source. */
export interface FirstSource extends SourceAddress {
  value: Record<string, unknown>;
}

/** Example in the shipped tags.yaml, which the first tag replaces. */
const EXAMPLE = /^ {2}FT-101:\n {4}asset: 881\n {4}instrumentation: 4711\n/m;
const EXAMPLE_VALUE = /^ {6}flow: \{ unit: 12, group: process \}$/m;

/** Returns whether the file contains only the shipped example. */
function isAsShipped(text: string): boolean {
  if (!EXAMPLE.test(text) || !EXAMPLE_VALUE.test(text)) return false;
  const document = parseDocument(text);
  const { tags } = (document.toJS() ?? {}) as { tags?: object };
  return document.errors.length === 0 && Object.keys(tags ?? {}).join() === 'FT-101';
}

/** Returns the shipped tags.yaml with its example commented out, so that no values are posted to the example asset. */
function withoutExample(shipped: string): string {
  const at = shipped.indexOf('\ntags:\n');
  if (at < 0) return 'tags: {}\n';
  const example = shipped.slice(at + '\ntags:\n'.length).replaceAll(/^(?=.*\S)(?!#)/gm, '#');
  return `${shipped.slice(0, at)}\ntags: {}\n# Examples. When you add your first tag, replace "tags: {}" with "tags:".\n${example}`;
}

/** Returns whether the text contains the tag, other than as the shipped example. */
export function hasTag(text: string, name: string): boolean {
  const { tags } = (parseDocument(text).toJS() ?? {}) as { tags?: Record<string, unknown> };
  return !isAsShipped(text) && Object.hasOwn(tags ?? {}, name);
}

/**
 * Returns the name of the source with this address. If there is none, returns an unused name, with a number appended if
 * necessary.
 */
export function sourceNameFor(text: string, { kind, name: preferred, members }: SourceAddress): string {
  const { sources = {} } = (parseDocument(text).toJS() ?? {}) as { sources?: Record<string, Record<string, unknown>> };
  const same = Object.entries(sources ?? {}).find(([, source]) => source?.[kind] === members[kind]);
  if (same) return same[0];
  const base = preferred.replace(/\d+$/, '');
  for (let number = 1; ; number++) {
    const name = number === 1 ? preferred : `${base}${number}`;
    if (!Object.hasOwn(sources ?? {}, name)) return name;
  }
}

/**
 * Adds a tag and its source to the text of tags.yaml and preserves comments. The tag replaces the shipped example. An
 * existing tag keeps its other values. Returns the text unchanged if it already contains the tag.
 */
function putFirstTag(text: string, tag: FirstTag, source?: FirstSource): string {
  const put = source ? putSource(putTag(text, tag), tag, source) : putTag(text, tag);
  return isDeepStrictEqual(parseDocument(put).toJS(), parseDocument(text).toJS()) ? text : put;
}

/** Returns the text of tags.yaml that setup writes. Without a tag, the shipped example is commented out. */
export function tagsAfter(text: string, tag: FirstTag | undefined, source?: FirstSource): string {
  if (tag) return putFirstTag(text, tag, source);
  return text === '' || isAsShipped(text) ? withoutExample(text) : text;
}

function putSource(text: string, tag: FirstTag, source: FirstSource): string {
  const document = parseDocument(text);
  const flow = (members: Record<string, unknown>) => document.createNode(members, { flow: true });
  // The flow style of the shipped `sources: {}` would put all sources on one line.
  const sources = document.get('sources');
  if (isMap(sources) && sources.items.length === 0) sources.flow = false;
  if (!document.hasIn(['sources', source.name])) document.setIn(['sources', source.name], flow(source.members));
  const path = ['tags', tag.name, 'values', tag.key];
  document.setIn(path, flow({ ...kept(document, path), from: source.name, ...source.value }));
  return document.toString({ lineWidth: 0 });
}

/** Returns the lines that `putFirstTag` adds, for the summary. */
export function firstTagLines(tag: FirstTag, source: FirstSource | undefined): string {
  return putFirstTag('tags: {}\n', tag, source).replace(/^tags: \{\}\n/, '');
}

function putTag(text: string, tag: FirstTag): string {
  const unit =
    tag.unit === '' ? '' : `unit: ${/^\d+$/.test(tag.unit) ? tag.unit : `{ code: ${JSON.stringify(tag.unit)} }`}`;
  if (isAsShipped(text)) {
    const instrumentation = tag.instrumentation === undefined ? '' : `    instrumentation: ${tag.instrumentation}\n`;
    return text
      .replace(EXAMPLE, () => `  ${JSON.stringify(tag.name)}:\n    asset: ${tag.asset}\n${instrumentation}`)
      .replace(EXAMPLE_VALUE, () => `      ${JSON.stringify(tag.key)}: ${unit === '' ? '{}' : `{ ${unit} }`}`);
  }
  const document = parseDocument(text === '' ? 'tags: {}\n' : text);
  const tags = document.get('tags');
  if (isMap(tags) && tags.items.length === 0) tags.flow = false;
  const value = tag.unit === '' ? {} : { unit: /^\d+$/.test(tag.unit) ? Number(tag.unit) : { code: tag.unit } };
  const objects = {
    asset: tag.asset,
    ...(tag.instrumentation === undefined ? {} : { instrumentation: tag.instrumentation }),
  };
  if (!document.hasIn(['tags', tag.name])) {
    document.setIn(['tags', tag.name], document.createNode({ ...objects, values: { [tag.key]: value } }));
  } else {
    for (const [member, number] of Object.entries(objects)) document.setIn(['tags', tag.name, member], number);
    const path = ['tags', tag.name, 'values', tag.key];
    if (!document.hasIn(path) || tag.unit !== '')
      document.setIn(path, document.createNode({ ...kept(document, path), ...value }));
  }
  return document.toString({ lineWidth: 0 });
}

/** Returns the existing members of a value. */
function kept(document: Document, path: readonly string[]): Record<string, unknown> {
  const node = document.getIn(path);
  return isMap(node) ? (node.toJSON() as Record<string, unknown>) : {};
}
