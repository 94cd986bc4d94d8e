/** Converts server values: numbers, booleans and strings of scalars, array elements and structure members. */
import * as ua from 'node-opcua-client';
import { NumericRange } from 'node-opcua-numeric-range';
import type { Item, Problem, RawValue, Reading, Status } from './protocol.ts';

/** Part of a value that an item selects. */
type Part = Pick<Item, 'index' | 'member'>;

/** Field of a structure that the library has decoded. */
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

/** Messages for the status codes of a node. */
const TEXTS: Readonly<Record<string, string>> = {
  BadNodeIdUnknown: 'the server does not have this node',
  BadNodeIdInvalid: 'the server does not accept this node id',
  BadAttributeIdInvalid: 'the node is not a variable',
  BadNotReadable: 'the node is not readable',
  BadNotWritable: 'the node is not writable',
  BadTypeMismatch: 'the node does not accept this type',
  BadOutOfRange: 'the node does not accept this value',
  BadUserAccessDenied: 'the user has no access to the node',
  BadIndexRangeNoData: 'the array does not have this element',
  BadIndexRangeInvalid: 'the value is not an array',
  BadTooManyMonitoredItems: 'the server does not accept more monitored values',
  BadMonitoredItemFilterUnsupported: 'the node does not support this trigger',
  BadFilterNotAllowed: 'the node does not support this trigger',
  BadNotConnected: 'the server is not connected to the device',
  BadNoCommunication: 'the server cannot communicate with the device',
  BadWaitingForInitialData: 'the server does not have a value yet',
  BadHistoryOperationUnsupported: 'the server does not have a history of this node',
  BadHistoryOperationInvalid: 'the server does not have a history of this node',
  BadServiceUnsupported: 'the server does not support this request',
};

/** The server rejected an operation on a node. The message is complete. */
export class NodeRejection extends Error {}

/** Describes the status code of a node or of its value. */
export function statusText({ name }: ua.StatusCode): string {
  const text = TEXTS[name];
  return text === undefined ? `status ${name}` : `${text} (${name})`;
}

/** Includes codes such as GoodNoData, which the library's `isGood` excludes. */
export function isGood(code: ua.StatusCode): boolean {
  return severityOf(code) === 0;
}

function severityOf({ value }: ua.StatusCode): Status {
  return SEVERITIES[value >>> 30]!;
}

/** Returns the node attribute and index range to read or monitor for an item. */
export function valueIdOf(nodeId: ua.NodeId, { index }: Pick<Item, 'index'>) {
  const indexRange = index === undefined ? {} : { indexRange: new NumericRange(String(index)) };
  return { nodeId, attributeId: ua.AttributeIds.Value, ...indexRange };
}

export function readingOf({ value, statusCode, sourceTimestamp, serverTimestamp }: ua.DataValue, part: Part): Reading {
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
function rawIn(variant: ua.Variant | null | undefined, { index, member }: Part): RawValue | Problem {
  if (!variant || variant.dataType === ua.DataType.Null) return { problem: 'the value is empty' };
  const whole = leafOf(variant);
  const length = whole.isArray ? elementsOf(whole).length : 1;
  if (index === undefined && length !== 1) return arrayProblem(variant, length);
  // A server that ignores the requested range returns all elements.
  const leaf = whole.isArray ? partOf(whole, String(length === 1 ? 0 : index))! : whole;
  let found: Leaf | undefined = leaf;
  for (const name of member?.split('.') ?? []) found = found && partOf(found, name);
  return (found && rawOf(found)) ?? problemOf(leaf, variant.dataType, index, member);
}

/** Returns why a value does not contain the number or text that an item selects. */
function problemOf(leaf: Leaf, dataType: ua.DataType, index?: number, member?: string): Problem {
  const { value } = leaf;
  if (value === undefined || value === null)
    return { problem: index === undefined ? 'the value is empty' : `the array does not have the element ${index}` };
  if (fieldsOf(value).length > 0) {
    const names = numbersBelow(leaf).map(({ path }) => path.join('.'));
    const more = names.length > MAX_NAMED ? ' or another member' : '';
    const hint = `Set member: ${names.slice(0, MAX_NAMED).join(', ')}${more}.`;
    const otherwise = 'Use another node: no member of the structure is a number.';
    const problem =
      member === undefined ? 'the value is a structure' : `the structure does not have a number or text at ${member}`;
    return { problem, hint: names.length === 0 ? otherwise : hint };
  }
  if (dataType === ua.DataType.ExtensionObject)
    return { problem: 'the server does not describe the type of the structure' };
  if (member !== undefined) return { problem: 'the value is not a structure', hint: 'Remove member:.' };
  if (typeof value === 'number') return { problem: `the value is ${value}` };
  if (dataType === ua.DataType.String || dataType === ua.DataType.LocalizedText)
    return { problem: `the text is longer than ${MAX_TEXT} characters` };
  return { problem: `the value is of type ${ua.DataType[dataType]}, not a number` };
}

function arrayProblem({ dimensions }: ua.Variant, length: number): Problem {
  if (length === 0) return { problem: 'the array is empty' };
  if (dimensions && dimensions.length > 1) {
    const problem = `the value is an array of ${dimensions.join(' × ')} elements`;
    return { problem, hint: 'Use a node that contains one element.' };
  }
  const problem = `the value is an array of ${length} elements`;
  return { problem, hint: `Set index: to a number from 0 to ${length - 1}.` };
}

/** Returns the numeric elements or members of a value, and the parts that select them. */
export function numbersIn(variant: ua.Variant | null | undefined): { part: Part; sample: number }[] {
  if (!variant || variant.dataType === ua.DataType.Null) return [];
  const whole = leafOf(variant);
  return numbersBelow(whole).map(({ path, number }) => {
    const members = whole.isArray ? path.slice(1) : path;
    const index = whole.isArray ? { index: Number(path[0]) } : {};
    return { part: { ...index, ...(members.length === 0 ? {} : { member: members.join('.') }) }, sample: number };
  });
}

function numbersBelow(leaf: Leaf, path: readonly string[] = []): { path: readonly string[]; number: number }[] {
  const raw = rawOf(leaf);
  if (typeof raw === 'number' || typeof raw === 'boolean') return [{ path, number: Number(raw) }];
  if (path.length >= MAX_DEPTH) return [];
  const names = leaf.isArray
    ? [...Array(Math.min(elementsOf(leaf).length, MAX_LISTED)).keys()].map(String)
    : fieldsOf(leaf.value).map(({ originalName }) => originalName);
  const found = names.flatMap((name) => numbersBelow(partOf(leaf, name)!, [...path, name]));
  return leaf.isArray ? found : found.slice(0, MAX_LISTED);
}

/** An element or member can be a variant itself. */
function leafOf(value: unknown, isArray = false, type = ''): Leaf {
  if (!(value instanceof ua.Variant)) return { value, isArray, isUnsigned: type.includes('UInt64') };
  return leafOf(value.value, value.arrayType !== ua.VariantArrayType.Scalar, ua.DataType[value.dataType]);
}

const elementsOf = ({ value }: Leaf) => (value ?? []) as ArrayLike<unknown>;

/** Returns an array element or a structure member. */
function partOf(leaf: Leaf, name: string): Leaf | undefined {
  if (leaf.isArray) return leafOf(elementsOf(leaf)[Number(name)], false, leaf.isUnsigned ? 'UInt64' : '');
  const field = fieldsOf(leaf.value).find(({ originalName }) => originalName === name);
  if (field === undefined) return undefined;
  const member = (leaf.value as Readonly<Record<string, unknown>>)[field.name];
  return leafOf(member, field.isArray, `${field.fieldType} ${field.schema?.subType}`);
}

/** Returns the fields of a decoded structure, including those of base types, and no fields for other values. */
function fieldsOf(value: unknown): Field[] {
  const fields: Field[] = [];
  const structure = value as { applyOnAllFields?(visit: (_: object, field: Field) => void, data: object): void };
  structure?.applyOnAllFields?.((_, field) => fields.push(field), {});
  return fields;
}

function rawOf({ value, isArray, isUnsigned }: Leaf): RawValue | undefined {
  if (typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined;
  const text = value instanceof ua.LocalizedText ? value.text : value;
  if (typeof text === 'string') return text.length <= MAX_TEXT ? text : undefined;
  // A 64-bit integer. Above 2^53, the nearest double.
  const [high, low] = !isArray && Array.isArray(value) && value.length === 2 ? (value as unknown[]) : [];
  if (typeof high !== 'number' || typeof low !== 'number') return undefined;
  const bits = (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
  return Number(isUnsigned ? bits : BigInt.asIntN(64, bits));
}
