/**
 * How a place in an event's content is described: once, with all that follows from it. What a receiver lets through is wider
 * than what the specification shows, which is what the sandbox sends: a platform that changes a member that nothing goes by
 * must not silence an alarm.
 */
export type JsonSchema = { readonly [keyword: string]: unknown };

export const LIST = Symbol('list');

/** What the specification shows: `open` where it names a member but leaves its form open. */
export type Outline = 'number' | 'text' | 'open' | readonly string[] | Members;
/** `LIST`: a list, and these are the members of each one in it. */
export type Members = { readonly [member: string]: Outline; readonly [LIST]?: true };

export interface Shape<Value = unknown> {
  /** What a receiver lets through. */
  readonly received: JsonSchema;
  readonly outline: Outline;
  /** What the sandbox sends, by the letter. */
  readonly sent: JsonSchema;
  /** The type of what was let through; there is no such member. */
  readonly value?: Value;
}

/** The type of what a shape lets through. */
export type ValueOf<S> = S extends Shape<infer Value> ? Value : never;

type Shapes = { readonly [member: string]: Shape };
/** Members that are not required may be missing, or null. */
type ObjectOf<S extends Shapes, Required extends keyof S> = { [Name in Required]: ValueOf<S[Name]> } & {
  [Name in Exclude<keyof S, Required>]?: ValueOf<S[Name]> | null;
};

export function leaf<Value>(received: JsonSchema, outline: Outline, sent: JsonSchema): Shape<Value> {
  return { received, outline, sent };
}

/** Members of which the `required` ones must be there; the sandbox sends all of them. */
export function object<S extends Shapes, const Required extends keyof S & string = never>(
  members: S,
  required: readonly Required[] = [],
): Shape<ObjectOf<S, Required>> {
  return {
    received: { type: 'object', properties: mapped(members, ({ received }) => received), required },
    outline: mapped(members, ({ outline }) => outline),
    sent: {
      type: 'object',
      properties: mapped(members, ({ sent }) => sent),
      required: Object.keys(members),
      additionalProperties: false,
    },
  };
}

export function listOf<Value>(item: Shape<Value>): Shape<Value[]> {
  return {
    received: { type: 'array', items: item.received },
    outline: { ...(item.outline as Members), [LIST]: true },
    sent: { type: 'array', items: item.sent },
  };
}

/** By keys of the platform's, which may hold dots: so nothing below is outlined. */
export function byKey(entry: Shape): Shape<Record<string, unknown>> {
  return {
    received: { type: 'object', additionalProperties: entry.received },
    outline: 'open',
    sent: { type: 'object', additionalProperties: entry.sent },
  };
}

/** Nothing goes by it: anything may come, even where the specification shows members. */
export function unchecked(shape: Shape): Shape<unknown> {
  return { ...shape, received: {} };
}

/** Anything may come, though members that do are those that are shown: the schema names them for readers. */
export function loose(shape: Shape): Shape<unknown> {
  const { properties } = shape.received as { properties: Record<string, JsonSchema> };
  return { ...shape, received: { properties: Object.fromEntries(Object.keys(properties).map((name) => [name, {}])) } };
}

/** A receiver takes null as well; so does the sandbox send it where `sent` says so. */
export function orNull<Value>(shape: Shape<Value>, sent: 'never sent' | 'sent' = 'never sent'): Shape<Value | null> {
  const either = (schema: JsonSchema) => ({ anyOf: [schema, { type: 'null' }] });
  return {
    received: either(shape.received),
    outline: shape.outline,
    sent: sent === 'sent' ? either(shape.sent) : shape.sent,
  };
}

/** As the shape, but sent otherwise. */
export function sentAs<Value>(shape: Shape<Value>, sent: JsonSchema): Shape<Value> {
  return { ...shape, sent };
}

/** With more that a receiver demands. */
export function demanding<Value>(shape: Shape<Value>, more: JsonSchema): Shape<Value> {
  return { ...shape, received: { ...shape.received, ...more } };
}

function mapped<Part>(members: Shapes, part: (shape: Shape) => Part): Record<string, Part> {
  return Object.fromEntries(Object.entries(members).map(([name, shape]) => [name, part(shape)]));
}
