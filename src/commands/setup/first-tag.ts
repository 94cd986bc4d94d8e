import { parseDocument } from 'yaml';

export interface FirstTag {
  name: string;
  asset: number;
  instrumentation: number | undefined;
  key: string;
  /** A number, or a code; `''` is none. */
  unit: string;
}

/** The example of the shipped tags.yaml, which the first tag takes the place of. */
const EXAMPLE = /^ {2}FT-101:\n {4}asset: 881\n {4}instrumentation: 4711\n/m;
const EXAMPLE_VALUE = /^ {6}flow: \{ unit: 12, group: process \}$/m;

/** Whether the file still has the shipped example, and no other tag: then nobody has written into it yet. */
export function isAsShipped(text: string): boolean {
  if (!EXAMPLE.test(text) || !EXAMPLE_VALUE.test(text)) return false;
  const document = parseDocument(text);
  const { tags } = (document.toJS() ?? {}) as { tags?: object };
  return document.errors.length === 0 && Object.keys(tags ?? {}).join() === 'FT-101';
}

/** The shipped tags.yaml with its example commented out: nobody wants to post to an asset of ours. */
export function withoutExample(shipped: string): string {
  const at = shipped.indexOf('\ntags:\n');
  if (at < 0) return 'tags: {}\n';
  const example = shipped.slice(at + '\ntags:\n'.length).replaceAll(/^(?=.*\S)(?!#)/gm, '#');
  return `${shipped.slice(0, at)}\ntags: {}\n# Examples; with the first of your own, write "tags:" in place of "tags: {}".\n${example}`;
}

/**
 * Puts a tag into the text of tags.yaml. In the file as it is shipped it takes the place of the example, and every comment stays;
 * in any other file it is added to what is there.
 */
export function putFirstTag(text: string, tag: FirstTag): string {
  const unit =
    tag.unit === '' ? '' : `unit: ${/^\d+$/.test(tag.unit) ? tag.unit : `{ code: ${JSON.stringify(tag.unit)} }`}`;
  if (isAsShipped(text)) {
    const instrumentation = tag.instrumentation === undefined ? '' : `    instrumentation: ${tag.instrumentation}\n`;
    return text
      .replace(EXAMPLE, () => `  ${JSON.stringify(tag.name)}:\n    asset: ${tag.asset}\n${instrumentation}`)
      .replace(EXAMPLE_VALUE, () => `      ${JSON.stringify(tag.key)}: ${unit === '' ? '{}' : `{ ${unit} }`}`);
  }
  const document = parseDocument(text === '' ? 'tags: {}\n' : text);
  const value = tag.unit === '' ? {} : { unit: /^\d+$/.test(tag.unit) ? Number(tag.unit) : { code: tag.unit } };
  const node = {
    asset: tag.asset,
    ...(tag.instrumentation === undefined ? {} : { instrumentation: tag.instrumentation }),
    values: { [tag.key]: value },
  };
  document.setIn(['tags', tag.name], document.createNode(node));
  return document.toString();
}
