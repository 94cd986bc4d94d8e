import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ownCertificate } from '../../../src/opcua/certificates.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-own-certificate-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const bytesOf = (name: string) => readFileSync(join(folder, name), 'latin1');

describe('OPC UA client certificate', () => {
  it('is created once, with a key readable only by its owner', async () => {
    const own = await ownCertificate({ folder });
    const created = bytesOf('own-certificate.pem');
    expect(new X509Certificate(created).subjectAltName).toContain(own.applicationUri);
    expect(statSync(own.keyFile).mode & 0o777).toBe(0o600);
    await ownCertificate({ folder });
    expect(bytesOf('own-certificate.pem')).toBe(created);
  });

  it.each([
    ['the certificate is empty after a power cut', 'own-certificate.pem', ''],
    ['the key is empty after a power cut', 'own-key.pem', ''],
    [
      'the certificate is damaged',
      'own-certificate.pem',
      '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n',
    ],
  ])('is recreated if %s', async (_what, name, content) => {
    const own = await ownCertificate({ folder });
    writeFileSync(join(folder, name), content);
    await ownCertificate({ folder });
    const certificate = new X509Certificate(bytesOf('own-certificate.pem'));
    expect(certificate.subjectAltName).toContain(own.applicationUri);
    expect(bytesOf(`${name}.unusable`)).toBe(content);
  });

  it('is recreated if its key belongs to another certificate', async () => {
    await ownCertificate({ folder });
    const key = bytesOf('own-key.pem');
    rmSync(join(folder, 'own-certificate.pem'));
    await ownCertificate({ folder });
    writeFileSync(join(folder, 'own-key.pem'), key);
    const other = bytesOf('own-certificate.pem');
    await ownCertificate({ folder });
    expect(bytesOf('own-certificate.pem')).not.toBe(other);
  });
});
