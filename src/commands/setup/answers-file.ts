/**
 * `--answers FILE`: settings as lines of agent.env, and the first tag. Secrets are read from files referenced by
 * `KEY_FILE` or from systemd credentials. If only the owner can read the file, it can contain secrets itself.
 * `KEY_FILE=-` refers to the next line of standard input.
 */
import { readFileSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { text as readAll } from 'node:stream/consumers';
import { ConfigurationError, codeOf, messageOf } from '../../base/errors.ts';
import { type EnvFile, parseEnvFile } from '../../config/env-file.ts';
import { type Place, Problems, problemLine } from '../../config/problem.ts';
import { AGENT_ENV_KEYS, KEY_NAMES, type KeyName, settingKey } from '../../config/setting-keys.ts';
import { readSourceAddress } from '../sources/direct-access.ts';
import { type Answers, checkAnswers, NO_KEY, NO_NUMBER, readObjectNumber, readValueKey } from './answers.ts';
import type { FirstTag } from './first-tag.ts';

const TAG_KEYS = [
  ...['FIRST_TAG', 'FIRST_TAG_ASSET', 'FIRST_TAG_INSTRUMENTATION', 'FIRST_TAG_KEY', 'FIRST_TAG_UNIT'],
  ...['FIRST_TAG_SOURCE', 'FIRST_TAG_ADDRESS'],
];
const MAX_BYTES = 1_000_000;

/** Throws `ConfigurationError` with every problem in the file. */
export async function readAnswersFile(
  file: string,
  directory: string,
  environment: NodeJS.ProcessEnv,
): Promise<Answers> {
  const problems = new Problems();
  const input = new Input();
  const text = file === '-' ? await input.all() : textOf(file);
  const lines = parseEnvFile(text, file, [...AGENT_ENV_KEYS, ...TAG_KEYS], problems);
  const found = new Map<KeyName, { text: string; place: Place }>();
  const isOpen = file !== '-' && (statSync(file).mode & 0o077) !== 0;
  for (const key of KEY_NAMES) {
    const line = lines.lines.get(key);
    const pointer = lines.lines.get(`${key}_FILE`);
    const isSecret = settingKey(key).secret === true;
    if (line && pointer)
      problems.error(line.place, `${key} and ${key}_FILE are mutually exclusive`, 'remove one of them', key);
    else if (line && isSecret && line.value !== '' && isOpen) {
      const instead = `run chmod 600 ${file}, or specify a file: ${key}_FILE=`;
      problems.error(line.place, `${key} is in a file that other users can read`, instead, key);
    } else if (line) add(key, line.value, line.valuePlace);
    else if (pointer) add(key, await secretOf(pointer.value, pointer.place, key), pointer.place);
    else if (isSecret) {
      const credential = credentialOf(key, environment);
      if (credential !== undefined) add(key, credential, { file: key.toLowerCase(), line: null, column: null });
    }
  }
  const texts = new Map([...found].map(([key, { text: one }]) => [key, one]));
  for (const [key, { severity, reason, instead }] of checkAnswers(directory, texts)) {
    if (severity === 'error') problems.error(found.get(key)!.place, reason, instead, key);
  }
  const answers: Answers = { env: new Map(), secrets: new Map(), ...readTag(lines, problems) };
  if (problems.errors.length > 0) throw new ConfigurationError(problems.errors.map(problemLine));
  for (const [key, value] of texts) {
    if (settingKey(key).secret !== true) answers.env.set(key, value);
    else if (value !== '') answers.secrets.set(key.toLowerCase(), value);
  }
  return answers;

  function add(key: KeyName, text: string, place: Place): void {
    found.set(key, { text, place });
  }

  async function secretOf(name: string, place: Place, key: string): Promise<string> {
    if (name === '-' && file !== '-') return input.line();
    const path = file === '-' ? resolve(name) : resolve(dirname(file), name);
    try {
      return readFileSync(path, 'utf8').trim();
    } catch (error) {
      problems.error(
        place,
        `${key}_FILE: cannot read ${path} (${codeOf(error)})`,
        'specify a file that this user can read',
        key,
      );
      return '';
    }
  }
}

function credentialOf(key: string, { CREDENTIALS_DIRECTORY: folder }: NodeJS.ProcessEnv): string | undefined {
  if (!folder) return undefined;
  try {
    return readFileSync(join(folder, key.toLowerCase()), 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}

function readTag({ lines }: EnvFile, problems: Problems): Pick<Answers, 'tag' | 'source'> | undefined {
  const of = (key: string) => lines.get(key)?.value ?? '';
  const first = lines.get('FIRST_TAG');
  const other = TAG_KEYS.slice(1).find((key) => of(key) !== '');
  if (!first || first.value === '') {
    if (other)
      problems.error(lines.get(other)!.place, `${other} requires FIRST_TAG`, 'specify the tag name: FIRST_TAG=', other);
    return undefined;
  }
  const wrong = (key: string, reason: string, instead: string) =>
    problems.error(lines.get(key)?.valuePlace ?? first.place, `${key} ${reason}`, instead, key);
  const asset = readObjectNumber(of('FIRST_TAG_ASSET'));
  if (asset === undefined) wrong('FIRST_TAG_ASSET', 'must be an asset number', NO_NUMBER);
  const instrumentation = readObjectNumber(of('FIRST_TAG_INSTRUMENTATION'));
  if (instrumentation === undefined && of('FIRST_TAG_INSTRUMENTATION') !== '')
    wrong('FIRST_TAG_INSTRUMENTATION', 'must be an instrumentation number', NO_NUMBER);
  const key = readValueKey(of('FIRST_TAG_KEY') || 'flow');
  if (key === undefined) wrong('FIRST_TAG_KEY', 'must be a value key', NO_KEY);
  const tag: FirstTag = {
    name: first.value,
    asset: asset ?? 0,
    instrumentation,
    key: key ?? '',
    unit: of('FIRST_TAG_UNIT'),
  };
  const address = of('FIRST_TAG_SOURCE');
  if (address === '') return { tag };
  const read = readSourceAddress(address);
  if ('reason' in read) {
    wrong('FIRST_TAG_SOURCE', read.reason, read.instead);
    return { tag };
  }
  const at = of('FIRST_TAG_ADDRESS');
  const member = read.kind === 'modbus' ? 'register' : 'topic';
  if (at === '')
    wrong('FIRST_TAG_ADDRESS', `is missing`, `specify the ${member} of the value, for example ${read.example}`);
  return { tag, source: { ...read, members: read.members, value: { [member]: at } } };
}

function textOf(file: string): string {
  try {
    if (statSync(file).size > MAX_BYTES) throw new RangeError('too large');
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new ConfigurationError([`cannot read ${file} (${codeOf(error) ?? messageOf(error)})`]);
  }
}

/** Lines of standard input, which can be read only once. */
class Input {
  #lines: string[] | undefined;

  all(): Promise<string> {
    return readAll(process.stdin);
  }

  async line(): Promise<string> {
    this.#lines ??= (await this.all()).split('\n');
    return (this.#lines.shift() ?? '').trim();
  }
}
