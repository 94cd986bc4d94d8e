import { Ajv, type ErrorObject, type SchemaObject, type ValidateFunction } from 'ajv';
import { insteadOf, nearestName, noneOf } from '../base/nearest.ts';
import { escapePointer, type YamlFile } from './placed-yaml.ts';
import { type Problems, shown } from './problem.ts';

/**
 * A schema's verdict in sentences. The schemas say what a thing is in `title` ("a duration") and how it is written in
 * `examples`: editors show the same words that a problem is made of.
 */
export interface SchemaVerdict {
  /** Whether something at the pointer or below it has been reported: its meaning is then not looked at. */
  isBroken(pointer: string): boolean;
}

interface Described extends SchemaObject {
  title?: string;
  examples?: unknown[];
  properties?: Record<string, Described>;
}

const compiled = new WeakMap<SchemaObject, ValidateFunction>();

/** Compiles a schema when it is first needed: a reload does not pay for it again. */
export function compileSchema(schema: SchemaObject): ValidateFunction {
  const known = compiled.get(schema);
  if (known !== undefined) return known;
  // Without the schema of schemas, which costs more to compile than ours: a test holds ours against it.
  const validate = new Ajv({
    allErrors: true,
    verbose: true,
    allowUnionTypes: true,
    meta: false,
    validateSchema: false,
    // Making the code shorter takes longer than it saves in one reading.
    code: { optimize: false },
  }).compile(schema);
  compiled.set(schema, validate);
  return validate;
}

/** More would be the same mistake over and over. */
const MAX_PROBLEMS = 500;

/** Checks the shape of a file and reports each fault once, where it stands. */
export function checkShape(validate: ValidateFunction, file: YamlFile, problems: Problems): SchemaVerdict {
  const broken = new Set<string>();
  if (!isValid(validate, file)) {
    const errors = decisive(validate.errors ?? []);
    for (const error of errors) broken.add(pointerOf(error));
    const isReported = (error: ErrorObject) => file.unfilled?.has(pointerOf(error)) === true;
    const news = errors.filter((one) => !isMisspelt(one, errors) && !isReported(one));
    for (const error of news.slice(0, MAX_PROBLEMS)) report(error, file, problems);
  }
  return {
    isBroken: (pointer) => [...broken].some((one) => one === pointer || one.startsWith(`${pointer}/`) || one === ''),
  };
}

/** What was filled in is text; where the schema wants a number, a text that is one is taken as that. */
function isValid(validate: ValidateFunction, file: YamlFile): boolean {
  if (validate(file.data)) return true;
  let typed = false;
  for (const { keyword, instancePath, params, data } of validate.errors ?? []) {
    if (keyword !== 'type' || typeof data !== 'string' || !file.filled?.has(instancePath)) continue;
    const wanted = [params.type as string | string[]].flat();
    const number = /^-?\d+(\.\d+)?$/.test(data) ? Number(data) : undefined;
    if (
      number !== undefined &&
      (wanted.includes('number') || (wanted.includes('integer') && Number.isInteger(number)))
    ) {
      typed = putAt(file.data, instancePath, number) || typed;
    } else if (wanted.includes('boolean') && (data === 'true' || data === 'false')) {
      typed = putAt(file.data, instancePath, data === 'true') || typed;
    }
  }
  return typed && validate(file.data);
}

function putAt(data: unknown, pointer: string, value: unknown): boolean {
  const names = pointer
    .split('/')
    .slice(1)
    .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'));
  let above = data as Record<string, unknown>;
  for (const name of names.slice(0, -1)) above = above[name] as Record<string, unknown>;
  const last = names.at(-1);
  if (last === undefined) return false;
  above[last] = value;
  return true;
}

/** One error for one fault: of several faults of one value the first. The schemas have no alternatives, which cannot be explained. */
function decisive(errors: readonly ErrorObject[]): ErrorObject[] {
  const seen = new Set<string>();
  return errors.filter((error) => {
    if (error.keyword === 'propertyNames') return false;
    const about = error.params.missingProperty ?? error.params.additionalProperty ?? error.propertyName ?? '';
    const identity = `${error.instancePath}\n${about}`;
    if (seen.has(identity)) return false;
    seen.add(identity);
    return true;
  });
}

/** What the fault is about: the member that is too much or wrongly named, else the value. */
function pointerOf(error: ErrorObject): string {
  const name = error.keyword === 'additionalProperties' ? error.params.additionalProperty : error.propertyName;
  return name === undefined ? error.instancePath : `${error.instancePath}/${escapePointer(String(name))}`;
}

/** Whether a missing member stands there misspelt: then one problem says both. */
function isMisspelt(error: ErrorObject, errors: readonly ErrorObject[]): boolean {
  if (error.keyword !== 'required') return false;
  return errors.some((other) => {
    if (other.keyword !== 'additionalProperties' || other.instancePath !== error.instancePath) return false;
    const known = Object.keys((other.parentSchema as Described).properties ?? {});
    const nearest = nearestName(String(other.params.additionalProperty), known);
    return nearest?.likely === true && nearest.name === error.params.missingProperty;
  });
}

function report(error: ErrorObject, file: YamlFile, problems: Problems): void {
  const at = error.instancePath;
  const pointer = pointerOf(error);
  const schema = error.parentSchema as Described;
  switch (error.keyword) {
    case 'additionalProperties': {
      const name = String(error.params.additionalProperty);
      const known = Object.keys(schema.properties ?? {});
      // `scale: 0,1` in one line is a scale of 0 and a member 1.
      const instead = /^\d+$/.test(name)
        ? 'write decimals with a point: a comma begins another member'
        : insteadOf(name, known);
      problems.error(file.placeOfName(pointer), `unknown member ${shown(name)}`, instead, name);
      return;
    }
    case 'required': {
      const name = String(error.params.missingProperty);
      const example = schema.properties?.[name]?.examples?.[0];
      const what = example === undefined ? name : `${name}: ${written(example)}`;
      problems.error(file.placeOfName(at), `${nameOf(at)} has no member "${name}"`, `add ${what}`);
      return;
    }
    default:
  }
  if (error.propertyName !== undefined) {
    problems.error(
      file.placeOfName(pointer),
      `${shown(error.propertyName)} is not ${titleOf(schema)}`,
      insteadOfSchema(schema),
      error.propertyName,
    );
    return;
  }
  // What stands in headers may be a credential.
  const text = at.includes('/headers/') ? 'the value' : shown(error.data);
  const place = file.placeOf(at);
  if (error.keyword === 'enum') {
    const allowed = error.params.allowedValues as unknown[];
    const choices = allowed.filter((choice) => typeof choice === 'string');
    const isNumber = choices.length === 0;
    const reason = `${text} ${isNumber ? 'is unknown' : noneOf(String(error.data), choices)}`;
    // Of numbers the nearest is not more likely meant than another.
    const instead = isNumber ? `write ${allowed.join(' or ')}` : insteadOf(String(error.data), choices);
    problems.error(place, reason, instead, at.includes('/headers/') ? '' : scalarText(error.data));
    return;
  }
  problems.error(
    place,
    `${text} is not ${titleOf(schema)}`,
    insteadOfSchema(schema),
    at.includes('/headers/') ? '' : scalarText(error.data),
  );
}

function titleOf(schema: Described): string {
  if (schema.title !== undefined) return schema.title;
  if (schema.type === 'object') return 'a mapping';
  if (schema.type === 'array') return 'a list';
  return `${/^[aeiou]/.test(String(schema.type)) ? 'an' : 'a'} ${String(schema.type)}`;
}

function insteadOfSchema(schema: Described): string {
  const examples = (schema.examples ?? []).map(written);
  return examples.length === 0 ? `write ${titleOf(schema)}` : `write for example ${examples.join(' or ')}`;
}

/** An example as one would write it in YAML. */
function written(example: unknown): string {
  if (Array.isArray(example)) return `[${example.map(written).join(', ')}]`;
  if (typeof example === 'object' && example !== null) {
    return `{ ${Object.entries(example)
      .map(([name, value]) => `${name}: ${written(value)}`)
      .join(', ')} }`;
  }
  return String(example);
}

function nameOf(pointer: string): string {
  const name = pointer.slice(pointer.lastIndexOf('/') + 1);
  if (name === '') return 'the file';
  return /^\d+$/.test(name) ? `entry ${Number(name) + 1}` : `"${name.replaceAll('~1', '/').replaceAll('~0', '~')}"`;
}

function scalarText(data: unknown): string {
  return typeof data === 'object' ? '' : String(data);
}
