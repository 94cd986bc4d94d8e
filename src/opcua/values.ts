/** Converts server values: numbers, booleans and strings of scalars, array elements and structure members. */
import {
  AttributeIds,
  DataType,
  type DataValue,
  LocalizedText,
  type NodeId,
  type StatusCode,
  Variant,
  VariantArrayType,
} from 'node-opcua-client';
import { NumericRange } from 'node-opcua-numeric-range';
import type { Item, Problem, RawValue, Reading, Status } from './protocol.ts';

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

/** Value of a variant, an array element or a structure member. The library represents 64-bit integers as two halves. */
interface Leaf {
  value: unknown;
  isArray: boolean;
  isUnsigned: boolean;
}

/** Bits of a status code that report a queue overflow on the server. */
const OVERFLOW = 0x480;
/** Severity by the two highest bits of a status code. The fourth value is reserved and treated as bad. */
const SEVERITIES: readonly Status[] = [0, 1, 2, 2];
const MAX_DEPTH = 5;
/** Maximum number of elements per array and of members per structure that are listed. */
const MAX_LISTED = 32;
const MAX_NAMED = 6;
/** Maximum length of a string, in characters. */
const MAX_TEXT = 1_000;
const UNSIGNED = /UInt64/;
const EMPTY: Problem = { problem: 'the value is empty' };

/** Messages for the status codes of a node. */
const TEXTS: Readonly<Record<string, string>> = {
  BadNodeIdUnknown: 'the server does not have this node',
  BadNodeIdInvalid: 'the server does not accept this node id',
  BadAttributeIdInvalid: 'the node is not a variable',
  BadNotReadable: 'the node is not readable',
  BadUserAccessDenied: 'the user is not allowed to read the node',
  BadIndexRangeNoData: 'the array does not have this element',
  BadIndexRangeInvalid: 'the value is not an array',
  BadTooManyMonitoredItems: 'the server does not accept more monitored values',
  BadNotConnected: 'the server is not connected to the device',
  BadNoCommunication: 'the server cannot communicate with the device',
  BadWaitingForInitialData: 'the server does not have a value yet',
  BadHistoryOperationUnsupported: 'the server does not have a history of this node',
  BadHistoryOperationInvalid: 'the server does not have a history of this node',
  BadServiceUnsupported: 'the server does not support this request',
};

/** Describes the status code of a node or of its value. */
export function statusText({ name }: StatusCode): string {
  const text = TEXTS[name];
  return text === undefined ? `status ${name}` : `${text} (${name})`;
}

/** Includes codes such as GoodNoData, which the library's `isGood` excludes. */
export function isGood(code: StatusCode): boolean {
  return severityOf(code) === 0;
}

function severityOf({ value }: StatusCode): Status {
  return SEVERITIES[value >>> 30]!;
}

/** Returns the node attribute and index range to read or monitor for an item. */
export function valueIdOf(nodeId: NodeId, { index }: Pick<Item, 'index'>) {
  return {
    nodeId,
    attributeId: AttributeIds.Value,
    ...(index === undefined ? {} : { indexRange: new NumericRange(String(index)) }),
  };
}

export function readingOf({ value, statusCode, sourceTimestamp, serverTimestamp }: DataValue, part: Part): Reading {
  const timeMs = timeOf(sourceTimestamp) ?? timeOf(serverTimestamp);
  const status = severityOf(statusCode);
  const found = rawIn(value, part);
  const overflow = (statusCode.value & OVERFLOW) === OVERFLOW ? { overflow: true as const } : undefined;
  if (typeof found !== 'object') return overflow ? [found, timeMs, status, overflow] : [found, timeMs, status];
  return [null, timeMs, status, { ...(status === 0 ? found : { problem: statusText(statusCode) }), ...overflow }];
}

/** A time in the year 1601 means that there is no timestamp. */
function timeOf(date: Date | null | undefined): number | null {
  const ms = date?.getTime() ?? Number.NaN;
  return ms >= 0 ? Math.floor(ms) : null;
}

/** Returns the number, boolean or string that an item selects in a value, or the reason why there is none. */
function rawIn(variant: Variant | null | undefined, { index, member }: Part): RawValue | Problem {
  if (!variant || variant.dataType === DataType.Null) return EMPTY;
  const whole = leafIn(variant);
  const length = lengthOf(whole);
  if (whole.isArray && index === undefined && length !== 1) return arrayProblem(variant, length);
  // A server that ignores the requested range returns all elements.
  const leaf = whole.isArray ? partOf(whole, String(length === 1 ? 0 : index))! : whole;
  if (leaf.value === undefined || leaf.value === null)
    return index === undefined ? EMPTY : { problem: `the array does not have the element ${index}` };
  if (isStructure(leaf.value)) return rawInStructure(leaf, member);
  if (variant.dataType === DataType.ExtensionObject)
    return { problem: 'the server does not describe the type of the structure' };
  if (member !== undefined) return { problem: 'the value is not a structure', hint: 'Remove member:.' };
  return rawOf(leaf) ?? typeProblem(variant.dataType, leaf.value);
}

function rawInStructure(structure: Leaf, member: string | undefined): RawValue | Problem {
  let leaf: Leaf | undefined = structure;
  for (const name of member?.split('.') ?? []) leaf = leaf && partOf(leaf, name);
  const raw = leaf && rawOf(leaf);
  if (raw !== undefined) return raw;
  const names = membersOf(structure);
  const more = names.length > MAX_NAMED ? ' or another member' : '';
  const hint = names.length === 0 ? undefined : `Set member: ${names.slice(0, MAX_NAMED).join(', ')}${more}.`;
  if (member === undefined) {
    const otherwise = 'Use another node: no member of the structure is a number.';
    return { problem: 'the value is a structure', hint: hint ?? otherwise };
  }
  const problem = `the structure does not have a number or text at ${member}`;
  return hint === undefined ? { problem } : { problem, hint };
}

/** Returns the numeric elements or members of a value, and the parts that select them. */
export function numbersIn(variant: Variant | null | undefined): { part: Part; number: number }[] {
  if (!variant || variant.dataType === DataType.Null) return [];
  const whole = leafIn(variant);
  const parts: Part[] = whole.isArray ? namesOf(whole).map((name) => ({ index: Number(name) })) : [{}];
  return parts
    .flatMap((part): Part[] => {
      const leaf = part.index === undefined ? whole : partOf(whole, String(part.index))!;
      return isStructure(leaf.value) ? membersOf(leaf).map((member) => ({ ...part, member })) : [part];
    })
    .flatMap((part) => {
      const raw = rawIn(variant, part);
      return isNumeric(raw) ? [{ part, number: Number(raw) }] : [];
    });
}

function leafIn({ dataType, arrayType, value }: Variant): Leaf {
  return { value, isArray: arrayType !== VariantArrayType.Scalar, isUnsigned: dataType === DataType.UInt64 };
}

/** A structure member can be a variant. */
const opened = (leaf: Leaf): Leaf => (leaf.value instanceof Variant ? leafIn(leaf.value) : leaf);

const lengthOf = ({ value }: Leaf): number => (value as ArrayLike<unknown> | null)?.length ?? 0;

/** Returns an array element or a structure member. */
function partOf(leaf: Leaf, name: string): Leaf | undefined {
  const { value, isArray, isUnsigned } = opened(leaf);
  if (isArray) return { value: (value as ArrayLike<unknown> | null)?.[Number(name)], isArray: false, isUnsigned };
  const field = isStructure(value) ? fieldsOf(value).find(({ originalName }) => originalName === name) : undefined;
  return field && memberOf(value as Readonly<Record<string, unknown>>, field);
}

function memberOf(structure: Readonly<Record<string, unknown>>, field: Field): Leaf {
  const { name, isArray = false, fieldType, schema } = field;
  return { value: structure[name], isArray, isUnsigned: UNSIGNED.test(`${fieldType} ${schema?.subType ?? ''}`) };
}

function namesOf(leaf: Leaf): string[] {
  const { value, isArray } = opened(leaf);
  if (isArray) return Array.from({ length: Math.min(lengthOf(opened(leaf)), MAX_LISTED) }, (_, at) => String(at));
  return isStructure(value) ? fieldsOf(value).map(({ originalName }) => originalName) : [];
}

/** Returns the paths of all members that are numbers. */
function membersOf(leaf: Leaf, path: readonly string[] = []): string[] {
  const names = path.length < MAX_DEPTH ? namesOf(leaf) : [];
  if (names.length === 0) return isNumeric(rawOf(leaf)) ? [path.join('.')] : [];
  const found: string[] = [];
  for (const name of names) {
    found.push(...membersOf(partOf(leaf, name)!, [...path, name]));
    if (found.length >= MAX_LISTED) break;
  }
  return found.slice(0, MAX_LISTED);
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

function rawOf(leaf: Leaf): RawValue | undefined {
  const { value, isArray, isUnsigned } = opened(leaf);
  if (typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined;
  const text = value instanceof LocalizedText ? value.text : value;
  if (typeof text === 'string') return text.length <= MAX_TEXT ? text : undefined;
  return !isArray && isPair(value) ? integerOf(value, isUnsigned) : undefined;
}

function isPair(value: unknown): value is [high: number, low: number] {
  return Array.isArray(value) && value.length === 2 && value.every((half) => typeof half === 'number');
}

/** Returns the nearest double for integers above 2^53. */
function integerOf([high, low]: readonly [high: number, low: number], isUnsigned: boolean): number {
  const bits = (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
  return Number(isUnsigned ? bits : BigInt.asIntN(64, bits));
}

const isNumeric = (raw: unknown): boolean => typeof raw === 'number' || typeof raw === 'boolean';

function arrayProblem({ dimensions }: Variant, length: number): Problem {
  if (length === 0) return { problem: 'the array is empty' };
  if (dimensions && dimensions.length > 1) {
    const problem = `the value is an array of ${dimensions.join(' × ')} elements`;
    return { problem, hint: 'Use a node that contains one element.' };
  }
  const problem = `the value is an array of ${length} elements`;
  return { problem, hint: `Set index: to a number from 0 to ${length - 1}.` };
}

function typeProblem(dataType: DataType, value: unknown): Problem {
  if (typeof value === 'number') return { problem: `the value is ${value}` };
  if (dataType === DataType.String || dataType === DataType.LocalizedText)
    return { problem: `the text is longer than ${MAX_TEXT} characters` };
  return { problem: `the value is of type ${DataType[dataType]}, not a number` };
}
