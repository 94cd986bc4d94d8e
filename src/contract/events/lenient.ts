import type { JsonSchema } from './shape.ts';

/**
 * Converts members whose JSON type differs from their schema: text such as `"881"` to a number, and a number to text.
 * Changes objects and lists in place. Returns the converted value.
 */
export function converted(schema: JsonSchema, data: unknown): unknown {
  if (typeof data === 'string' && isOfType(schema, 'number', 'integer')) return numberOr(data);
  if (typeof data === 'number') return isOfType(schema, 'string') ? String(data) : data;
  if (typeof data !== 'object' || data === null) return data;
  const {
    properties = {},
    additionalProperties,
    items,
    anyOf,
  } = schema as {
    properties?: Readonly<Record<string, JsonSchema>>;
    additionalProperties?: JsonSchema;
    items?: JsonSchema;
    anyOf?: readonly JsonSchema[];
  };
  for (const option of anyOf ?? []) converted(option, data);
  if (Array.isArray(data)) {
    if (items) for (const [at, item] of data.entries()) data[at] = converted(items, item);
    return data;
  }
  const members = data as Record<string, unknown>;
  for (const [name, member] of Object.entries(members)) {
    const known = Object.hasOwn(properties, name) ? properties[name] : additionalProperties;
    // Unlike an assignment, `defineProperty` also replaces a member named `__proto__`.
    if (known) Object.defineProperty(members, name, { value: converted(known, member) });
  }
  return members;
}

/** Whether a schema permits one of the types. False if the schema permits both text and numbers. */
function isOfType({ type }: JsonSchema, ...wanted: readonly string[]): boolean {
  const types = [type].flat();
  if (types.includes('string') && (types.includes('number') || types.includes('integer'))) return false;
  return wanted.some((one) => types.includes(one));
}

function numberOr(text: string): unknown {
  if (!/^-?\d{1,17}(?:\.\d{1,17})?(?:[eE][+-]?\d{1,3})?$/.test(text)) return text;
  const value = Number(text);
  // A rounded ID would be the ID of another object.
  return Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value)) ? value : text;
}
