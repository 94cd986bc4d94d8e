import { Ajv, type ErrorObject, type SchemaObject, type ValidateFunction } from 'ajv';
import { insteadOf, nearestName, noneOf } from './nearest.ts';
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
const MOST_PROBLEMS = 500;

/** Checks the shape of a file and reports each fault once, where it stands. */
export function checkShape(validate: ValidateFunction, file: YamlFile, problems: Problems): SchemaVerdict {
  const broken = new Set<string>();
  if (!validate(file.data)) {
    const errors = decisive(validate.errors ?? []);
    for (const error of errors) broken.add(pointerOf(error));
    for (const error of errors.filter((one) => !isMisspelt(one, errors)).slice(0, MOST_PROBLEMS))
      report(error, file, problems);
  }
  return {
    isBroken: (pointer) => [...broken].some((one) => one === pointer || one.startsWith(`${pointer}/`) || one === ''),
  };
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
      problems.error(file.placeOfName(pointer), `unknown member ${shown(name)}`, insteadOf(name, known), name);
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
    const choices = (error.params.allowedValues as unknown[]).filter((choice) => typeof choice === 'string');
    const reason = `${text} ${noneOf(String(error.data), choices)}`;
    problems.error(
      place,
      reason,
      insteadOf(String(error.data), choices),
      at.includes('/headers/') ? '' : scalarText(error.data),
    );
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
