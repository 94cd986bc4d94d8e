import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { Ajv, type ErrorObject } from 'ajv';
import { envSchema } from 'env-schema';
import { type Place, type Problems, printable } from './problem.ts';
import { readForm } from './setting-forms.ts';
import { KEY_NAMES, type KeyName, settingKey } from './setting-keys.ts';
import type { Environment, GivenSettings } from './setting-origins.ts';
import type { Settings } from './settings.ts';

/** What could be read: every member that has no problem, with its default where nothing is given. */
export type ReadSettings = Partial<Settings> & Pick<Settings, 'stateDir'>;

/** Reads the text of every setting; reports what is missing or wrong and leaves that member out. */
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

/** `STATE_DIR`, else `$STATE_DIRECTORY` (its first, where systemd names several), else as docs/settings.md says; absolute. */
export function stateDirectory(
  given: string | undefined,
  environment: Environment,
  exists: (path: string) => boolean = existsSync,
): string {
  const fromSystemd = environment.STATE_DIRECTORY?.split(':')[0];
  return resolve(given || fromSystemd || (exists('/var/lib/tagferry') ? '/var/lib/tagferry' : 'state'));
}

/**
 * env-schema with what it does well (what is required, all errors at once) and its pitfalls closed: it gets no
 * environment (unknown keys vanish there in silence, and it could not say where a value came from), a schema made for
 * this one call (it changes the one it is given), and an ajv of its own (ajv keeps each schema it has seen).
 */
function applySchema(
  texts: Readonly<Record<string, string>>,
  keys: readonly KeyName[],
): { values: Record<string, unknown>; errors: readonly ErrorObject[] } {
  // The schema of schemas, which would be compiled first, has nothing to say about one that is made here.
  const ajv = new Ajv({
    allErrors: true,
    coerceTypes: false,
    meta: false,
    validateSchema: false,
    // Making the code shorter takes longer than it saves in one reading.
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
    // One rule for all keys, not one for each: that would be compiled for longer than the rest of agent.env takes.
    const schema = { type: 'object', required, patternProperties: { '': { settingForm: true } } };
    const data = { ...defaults, ...texts };
    return { values: envSchema<Record<string, unknown>>({ schema, data, env: false, ajv }), errors: [] };
  } catch (error) {
    const errors = (error as { errors?: ErrorObject[] }).errors;
    if (errors === undefined) throw error;
    return { values: {}, errors };
  }
}

/** The ajv keyword that reads the text of the key it stands at, and puts what it means in its place. */
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
  const written = entry.form.as === 'address' ? `for example ${key}=${entry.example}` : `${key}=<${entry.example}>`;
  const orFile = entry.secret ? `, or ${key}_FILE=<file that holds it>` : '';
  problems.error(
    origins.placeOf(key),
    `${key} is missing${origins.missing ? ' (there is no agent.env)' : ''}`,
    `write ${written}${orFile}`,
  );
}

function reportWrong(key: KeyName, error: ErrorObject, text: string, place: Place, problems: Problems): void {
  const entry = settingKey(key);
  const instead = String((error.params as { instead?: unknown }).instead ?? 'mend it');
  if (text === '') {
    const fallback = entry.default ?? '';
    problems.error(place, `${key} is empty`, `remove the line for the default ${fallback}, or give it a value`);
    return;
  }
  const reason = entry.secret ? `${key} ${error.message}` : `${key} "${printable(text)}" ${error.message}`;
  problems.error(place, reason, instead, entry.secret ? '' : text);
}
