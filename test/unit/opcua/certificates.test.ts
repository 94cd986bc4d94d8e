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

  it.each(['own-certificate.pem', 'own-key.pem'])('is recreated if %s is missing', async (name) => {
    await ownCertificate({ folder });
    const before = bytesOf('own-certificate.pem');
    rmSync(join(folder, name));
    const own = await ownCertificate({ folder });
    expect(bytesOf('own-certificate.pem')).not.toBe(before);
    expect(new X509Certificate(bytesOf('own-certificate.pem')).subjectAltName).toContain(own.applicationUri);
  });

  it('is not used with a damaged file or the key of another certificate, which the error names', async () => {
    const { keyFile } = await ownCertificate({ folder });
    const key = bytesOf('own-key.pem');
    rmSync(keyFile);
    await ownCertificate({ folder });
    for (const content of [key, '']) {
      writeFileSync(keyFile, content);
      await expect(ownCertificate({ folder })).rejects.toThrow(keyFile);
    }
  });
});
