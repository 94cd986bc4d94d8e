import { X509Certificate } from 'node:crypto';
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { writeDurably } from '../../base/durable-file.ts';
import { TagferryError, UsageError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import type { ServerIdentity } from '../../sources/source-kind.ts';
import { giveToOwner } from '../service/service-folder.ts';
import { confirm } from '../terminal/input.ts';
import { directSource } from './direct-access.ts';

export interface TrustFlags {
  fingerprint?: string;
  yes?: boolean;
  json?: boolean;
}

/**
 * Shows a server certificate, asks for confirmation, and stores it as trusted. Returns whether the certificate is now
 * trusted.
 */
export async function trustSource(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
  name: string,
  flags: TrustFlags,
): Promise<boolean> {
  const contact = await contactServer(config, environment, name);
  const { certificate: der, trustFolder, own } = contact;
  if (der === undefined) {
    throw new TagferryError('the server has no certificate', {
      code: 'source.no_certificate',
      hint: 'Set security: None for this source.',
    });
  }
  const certificate = new X509Certificate(der);
  const isTrusted = filesOf(trustFolder).some((bytes) => bytes.equals(der));
  const expected = flags.fingerprint === undefined ? undefined : hexOf(flags.fingerprint);
  const actual = [certificate.fingerprint, certificate.fingerprint256].map(hexOf);
  const text = flags.json ? certificateJson(certificate, contact, isTrusted) : certificateText(certificate, contact);
  process.stdout.write(`${text}\n`);
  if (isTrusted) {
    if (!flags.json) process.stdout.write('The certificate is already trusted.\n');
    return true;
  }
  if (expected !== undefined && !actual.includes(expected)) {
    throw new TagferryError('the certificate has a different fingerprint and was not trusted', {
      code: 'source.fingerprint',
    });
  }
  const question = 'Trust this certificate? If not, the source stays disconnected.';
  if (expected === undefined && !(await confirm(question, flags.yes))) return false;
  const file = await storeCertificate(trustFolder, name, hexOf(certificate.fingerprint), der);
  if (!flags.json) {
    process.stdout.write(
      `Certificate stored as trusted: ${file}. A running agent uses it within seconds.\n` +
        `The server must also trust the certificate of this gateway: ${own}\n`,
    );
  }
  return true;
}

async function contactServer(
  config: string | undefined,
  environment: NodeJS.ProcessEnv,
  name: string,
): Promise<ServerIdentity> {
  const { kind, context } = await directSource(config, environment, name);
  if (kind.inspectServer === undefined) throw new UsageError(`a ${kind.kind} source has no server certificate`);
  try {
    return await kind.inspectServer(context);
  } finally {
    giveToOwner(context.stateDir);
  }
}

const hexOf = (text: string) => text.replaceAll(/[^0-9a-f]/gi, '').toLowerCase();

function certificateText(certificate: X509Certificate, { offers }: ServerIdentity): string {
  const oneLine = (text: string) => plain(text.replaceAll('\n', ', '));
  return [
    `subject   ${oneLine(certificate.subject)}`,
    `issuer    ${oneLine(certificate.issuer)}`,
    `valid     ${certificate.validFrom} to ${certificate.validTo}`,
    `names     ${oneLine(certificate.subjectAltName ?? '')}`,
    `SHA-1     ${certificate.fingerprint}`,
    `SHA-256   ${certificate.fingerprint256}`,
    'Security policies offered by the server:',
    ...offers.map((offer) => `  ${plain(offer)}`),
  ].join('\n');
}

function certificateJson(certificate: X509Certificate, { offers, own }: ServerIdentity, isTrusted: boolean): string {
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

/** Stores the certificate in the configuration folder, which the service can read but not change. */
async function storeCertificate(folder: string, source: string, fingerprint: string, der: Buffer): Promise<string> {
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  const file = join(folder, `${source.replaceAll(/[^A-Za-z0-9_-]/g, '_')}-${fingerprint.slice(0, 16)}.der`);
  await writeDurably(file, der, { mode: 0o644 });
  return file;
}
