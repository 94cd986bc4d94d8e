/** The `map` member of a value: numbers that replace strings. */
import type { SchemaObject } from 'ajv';
import { printable } from './problem.ts';
import type { MemberReport, Members } from './source-kinds.ts';
import type { ValueMap } from './tags.ts';

const MAX_TEXTS = 1_000;

export const VALUE_MAP_SCHEMA: SchemaObject = {
  type: 'object',
  minProperties: 1,
  maxProperties: MAX_TEXTS,
  title: `a mapping of 1 to ${MAX_TEXTS} texts to numbers`,
  description: 'Numbers that replace text, numbers or booleans. Text without a number is rejected.',
  examples: [{ RUN: 1, OFF: 0 }],
  propertyNames: { maxLength: 256, title: 'a text of at most 256 characters', examples: ['RUN'] },
  additionalProperties: { type: 'number', title: 'a number', examples: [1] },
};

/** Returns the map of a value; `undefined` if it has none, or after reporting a problem. */
export function readValueMap({ map }: Members, report: MemberReport): ValueMap | undefined {
  if (map === undefined) return undefined;
  const entries = Object.entries(map as Readonly<Record<string, number>>);
  const spaced = entries.find(([text]) => text !== text.trim());
  if (spaced !== undefined) {
    const reason = `the text "${printable(spaced[0])}" in map begins or ends with a space`;
    report.problem('map', reason, 'remove the space: spaces around a value are ignored');
    return undefined;
  }
  // Names are used as written. Readings are numbers: 0x1F in map stands for 31.
  const numeric = entries.filter(([text]) => text !== '' && Number.isFinite(Number(text)));
  const canonical = numeric.map(([text, number]) => [String(Number(text)), number] as const);
  return { numbers: Object.fromEntries([...canonical, ...entries]), passesNumbers: numeric.length === 0 };
}
