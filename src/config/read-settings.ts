import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { Ajv, type ErrorObject } from 'ajv';
import { envSchema } from 'env-schema';
import { type Place, type Problems, printable, printableAddress } from './problem.ts';
import { readForm } from './setting-forms.ts';
import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';
import type { Environment, GivenSettings } from './setting-origins.ts';
import type { Settings } from './settings.ts';

/** Settings without problems, including defaults. */
export type ReadSettings = Partial<Settings> & Pick<Settings, 'stateDir'>;

/** Reads all settings. Missing and invalid settings are reported and omitted. */
export function readSettings(origins: GivenSettings, environment: Environment, problems: Problems): ReadSettings {
  const texts = Object.fromEntries([...origins.given].map(([key, setting]) => [key, setting.text]));
  const first = applySchema(texts, KEY_NAMES);
  const faulty = new Set<KeyName>(origins.broken);
  for (const error of first.errors) {
    const key = keyOf(error);
    if (key === undefined || faulty.has(key)) continue;
    faulty.add(key);
    if (error.keyword === 'required') reportMissing(key, origins, problems);
    else reportWrong(key, error, origins.given.get(key)?.text ?? '', origins.placeOf(key), problems);
  }
  const sound = KEY_NAMES.filter((key) => !faulty.has(key));
  const soundTexts = Object.fromEntries(Object.entries(texts).filter(([key]) => !faulty.has(key as KeyName)));
  const values = faulty.size === 0 ? first.values : applySchema(soundTexts, sound).values;
  const settings = Object.fromEntries(sound.map((key) => [settingKey(key).member, values[key]])) as Partial<Settings>;
  if (settings.identityUrl === undefined && sound.includes('IDENTITY_URL') && settings.platformUrl !== undefined) {
    settings.identityUrl = settings.platformUrl;
  }
  for (const key of sound) {
    const given = origins.given.get(key);
    if (settingKey(key).form.as === 'path' && given !== undefined)
      Object.assign(settings, { [settingKey(key).member]: resolve(given.folder, given.text) });
  }
  return { ...settings, stateDir: stateDirectory(settings.stateDir, environment) };
}

/**
 * Returns the absolute path of `STATE_DIR`, of the first folder in `$STATE_DIRECTORY`, or of the default in
 * docs/reference/settings.md, in this order.
 */
export function stateDirectory(
  given: string | undefined,
  environment: Environment,
  exists: (path: string) => boolean = existsSync,
): string {
  const fromSystemd = environment.STATE_DIRECTORY?.split(':')[0];
  return resolve(given || fromSystemd || (exists('/var/lib/tagferry') ? '/var/lib/tagferry' : 'state'));
}

/**
 * Applies the schema with env-schema, which reports all errors at once. The environment is not passed, because
 * env-schema silently drops unknown keys and does not track origins. Each call uses a new schema, because env-schema
 * modifies it, and a new ajv instance, because ajv caches every schema.
 */
function applySchema(
  texts: Readonly<Record<string, string>>,
  keys: readonly KeyName[],
): { values: Record<string, unknown>; errors: readonly ErrorObject[] } {
  // Skip the meta-schema, which would have to be compiled first and is not needed for a generated schema.
  const ajv = new Ajv({
    allErrors: true,
    coerceTypes: false,
    meta: false,
    validateSchema: false,
    // Optimizing the code takes longer than it saves in a single run.
    code: { optimize: false },
  });
  ajv.addKeyword({ keyword: 'settingForm', schemaType: 'boolean', modifying: true, validate: readSettingForm });
  const defaults = Object.fromEntries(
    keys.flatMap((key) => {
      const fallback = settingKey(key).default;
      return fallback === undefined ? [] : [[key, fallback]];
    }),
  );
  const required = keys.filter((key) => settingKey(key).required);
  try {
    // Use one rule for all keys: compiling a property with a default per key takes 50 ms instead of 5 ms.
    const schema = { type: 'object', required, patternProperties: { '': { settingForm: true } } };
    const data = { ...defaults, ...texts };
    return { values: envSchema<Record<string, unknown>>({ schema, data, env: false, ajv }), errors: [] };
  } catch (error) {
    const errors = (error as { errors?: ErrorObject[] }).errors;
    if (errors === undefined) throw error;
    return { values: {}, errors };
  }
}

/** Ajv keyword that parses the text of a key and replaces it with the value. */
function readSettingForm(
  _schema: boolean,
  text: string,
  _parentSchema: unknown,
  context?: { parentData: Record<string, unknown>; parentDataProperty: string | number },
): boolean {
  const key = context!.parentDataProperty as KeyName;
  const reading = readForm(settingKey(key).form, text);
  if ('reason' in reading) {
    const { reason: message, instead } = reading;
    readSettingForm.errors = [{ keyword: 'settingForm', message, params: { instead } }];
    return false;
  }
  context!.parentData[key] = reading.value;
  return true;
}
readSettingForm.errors = [] as Partial<ErrorObject>[];

function keyOf(error: ErrorObject): KeyName | undefined {
  const name = error.keyword === 'required' ? String(error.params.missingProperty) : error.instancePath.slice(1);
  return KEY_NAMES.find((key) => key === name);
}

function reportMissing(key: KeyName, origins: GivenSettings, problems: Problems): void {
  if (origins.unreadable) return;
  const entry = settingKey(key);
  const written = entry.form.as === 'address' ? `a line such as ${key}=${entry.example}` : `${key}=<${entry.example}>`;
  const orFile = entry.secret ? `, or ${key}_FILE=<file that contains it>` : '';
  problems.error(
    origins.placeOf(key),
    `${key} is missing${origins.missing ? ' (agent.env does not exist)' : ''}`,
    `add ${written}${orFile}`,
  );
}

function reportWrong(key: KeyName, error: ErrorObject, text: string, place: Place, problems: Problems): void {
  const entry = settingKey(key);
  const instead = String((error.params as { instead?: unknown }).instead ?? 'correct it');
  if (text === '') {
    const fallback = entry.default ?? '';
    problems.error(place, `${key} is empty`, `remove the line to use the default ${fallback}, or set a value`);
    return;
  }
  const quoted = entry.form.as === 'address' ? printableAddress(text) : printable(text);
  if (entry.secret) problems.error(place, `${key} ${error.message}`, instead);
  else problems.error(place, `${key} "${quoted}" ${error.message}`, instead, quoted);
}
