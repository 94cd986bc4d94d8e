import { CORE_SCHEMA, load, realMapTag } from 'js-yaml';

/**
 * The short way through a YAML file that has no mistake and nothing rare in it: mappings, lists, numbers and texts, which is what these files are made of.
 * It takes a fifth of the time of the parser that knows where everything stands, which matters where thousands of tags are read
 * while values wait to be taken in. What is declined here goes the long way, and its faults are explained there. A test holds
 * both against each other.
 */
const SCHEMA = CORE_SCHEMA.withTags(realMapTag);

/**
 * What the two parsers, or people, do not agree about: tabs, anchors, tags and merges, several documents, directives, keys that are empty
 * or no text, block scalars, numbers beyond a double, line ends and characters of other times.
 */
const RARE =
  /[\t&!]|<<|---|^ *[?%]|(?:^|[\s{[,-]):|^\.\.\.|[|>][-+0-9]* *(?:#.*)?$|\de\+?\d{3}|\r(?!\n)|[^\n\r\x20-\x7e\u00a1-\u2027\u202a-\ud7ff]/im;

export interface PlainYamlLimits {
  nodes: number;
  depth: number;
  /** Characters of a name: it is part of the place of everything below it. */
  nameLength: number;
}

/** Plain data, mappings without a prototype; `undefined` where the long way has to be gone. */
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
    if (!(node instanceof Map)) return node;
    // No prototype: a tag may be called __proto__.
    const data: Record<string, unknown> = Object.create(null);
    for (const [key, value] of node) {
      const name = String(key);
      if (typeof key === 'object' || name in data || name.length > limits.nameLength) throw new Declined();
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
