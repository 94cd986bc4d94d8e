import { statSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { codeOf } from '../base/errors.ts';
import { insteadOf } from '../base/nearest.ts';
import { readDuration } from '../base/quantity.ts';
import type { YamlFile } from './placed-yaml.ts';
import { type Problems, printable } from './problem.ts';
import type { Action } from './reactions.ts';
import type { ReadTags } from './read-tags.ts';
import { readAddress } from './setting-forms.ts';
import { wrongSubject } from './subject.ts';
import { wrongTopic } from './topic.ts';

/** An action as the schema lets it through. */
export interface RawAction {
  run?: [string | number | boolean, ...(string | number | boolean)[]];
  post?: string;
  publish?: { to: string; topic: string; body?: unknown; retain?: boolean };
  log?: 'debug' | 'info' | 'warn' | 'error';
  timeout?: string | number;
  working_folder?: string;
  body?: unknown;
  headers?: Record<string, string | number>;
}

type ActionKind = Action['kind'];

const KINDS: readonly ActionKind[] = ['run', 'post', 'publish', 'log'];
const MEMBERS: Readonly<Record<ActionKind, readonly (keyof RawAction)[]>> = {
  run: ['timeout', 'working_folder'],
  post: ['timeout', 'body', 'headers'],
  publish: [],
  log: [],
};
const BESIDE = ['timeout', 'working_folder', 'body', 'headers'] as const;
const RUN_TIMEOUT_MS = 30_000;
const POST_TIMEOUT_MS = 10_000;
/** An action holds its event's place in the queue: none may do so for longer. */
const MAX_TIMEOUT_MS = 3_600_000;

/** Reads one action; `undefined` where it has a problem, which is reported. */
export function readAction(
  raw: RawAction,
  at: string,
  file: YamlFile,
  tags: ReadTags,
  problems: Problems,
): Action | undefined {
  const kinds = KINDS.filter((kind) => raw[kind] !== undefined);
  const kind = kinds[0];
  if (kind === undefined || kinds.length > 1) {
    const reason = kind === undefined ? 'the action does not say what to do' : `one action does ${kinds.join(' and ')}`;
    const instead = kind === undefined ? 'add one of run, post, publish, log' : 'begin each with a dash of its own';
    problems.error(file.placeOf(at), reason, instead);
    return undefined;
  }
  const strangers = BESIDE.filter((member) => raw[member] !== undefined && !MEMBERS[kind].includes(member));
  for (const member of strangers) {
    const instead = kind === 'publish' && member === 'body' ? 'write it inside publish: { … }' : 'remove it';
    problems.error(file.placeOfName(`${at}/${member}`), `"${member}" means nothing for ${kind}`, instead, member);
  }
  const timeoutMs = readTimeout(raw, at, kind === 'run' ? RUN_TIMEOUT_MS : POST_TIMEOUT_MS, file, problems);
  if (strangers.length > 0 || timeoutMs === undefined) return undefined;
  switch (kind) {
    case 'run':
      return readRun(raw, timeoutMs, at, file, problems);
    case 'post':
      return readPost(raw, timeoutMs, at, file, problems);
    case 'publish':
      return readPublish(raw, at, file, tags, problems);
    case 'log':
      return { kind, level: raw.log! };
  }
}

function readTimeout(
  raw: RawAction,
  at: string,
  fallback: number,
  file: YamlFile,
  problems: Problems,
): number | undefined {
  if (raw.timeout === undefined) return fallback;
  const reading = readDuration(String(raw.timeout));
  const ms = 'value' in reading ? reading.value : Number.NaN;
  if (ms > 0 && ms <= MAX_TIMEOUT_MS) return ms;
  const reason = 'reason' in reading ? reading.reason : ms === 0 ? 'leaves no time' : 'is too long';
  problems.error(
    file.placeOf(`${at}/timeout`),
    `timeout "${raw.timeout}" ${reason}`,
    'write from 1ms to 1h, for example 10s',
    String(raw.timeout),
  );
  return undefined;
}

function readRun(
  raw: RawAction,
  timeoutMs: number,
  at: string,
  file: YamlFile,
  problems: Problems,
): Action | undefined {
  const [program, ...rest] = raw.run!;
  const command: [string, ...string[]] = [String(program), ...rest.map(String)];
  if (command[0].trim() === '') {
    problems.error(
      file.placeOf(`${at}/run`),
      'the command is empty',
      'write for example [/opt/site/close-valve, FT-101]',
    );
    return undefined;
  }
  if (command.some((part) => part.includes('\u0000'))) {
    problems.error(file.placeOf(`${at}/run`), 'the command holds a zero byte', 'remove it');
    return undefined;
  }
  if (isAbsolute(command[0]) && !isThere(command[0])) {
    problems.warning(
      file.placeOf(`${at}/run/0`),
      `there is no program ${printable(command[0])}`,
      'install it, or write the path of one',
      command[0],
    );
  }
  const folder = raw.working_folder === undefined ? {} : { workingFolder: raw.working_folder };
  return { kind: 'run', command, timeoutMs, ...folder };
}

function isThere(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch (error) {
    return codeOf(error) !== 'ENOENT' && codeOf(error) !== 'ENOTDIR';
  }
}

function readPost(
  raw: RawAction,
  timeoutMs: number,
  at: string,
  file: YamlFile,
  problems: Problems,
): Action | undefined {
  const url = readAddress(raw.post!, ['http', 'https'], false);
  if ('reason' in url) {
    problems.error(
      file.placeOf(`${at}/post`),
      `"${printable(raw.post!)}" ${url.reason}`,
      'write for example http://127.0.0.1:1880/alarm',
      raw.post!,
    );
    return undefined;
  }
  const headers = Object.entries(raw.headers ?? {}).map(([name, value]) => [name, String(value)] as const);
  return {
    kind: 'post',
    url: url.value,
    ...(raw.body === undefined ? {} : { body: raw.body }),
    ...(headers.length === 0 ? {} : { headers: Object.fromEntries(headers) }),
    timeoutMs,
  };
}

function readPublish(
  raw: RawAction,
  at: string,
  file: YamlFile,
  tags: ReadTags,
  problems: Problems,
): Action | undefined {
  const { to, topic, body, retain } = raw.publish!;
  const place = () => file.placeOf(`${at}/publish/to`);
  const brokers = [...tags.sourceKinds].filter(([, kind]) => kind?.publishes).map(([name]) => name);
  let sound = true;
  if (tags.unknown) sound = false;
  else if (!tags.sourceKinds.has(to)) {
    const instead =
      brokers.length === 0 ? `add "${printable(to)}" with mqtt: under sources: in tags.yaml` : insteadOf(to, brokers);
    problems.error(place(), `there is no source "${printable(to)}" in tags.yaml`, instead, to);
    sound = false;
  } else if (!brokers.includes(to) && tags.sourceKinds.get(to) !== undefined) {
    const instead = brokers.length === 0 ? 'name a source with mqtt:' : insteadOf(to, brokers);
    problems.error(
      place(),
      `"${printable(to)}" is a ${tags.sourceKinds.get(to)?.kind} source, not a broker`,
      instead,
      to,
    );
    sound = false;
  }
  const isSubject = tags.sourceKinds.get(to)?.publishes === 'subject';
  const wrong = isSubject ? wrongSubject(topic, 'plain') : wrongTopic(topic);
  if (isSubject && retain) {
    problems.error(file.placeOf(`${at}/publish/retain`), 'retain means nothing for NATS', 'remove it', 'retain');
    sound = false;
  }
  if (wrong !== undefined) {
    problems.error(
      file.placeOf(`${at}/publish/topic`),
      `topic "${printable(topic)}" ${wrong}`,
      isSubject ? 'write one subject, for example site.alarms' : 'write one topic, for example site/alarms',
      topic,
    );
    sound = false;
  }
  if (!sound) return undefined;
  return {
    kind: 'publish',
    broker: to,
    topic,
    ...(isSubject ? { isSubject } : {}),
    ...(body === undefined ? {} : { body }),
    retain: retain ?? false,
  };
}
