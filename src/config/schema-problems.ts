import { Ajv, type ErrorObject, type SchemaObject, type ValidateFunction } from 'ajv';
import { insteadOf, nearestName, noneOf } from '../base/nearest.ts';
import { escapePointer, type YamlFile } from './placed-yaml.ts';
import { type Problems, shown } from './problem.ts';

/**
 * Converts schema errors to messages, using the schema's `title` ("a duration") and `examples`, which editors show too.
 */
export interface SchemaVerdict {
  /** Whether a problem was reported at the pointer or below it, which makes further checks unnecessary. */
  isBroken(pointer: string): boolean;
}

interface Described extends SchemaObject {
  title?: string;
  examples?: unknown[];
  /** Choices of an enumeration by other names for them, in lower case. */
  otherNames?: Record<string, string>;
  properties?: Record<string, Described>;
}

const compiled = new WeakMap<SchemaObject, ValidateFunction>();

/** Compiles a schema on first use and caches it for reloads. */
export function compileSchema(schema: SchemaObject): ValidateFunction {
  const known = compiled.get(schema);
  if (known !== undefined) return known;
  // Skip the meta-schema, which is slow to compile. A test validates the schemas against it.
  const validate = new Ajv({
    allErrors: true,
    verbose: true,
    allowUnionTypes: true,
    keywords: ['otherNames'],
    meta: false,
    validateSchema: false,
    // Optimizing the code takes longer than it saves in a single run.
    code: { optimize: false },
  }).compile(schema);
  compiled.set(schema, validate);
  return validate;
}

/** Maximum number of problems. Further problems usually have the same cause. */
const MAX_PROBLEMS = 500;

/**
 * Checks the structure of a file and reports each problem once, with its location, except at the pointers in
 * `explained`.
 */
export function checkShape(
  validate: ValidateFunction,
  file: YamlFile,
  problems: Problems,
  explained: ReadonlySet<string> = new Set(),
): SchemaVerdict {
  const broken = new Set<string>();
  if (!isValid(validate, file)) {
    const errors = decisive(validate.errors ?? []);
    for (const error of errors) broken.add(pointerOf(error));
    const isReported = (error: ErrorObject) => {
      const pointer = pointerOf(error);
      return explained.has(pointer) || file.unfilled?.has(pointer) === true;
    };
    const news = errors.filter((one) => !isMisspelt(one, errors) && !isReported(one));
    for (const error of news.slice(0, MAX_PROBLEMS)) report(error, file, problems);
  }
  return {
    isBroken: (pointer) => [...broken].some((one) => one === pointer || one.startsWith(`${pointer}/`) || one === ''),
  };
}

/**
 * Validates the file. Where the schema requires a number, numeric text from placeholders is converted. Where it requires
 * text, a number is text as written: `from: 0815`.
 */
function isValid(validate: ValidateFunction, file: YamlFile): boolean {
  if (validate(file.data)) return true;
  let isConverted = false;
  for (const { keyword, instancePath, params, data } of validate.errors ?? []) {
    if (keyword !== 'type') continue;
    const converted = convertedTo([params.type as string | string[]].flat(), data, instancePath, file);
    if (converted !== undefined) isConverted = putAt(file.data, instancePath, converted) || isConverted;
  }
  return isConverted && validate(file.data);
}

function convertedTo(wanted: string[], data: unknown, pointer: string, file: YamlFile): unknown {
  if (wanted.includes('string')) return file.textOf(pointer);
  if (typeof data !== 'string' || !file.filled?.has(pointer)) return undefined;
  if (wanted.includes('boolean') && /^(true|false)$/.test(data)) return data === 'true';
  const number = /^-?\d+(\.\d+)?$/.test(data) ? Number(data) : undefined;
  const fits = wanted.includes('number') || (wanted.includes('integer') && Number.isInteger(number));
  return fits ? number : undefined;
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

/**
 * Selects the first error per value. The schemas contain no alternatives, because errors in alternatives cannot be
 * explained to users.
 */
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

/** Returns the pointer to the unknown or misnamed member, or otherwise to the value. */
function pointerOf(error: ErrorObject): string {
  const name = error.keyword === 'additionalProperties' ? error.params.additionalProperty : error.propertyName;
  return name === undefined ? error.instancePath : `${error.instancePath}/${escapePointer(String(name))}`;
}

/** Returns whether a missing member is present with a typo, so that one problem covers both. */
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
      // YAML parses `scale: 0,1` in a flow mapping as a scale of 0 and a member named 1.
      const instead = /^\d+$/.test(name)
        ? 'use a decimal point: a comma starts another member'
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
  // Headers may contain credentials.
  const text = at.includes('/headers/') ? 'the value' : shown(error.data);
  const place = file.placeOf(at);
  if (error.keyword === 'enum') {
    const allowed = error.params.allowedValues as unknown[];
    const choices = allowed.filter((choice) => typeof choice === 'string');
    const isNumber = choices.length === 0;
    const name = String(error.data);
    const known = schema.otherNames?.[name.toLowerCase()] ?? name;
    const reason = `${text} ${isNumber ? 'is unknown' : noneOf(known, choices)}`;
    // Do not suggest the nearest number, because it is no more likely than another.
    const instead = isNumber ? `use ${allowed.join(' or ')}` : insteadOf(known, choices);
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
  return examples.length === 0 ? `use ${titleOf(schema)}` : `use a value such as ${examples.join(' or ')}`;
}

/** Formats an example as YAML. */
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
