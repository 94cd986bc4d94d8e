import { X509Certificate } from 'node:crypto';
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { writeDurably } from '../base/durable-file.ts';
import { TagferryError, UsageError } from '../base/errors.ts';
import { plain } from '../base/foreign-text.ts';
import { silentLogger } from '../base/logger.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import { configurationDirectory, readTagsLeniently } from '../config/configuration.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import type { FirstContact } from '../sources/source-kind.ts';
import { confirm } from './asking.ts';
import { daemonPlace } from './control-client.ts';
import { namedSource } from './named-source.ts';
import { giveToOwner } from './state-owner.ts';

export interface TrustFlags {
  fingerprint?: string;
  yes?: boolean;
  json?: boolean;
}

const ANSWER_MS = 15_000;

/** Shows who a server says it is, asks, and keeps its certificate; gives whether it is trusted now. */
export async function trustSource(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
  name: string,
  flags: TrustFlags,
): Promise<boolean> {
  const contact = await meet(config, environment, name);
  const { certificate: der, trustFolder, own } = contact;
  if (der === undefined) {
    throw new TagferryError('the server has no certificate: there is nothing to trust', {
      code: 'source.no_certificate',
      hint: 'Such a server is read with security: None.',
    });
  }
  const certificate = new X509Certificate(der);
  const isTrusted = filesOf(trustFolder).some((bytes) => bytes.equals(der));
  const asked = flags.fingerprint === undefined ? undefined : hexOf(flags.fingerprint);
  const shown = [certificate.fingerprint, certificate.fingerprint256].map(hexOf);
  process.stdout.write(`${flags.json ? jsonOf(certificate, contact, isTrusted) : wordsOf(certificate, contact)}\n`);
  if (isTrusted) {
    if (!flags.json) process.stdout.write('It is trusted already.\n');
    return true;
  }
  if (asked !== undefined && !shown.includes(asked)) {
    throw new TagferryError('the certificate has another fingerprint: it is not trusted', {
      code: 'source.fingerprint',
    });
  }
  const question = 'Does the server show this fingerprint in its own configuration? Trust it?';
  if (asked === undefined && !(await confirm(question, flags.yes))) return false;
  const file = await keep(trustFolder, name, hexOf(certificate.fingerprint), der);
  if (!flags.json) {
    process.stdout.write(
      `It is trusted: ${file}. A running agent takes it within seconds.\n` +
        `The server has to accept this gateway's certificate, too: ${own}\n`,
    );
  }
  return true;
}

async function meet(config: string | undefined, environment: NodeJS.ProcessEnv, name: string): Promise<FirstContact> {
  const directory = configurationDirectory(config, environment);
  const source = namedSource(readTagsLeniently({ directory, environment, kinds: SOURCE_KINDS }).sources, name);
  const kind = SOURCE_KINDS.find((one) => one.kind === source.kind)!;
  if (kind.meet === undefined) throw new UsageError(`a ${source.kind} source has no certificates to trust`);
  const { stateDir } = daemonPlace(config, environment);
  const { signal } = new AbortController();
  try {
    const log = silentLogger();
    return await kind.meet({ source, stateDir, clock: systemClock, log, waitMs: ANSWER_MS, signal });
  } finally {
    giveToOwner(stateDir);
  }
}

const hexOf = (text: string) => text.replaceAll(/[^0-9a-f]/gi, '').toLowerCase();

function wordsOf(certificate: X509Certificate, { offers }: FirstContact): string {
  const one = (text: string) => plain(text.replaceAll('\n', ', '));
  return [
    `subject   ${one(certificate.subject)}`,
    `issuer    ${one(certificate.issuer)}`,
    `valid     ${certificate.validFrom} to ${certificate.validTo}`,
    `names     ${one(certificate.subjectAltName ?? '')}`,
    `SHA-1     ${certificate.fingerprint}`,
    `SHA-256   ${certificate.fingerprint256}`,
    'The server offers:',
    ...offers.map((offer) => `  ${plain(offer)}`),
  ].join('\n');
}

function jsonOf(certificate: X509Certificate, { offers, own }: FirstContact, isTrusted: boolean): string {
  const { subject, issuer, validFrom, validTo, fingerprint, fingerprint256 } = certificate;
  const facts = { subject, issuer, valid_from: validFrom, valid_to: validTo, sha1: hexOf(fingerprint) };
  return JSON.stringify({ ...facts, sha256: hexOf(fingerprint256), trusted: isTrusted, own, offers }, null, 2);
}

function filesOf(folder: string): Buffer[] {
  try {
    return readdirSync(folder).map((name) => readRegularFileSync(join(folder, name)).bytes);
  } catch {
    return [];
  }
}

/** The service reads it, and cannot change whom it trusts: the folder is the configuration's. */
async function keep(folder: string, source: string, fingerprint: string, der: Buffer): Promise<string> {
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  const file = join(folder, `${source.replaceAll(/[^A-Za-z0-9_-]/g, '_')}-${fingerprint.slice(0, 16)}.der`);
  await writeDurably(file, der, '.tmp', 0o644);
  return file;
}
