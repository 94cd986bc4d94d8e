import {
  boolCoreTag,
  CORE_SCHEMA,
  defineScalarTag,
  floatCoreTag,
  intCoreTag,
  load,
  NOT_RESOLVED,
  realMapTag,
  type ScalarTagDefinition,
} from 'js-yaml';

/**
 * Fast parser for valid YAML files with only common syntax: mappings, lists, numbers and strings. It takes one fifth of
 * the time of the parser that records locations, which shortens reloads with thousands of tags. If it rejects a file,
 * the slower parser parses the file again and reports problems. A test compares both parsers.
 */
/** A number or boolean, and its text: names are used as written, such as 0815 and 1.50. */
class Written {
  readonly value: unknown;
  readonly text: string;

  constructor(value: unknown, text: string) {
    this.value = value;
    this.text = text;
  }
}

const SCHEMA = CORE_SCHEMA.withTags(realMapTag, ...[intCoreTag, floatCoreTag, boolCoreTag].map(keepingText));

function keepingText(tag: ScalarTagDefinition<unknown>): ScalarTagDefinition<unknown> {
  return defineScalarTag(tag.tagName, {
    ...tag,
    resolve: (text, isExplicit, tagName) => {
      const value = tag.resolve(text, isExplicit, tagName);
      return value === NOT_RESOLVED ? value : new Written(value, text);
    },
  });
}

/**
 * Matches syntax that the parsers interpret differently: tabs, anchors, tags, merges, multiple documents, directives,
 * empty or non-text keys, block scalars, numbers outside the range of a double, and obsolete line breaks and
 * characters.
 */
const RARE =
  /[\t&!]|<<|---|^ *[?%]|(?:^|[\s{[,-]):|^\.\.\.|[|>][-+0-9]* *(?:#.*)?$|\de\+?\d{3}|\r(?!\n)|[^\n\r\x20-\x7e\u00a1-\u2027\u202a-\ud7ff]/im;

export interface PlainYamlLimits {
  nodes: number;
  depth: number;
  /** Maximum length of a name, in characters. Names are part of the pointers to all nested values. */
  nameLength: number;
}

/** Returns plain data with prototype-less mappings, or `undefined` if the slower parser is required. */
export function readPlainYaml(text: string, limits: PlainYamlLimits): unknown {
  if (RARE.test(text)) return undefined;
  let read: unknown;
  try {
    read = load(text, { schema: SCHEMA, maxAliases: 0, maxDepth: limits.depth });
  } catch {
    return undefined;
  }
  let nodes = 0;
  const take = (node: unknown): unknown => {
    if (++nodes > limits.nodes) throw new Declined();
    if (Array.isArray(node)) return node.map(take);
    if (node instanceof Written) return node.value;
    if (!(node instanceof Map)) return node;
    // No prototype, because a tag may be named __proto__.
    const data: Record<string, unknown> = Object.create(null);
    for (const [key, value] of node) {
      const name = key instanceof Written ? key.text : key;
      if (typeof name !== 'string' || name in data || name.length > limits.nameLength) throw new Declined();
      data[name] = take(value);
    }
    return data;
  };
  try {
    return take(read) ?? undefined;
  } catch (error) {
    if (error instanceof Declined) return undefined;
    throw error;
  }
}

class Declined extends Error {}
