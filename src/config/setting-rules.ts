import { type Stats, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { codeOf } from '../base/errors.ts';
import { formatListenAddress, isLocalAddress, isLoopbackHost } from '../base/listen-address.ts';
import { MAX_BODY_BYTES } from '../contract/values.ts';
import { warnIfReadableByOthers } from './configuration-file.ts';
import { checkPemFile } from './pem-files.ts';
import { type Problems, printable } from './problem.ts';
import type { ReadSettings } from './read-settings.ts';
import type { KeyName } from './setting-keys.ts';
import type { GivenSettings } from './setting-origins.ts';

/** Maximum number of requests per minute for a user (platform 10.3). */
const PLATFORM_REQUESTS_PER_MINUTE = 500;

/** About 2 million values of 3 bytes plus database overhead: one hour at 500 values per second. */
const MIN_BUFFER_BYTES = 8_000_000;

/** Checks settings against each other and against the platform's limits. Missing settings are skipped. */
export function checkSettings(settings: ReadSettings, origins: GivenSettings, problems: Problems): void {
  checkAddresses(settings, origins, problems);
  checkListeners(settings, origins, problems);
  checkTls(settings, origins, problems);
  checkRelay(settings, origins, problems);
  checkFilters(settings, origins, problems);
  if (settings.postMaxBytes !== undefined && settings.postMaxBytes > MAX_BODY_BYTES) {
    const reason = `POST_MAX_BYTES "${textOf('POST_MAX_BYTES', origins)}" exceeds the size that the platform accepts in one post (${MAX_BODY_BYTES / 1000}kB)`;
    problems.error(
      origins.placeOf('POST_MAX_BYTES'),
      reason,
      'use 480kB, which leaves room for headers',
      textOf('POST_MAX_BYTES', origins),
    );
  }
  const inTheWay = noFolderOn(settings.stateDir);
  if (inTheWay !== undefined) {
    const where = inTheWay === settings.stateDir ? '' : `: ${printable(inTheWay)} is a file`;
    const reason = `STATE_DIR "${printable(settings.stateDir)}" is not a folder${where}`;
    const instead = 'specify a folder, or remove the file';
    problems.error(origins.placeOf('STATE_DIR'), reason, instead, settings.stateDir);
  }
  const max = settings.bufferMaxBytes;
  if (max !== undefined && max > 0 && max < MIN_BUFFER_BYTES) {
    const reason = `BUFFER_MAX_BYTES "${textOf('BUFFER_MAX_BYTES', origins)}" leaves no room for an outage`;
    const instead = 'use 2GiB, or at least 8MB; 0 means no limit';
    problems.warning(origins.placeOf('BUFFER_MAX_BYTES'), reason, instead, textOf('BUFFER_MAX_BYTES', origins));
  }
  const perMinute = settings.requestsPerMinute;
  if (perMinute !== undefined && (perMinute > PLATFORM_REQUESTS_PER_MINUTE || perMinute === 0)) {
    const allowed = `${PLATFORM_REQUESTS_PER_MINUTE} requests per minute`;
    const reason =
      perMinute === 0
        ? `REQUESTS_PER_MINUTE 0 means no limit, and the platform allows ${allowed} per user`
        : `REQUESTS_PER_MINUTE ${perMinute} exceeds the ${allowed} that the platform allows per user`;
    problems.warning(origins.placeOf('REQUESTS_PER_MINUTE'), reason, 'use 400', String(perMinute));
  }
  if (
    settings.apiKeyHeader !== undefined &&
    /^(authorization|content-type|content-length|host|connection|transfer-encoding)$/i.test(settings.apiKeyHeader)
  ) {
    const reason = `API_KEY_HEADER "${settings.apiKeyHeader}" is a header that every call already contains`;
    problems.error(origins.placeOf('API_KEY_HEADER'), reason, 'use API-Key', settings.apiKeyHeader);
  }
}

function checkAddresses(settings: ReadSettings, origins: GivenSettings, problems: Problems): void {
  const range = settings.noProxy?.split(/[,\s]+/).find((entry) => /\/\d+$|^[\d.]+[.*]$/.test(entry));
  if (range !== undefined) {
    const reason = `NO_PROXY "${printable(range)}" is an address range, which matches no host`;
    const instead = 'list host names, or single addresses if PLATFORM_URL contains an address';
    problems.warning(origins.placeOf('NO_PROXY'), reason, instead, range);
  }
  for (const [key, address] of [
    ['PLATFORM_URL', settings.platformUrl],
    ['IDENTITY_URL', origins.given.has('IDENTITY_URL') ? settings.identityUrl : undefined],
  ] as const) {
    if (address === undefined) continue;
    const { pathname } = new URL(address);
    if (key === 'PLATFORM_URL' && /(?:^|\/)(?:v[12]|oauth(?:\/token)?)$/.test(pathname)) {
      const reason = `PLATFORM_URL "${printable(address)}" ends with ${pathname}, but every call already begins with /v1, /v2 or /oauth`;
      problems.warning(origins.placeOf(key), reason, `remove ${pathname}`, address);
    }
    if (!isPlainRemote(address)) continue;
    const reason = `${key} "${printable(address)}" sends passwords and tokens over the network in clear text`;
    problems.warning(origins.placeOf(key), reason, 'use https:// instead of http://', address);
  }
  const webhook = settings.webhookUrl;
  if (webhook === undefined || !webhook.toLowerCase().startsWith('http:')) return;
  const place = origins.placeOf('WEBHOOK_URL');
  const instead = 'use the public https:// address';
  if (isPlainRemote(webhook)) {
    problems.error(
      place,
      `WEBHOOK_URL "${printable(webhook)}" is not https, and the platform requires https`,
      instead,
      webhook,
    );
  } else if (!isLoopbackHost(new URL(settings.platformUrl ?? webhook).hostname)) {
    problems.warning(
      place,
      `WEBHOOK_URL "${printable(webhook)}" can be reached only from this machine`,
      instead,
      webhook,
    );
  }
}

function isPlainRemote(address: string): boolean {
  const url = new URL(address);
  return url.protocol === 'http:' && !isLoopbackHost(url.hostname);
}

function checkListeners(settings: ReadSettings, origins: GivenSettings, problems: Problems): void {
  const ingest = settings.ingestListen;
  if (
    ingest !== undefined &&
    !isLocalAddress(ingest) &&
    settings.ingestToken === undefined &&
    !origins.broken.has('INGEST_TOKEN')
  ) {
    const address = formatListenAddress(ingest);
    const reason = `INGEST_LISTEN "${address}" is reachable from the network, and INGEST_TOKEN is empty`;
    problems.error(origins.placeOf('INGEST_LISTEN'), reason, 'set INGEST_TOKEN, or listen on 127.0.0.1', address);
  }
  if (settings.opsHosts !== undefined && settings.opsToken === undefined && !origins.broken.has('OPS_TOKEN')) {
    const reason = 'OPS_HOSTS is set, and OPS_TOKEN is empty: pages from those hosts could read the status';
    problems.error(origins.placeOf('OPS_HOSTS'), reason, 'set OPS_TOKEN, or leave OPS_HOSTS empty');
  }
  const listeners: [KeyName, ReadSettings['ingestListen']][] = [
    ['INGEST_LISTEN', ingest],
    ['WEBHOOK_LISTEN', settings.webhookListen],
    ['OPS_LISTEN', settings.opsListen],
  ];
  const seen = new Map<string, KeyName>();
  for (const [key, address] of listeners) {
    if (address === undefined || ('port' in address && address.port === 0)) continue;
    const text = formatListenAddress(address);
    const other = seen.get(text);
    if (other === undefined) seen.set(text, key);
    else
      problems.error(
        origins.placeOf(key),
        `${key} and ${other} are both ${text}`,
        'set a different port for each',
        text,
      );
  }
}

/** Checks that only one way of receiving events is configured. */
function checkRelay(settings: ReadSettings, origins: GivenSettings, problems: Problems): void {
  if (settings.webhookFrom === undefined) return;
  const place = origins.placeOf('WEBHOOK_FROM');
  if (settings.webhookSecret === undefined && !origins.broken.has('WEBHOOK_SECRET')) {
    problems.error(
      place,
      'WEBHOOK_FROM is set, and WEBHOOK_SECRET is empty: the origin of events cannot be verified',
      "set WEBHOOK_SECRET to the secret of the relay's webhook",
    );
  }
  for (const [key, isSet] of [
    ['WEBHOOK_URL', settings.webhookUrl !== undefined],
    ['WEBHOOK_TO', settings.webhookTo !== undefined],
    ['WEBHOOK_POLL', origins.given.has('WEBHOOK_POLL') && settings.webhookPollMs !== 0],
  ] as const) {
    if (isSet)
      problems.error(origins.placeOf(key), `${key} conflicts with WEBHOOK_FROM`, `remove ${key} or WEBHOOK_FROM`);
  }
}

/** Warns about filters for event types that are not registered, because they have no effect. */
function checkFilters(settings: ReadSettings, origins: GivenSettings, problems: Problems): void {
  const { webhookEvents: registered, webhookProperties } = settings;
  if (registered === undefined) return;
  for (const type of Object.keys(webhookProperties ?? {})) {
    if (registered.includes(type)) continue;
    const reason = `WEBHOOK_PROPERTIES contains a filter for ${type}, which is not in WEBHOOK_EVENTS`;
    problems.warning(origins.placeOf('WEBHOOK_PROPERTIES'), reason, `add ${type} to WEBHOOK_EVENTS`, type);
  }
}

function checkTls(settings: ReadSettings, origins: GivenSettings, problems: Problems): void {
  const { webhookTlsCert, webhookTlsKey, ingestTlsCert, ingestTlsKey, opsTlsCert, opsTlsKey } = settings;
  checkTlsPair(['WEBHOOK_TLS_CERT', webhookTlsCert], ['WEBHOOK_TLS_KEY', webhookTlsKey], origins, problems);
  checkTlsPair(['INGEST_TLS_CERT', ingestTlsCert], ['INGEST_TLS_KEY', ingestTlsKey], origins, problems);
  checkTlsPair(['OPS_TLS_CERT', opsTlsCert], ['OPS_TLS_KEY', opsTlsKey], origins, problems);
  checkPem(['PLATFORM_CA', settings.platformCa], 'certificate', origins, problems);
}

type Given = [name: KeyName, path: string | undefined];

function checkTlsPair(certificate: Given, key: Given, origins: GivenSettings, problems: Problems): void {
  const isHalf = (certificate[1] === undefined) !== (key[1] === undefined);
  if (isHalf && !origins.broken.has(certificate[0]) && !origins.broken.has(key[0])) {
    const [set, unset] = certificate[1] === undefined ? [key[0], certificate[0]] : [certificate[0], key[0]];
    problems.error(origins.placeOf(set), `${set} requires ${unset}`, `set both or neither`);
  }
  checkPem(certificate, 'certificate', origins, problems);
  checkPem(key, 'key', origins, problems);
  const found = key[1] === undefined ? undefined : lookAt(key[1]);
  if (found !== undefined && found !== 'missing') {
    warnIfReadableByOthers(problems, { file: key[1]!, line: 1, column: 1 }, found);
  }
}

function checkPem([name, path]: Given, what: 'certificate' | 'key', origins: GivenSettings, problems: Problems): void {
  if (path === undefined) return;
  const place = origins.placeOf(name);
  if (lookAt(path) === 'missing') {
    problems.error(place, `${name}: file ${path} does not exist`, 'use the path of a PEM file', path);
  } else {
    checkPemFile(name, path, what, { text: textOf(name, origins), place }, problems);
  }
}

/**
 * Returns `missing` if the path does not exist, or `undefined` if this user has no access. The service may have
 * access.
 */
function lookAt(path: string): Stats | 'missing' | undefined {
  try {
    return statSync(path);
  } catch (error) {
    return codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR' ? 'missing' : undefined;
  }
}

/** Returns the first part of the path that is not a folder, or `undefined` if the folder exists or can be created. */
function noFolderOn(path: string): string | undefined {
  const found = lookAt(path);
  if (found === undefined) return undefined;
  if (found !== 'missing') return found.isDirectory() ? undefined : path;
  return dirname(path) === path ? undefined : noFolderOn(dirname(path));
}

function textOf(key: KeyName, origins: GivenSettings): string {
  return printable(origins.given.get(key)?.text ?? '');
}
