/** Extracts numbers, booleans and strings from server values: scalars, array elements and structure members. */
import { DataType, LocalizedText, Variant, VariantArrayType } from 'node-opcua-client';
import type { Problem } from './problems.ts';
import type { Item, RawValue } from './protocol.ts';

/** Part of a value that an item selects. */
export type Part = Pick<Item, 'index' | 'member'>;

/** Structure decoded by the library. */
interface Structure {
  applyOnAllFields<Data>(visit: (structure: object, field: Field, data: Data) => void, data: Data): void;
}

interface Field {
  /** Name of the property, with a lower-case first letter. */
  name: string;
  /** Name in the server's type definition. */
  originalName: string;
  fieldType: string;
  isArray?: boolean;
  schema?: { subType?: string };
}

const MAX_DEPTH = 5;
/** Maximum number of elements per array and of members per structure that are listed. */
const MAX_LISTED = 32;
const MAX_NAMED = 6;
/** Maximum length of a string, in characters. */
const MAX_TEXT = 1_000;
const UNSIGNED = /UInt64/;

/** Returns the number, boolean or string that an item selects in a value, or the reason why there is none. */
export function rawIn(variant: Variant | null | undefined, { index, member }: Part): RawValue | Problem {
  if (!variant || variant.dataType === DataType.Null) return { problem: 'the value is empty' };
  const { dataType } = variant;
  const elements = elementsOf(variant);
  if (elements !== undefined && index === undefined && elements.length !== 1) return arrayProblem(variant, elements);
  // A server that ignores the requested range returns all elements.
  const element = elements === undefined ? variant.value : elements[elements.length === 1 ? 0 : (index ?? 0)];
  if (element === undefined || element === null) {
    return { problem: index === undefined ? 'the value is empty' : `the array does not have the element ${index}` };
  }
  if (isStructure(element)) {
    if (member !== undefined) return rawOf(memberOf(element, member.split('.'))) ?? memberProblem(element, member);
    return {
      problem: 'the value is a structure',
      hint: namesHint(element) ?? 'Use another node: no member of the structure is a number.',
    };
  }
  if (dataType === DataType.ExtensionObject)
    return { problem: 'the server does not describe the type of the structure' };
  if (member !== undefined) return { problem: 'the value is not a structure', hint: 'Remove member:.' };
  return rawOf({ value: element, isUnsigned: dataType === DataType.UInt64 }) ?? kindProblem(dataType, element);
}

/** Returns the numeric elements or members of a value, and the parts that select them. */
export function numbersIn(variant: Variant | null | undefined): { part: Part; number: number }[] {
  if (!variant || variant.dataType === DataType.Null) return [];
  const indices = elementsOf(variant)?.slice(0, MAX_LISTED).keys();
  const parts = indices === undefined ? [{}] : [...indices].map((index) => ({ index }));
  return parts
    .flatMap((part: Part): Part[] => {
      const element = elementsOf(variant)?.[part.index ?? 0] ?? variant.value;
      return isStructure(element) ? membersOf(element).map((member) => ({ ...part, member })) : [part];
    })
    .flatMap((part) => {
      const raw = rawIn(variant, part);
      return isNumeric(raw) ? [{ part, number: Number(raw) }] : [];
    });
}

/** Returns the elements of an array or matrix; `undefined` for a scalar. 64-bit elements are pairs of halves. */
function elementsOf({ arrayType, value }: Variant): readonly unknown[] | undefined {
  if (arrayType === VariantArrayType.Scalar) return undefined;
  return Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value as ArrayLike<unknown>) : [];
}

interface Leaf {
  value: unknown;
  isUnsigned: boolean;
}

function rawOf(leaf: Leaf | undefined): RawValue | undefined {
  const { value, isUnsigned } = leaf ?? { value: undefined, isUnsigned: false };
  if (typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined;
  const text = value instanceof LocalizedText ? value.text : value;
  if (typeof text === 'string') return text.length <= MAX_TEXT ? text : undefined;
  return isPair(value) ? wholeOf(value, isUnsigned) : undefined;
}

/** The library represents 64-bit integers as two halves. */
function isPair(value: unknown): value is [high: number, low: number] {
  return Array.isArray(value) && value.length === 2 && value.every((half) => typeof half === 'number');
}

/** Returns the nearest double for integers above 2^53. */
function wholeOf([high, low]: readonly [high: number, low: number], isUnsigned: boolean): number {
  const bits = (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
  return Number(isUnsigned ? bits : BigInt.asIntN(64, bits));
}

function isStructure(value: unknown): value is Structure {
  return (
    typeof (value as Structure | undefined)?.applyOnAllFields === 'function' && fieldsOf(value as Structure).length > 0
  );
}

/** Returns all fields, including those of base types. */
function fieldsOf(structure: Structure): Field[] {
  const fields: Field[] = [];
  structure.applyOnAllFields((_, field, found) => found.push(field), fields);
  return fields;
}

/** Follows a path of member names and element indices. */
function memberOf(structure: Structure, [name, ...rest]: readonly string[]): Leaf | undefined {
  const field = fieldsOf(structure).find(({ originalName }) => originalName === name);
  if (field === undefined) return undefined;
  const [index, ...inner] = field.isArray ? rest : ['', ...rest];
  const found = (structure as unknown as Record<string, unknown>)[field.name];
  const value = field.isArray ? (found as ArrayLike<unknown> | undefined)?.[Number(index)] : found;
  return leafOf(value, field, inner);
}

function leafOf(value: unknown, { fieldType, schema }: Field, rest: readonly string[]): Leaf | undefined {
  if (value instanceof Variant) {
    const raw = rawIn(value, rest.length === 0 ? {} : { member: rest.join('.') });
    return typeof raw === 'object' ? undefined : { value: raw, isUnsigned: false };
  }
  if (isStructure(value)) return rest.length === 0 ? undefined : memberOf(value, rest);
  if (rest.length > 0) return undefined;
  return { value, isUnsigned: UNSIGNED.test(`${fieldType} ${schema?.subType ?? ''}`) };
}

/** Returns the paths of all members that are numbers. */
function membersOf(structure: Structure, before: readonly string[] = []): string[] {
  if (before.length >= MAX_DEPTH) return [];
  const found: string[] = [];
  for (const { name, originalName, isArray } of fieldsOf(structure)) {
    const value = (structure as unknown as Record<string, unknown>)[name];
    const parts = isArray ? Array.from((value as ArrayLike<unknown> | null) ?? []).slice(0, MAX_LISTED) : [value];
    for (const [at, part] of parts.entries()) {
      const path = [...before, originalName, ...(isArray ? [String(at)] : [])];
      if (isStructure(part)) found.push(...membersOf(part, path));
      else if (isNumeric(part instanceof Variant ? rawIn(part, {}) : rawOf({ value: part, isUnsigned: false })))
        found.push(path.join('.'));
      if (found.length >= MAX_LISTED) return found.slice(0, MAX_LISTED);
    }
  }
  return found;
}

const isNumeric = (raw: unknown): boolean => typeof raw === 'number' || typeof raw === 'boolean';

function namesHint(structure: Structure): string | undefined {
  const names = membersOf(structure);
  if (names.length === 0) return undefined;
  const more = names.length > MAX_NAMED ? ' or another member' : '';
  return `Set member: ${names.slice(0, MAX_NAMED).join(', ')}${more}.`;
}

function memberProblem(structure: Structure, member: string): Problem {
  const hint = namesHint(structure);
  const problem = `the structure does not have a number or text at ${member}`;
  return hint === undefined ? { problem } : { problem, hint };
}

function arrayProblem({ dimensions }: Variant, elements: readonly unknown[]): Problem {
  if (elements.length === 0) return { problem: 'the array is empty' };
  if (dimensions && dimensions.length > 1) {
    const problem = `the value is an array of ${dimensions.join(' × ')} elements`;
    return { problem, hint: 'Use a node that contains one element.' };
  }
  const problem = `the value is an array of ${elements.length} elements`;
  return { problem, hint: `Set index: to a number from 0 to ${elements.length - 1}.` };
}

function kindProblem(dataType: DataType, value: unknown): Problem {
  if (typeof value === 'number') return { problem: `the value is ${value}` };
  if (dataType === DataType.String || dataType === DataType.LocalizedText)
    return { problem: `the text is longer than ${MAX_TEXT} characters` };
  return { problem: `the value is of type ${DataType[dataType]}, not a number` };
}
