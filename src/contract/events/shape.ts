/**
 * Describes the content of an event. The validation schema for receivers, its type and the outline of the members are
 * derived from one description. The schema is more permissive than the specification, because a change to a member that
 * nothing depends on must not silence an alarm.
 */
export type JsonSchema = { readonly [keyword: string]: unknown };

export const LIST = Symbol('list');

/** Members in the specification; `open` if it does not specify the form of a member. */
export type Outline = 'number' | 'text' | 'open' | readonly string[] | Members;
/** Members of an object, or of every element of a list if `LIST` is set. */
export type Members = { readonly [member: string]: Outline; readonly [LIST]?: true };

export interface Shape<Value = unknown> {
  /** Validation schema for receivers. */
  readonly received: JsonSchema;
  readonly outline: Outline;
  /** Carries the type of a valid value; never set. */
  readonly value?: Value;
}

/** The type of a value that is valid for a shape. */
export type ValueOf<S> = S extends Shape<infer Value> ? Value : never;

type Shapes = { readonly [member: string]: Shape };
/** Optional members may be missing or null. */
type ObjectOf<S extends Shapes, Required extends keyof S> = { [Name in Required]: ValueOf<S[Name]> } & {
  [Name in Exclude<keyof S, Required>]?: ValueOf<S[Name]> | null;
};

export function leaf<Value>(received: JsonSchema, outline: Outline): Shape<Value> {
  return { received, outline };
}

export function object<S extends Shapes, const Required extends keyof S & string = never>(
  members: S,
  required: readonly Required[] = [],
): Shape<ObjectOf<S, Required>> {
  return {
    received: { type: 'object', properties: mapped(members, ({ received }) => received), required },
    outline: mapped(members, ({ outline }) => outline),
  };
}

export function listOf<Value>(item: Shape<Value>): Shape<Value[]> {
  return {
    received: { type: 'array', items: item.received },
    outline: { ...(item.outline as Members), [LIST]: true },
  };
}

/** An object with keys chosen by the platform. Keys may contain dots, so its members have no outline. */
export function byKey(entry: Shape): Shape<Record<string, unknown>> {
  return { received: { type: 'object', additionalProperties: entry.received }, outline: 'open' };
}

/** Accepts any value, because nothing depends on it. */
export function unchecked(shape: Shape): Shape<unknown> {
  return { ...shape, received: {} };
}

/** Accepts any value, and lists the members of an object. */
export function loose(shape: Shape): Shape<unknown> {
  const { properties } = shape.received as { properties: Record<string, JsonSchema> };
  return { ...shape, received: { properties: Object.fromEntries(Object.keys(properties).map((name) => [name, {}])) } };
}

export function orNull<Value>(shape: Shape<Value>): Shape<Value | null> {
  return { received: { anyOf: [shape.received, { type: 'null' }] }, outline: shape.outline };
}

/** Adds requirements to the schema. */
export function demanding<Value>(shape: Shape<Value>, more: JsonSchema): Shape<Value> {
  return { ...shape, received: { ...shape.received, ...more } };
}

function mapped<Part>(members: Shapes, part: (shape: Shape) => Part): Record<string, Part> {
  return Object.fromEntries(Object.entries(members).map(([name, shape]) => [name, part(shape)]));
}
