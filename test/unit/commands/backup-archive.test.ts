/** Verification of backup archives by `restore`. */
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readTarHeader, tarHeader, writeTar } from '../../../src/base/tar.ts';
import { ArchiveReader } from '../../../src/commands/backup/archive.ts';
import { unitCredentials } from '../../../src/commands/backup/named-elsewhere.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-archive-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const FACTS = {
  tagferry_backup: 1,
  made_by: '0.4.0',
  made_at: '',
  host: 'a',
  secrets: true,
  state: null,
  left_out: [],
};
const manifest = (more: object = {}) => JSON.stringify({ ...FACTS, ...more });

/** Returns an archive with valid checksums. */
function archive(files: Record<string, string>): Buffer {
  const sum = (text: string) => createHash('sha256').update(text).digest('hex');
  const sums = Object.entries(files).map(([name, text]) => `${sum(text)}  ${name}\n`);
  const entries = Object.entries({ ...files, SHA256SUMS: sums.join('') }).map(([name, text]) => ({ name, text }));
  return writeTar(entries, 0);
}

function read(bytes: Buffer): ArchiveReader {
  const file = join(folder, 'gateway.tar');
  writeFileSync(file, bytes);
  return new ArchiveReader(file);
}

describe('backup archive', () => {
  it('can be read if complete', () => {
    const reader = read(archive({ 'manifest.json': manifest(), 'config/tags.yaml': 'tags: {}\n' }));
    expect(reader.manifest).toMatchObject({ made_by: '0.4.0' });
    expect(reader.files.map((file) => [file.name, reader.text(file)])).toEqual([['config/tags.yaml', 'tags: {}\n']]);
    reader.close();
  });

  it('is rejected if any byte is changed or missing', () => {
    const whole = archive({ 'manifest.json': manifest(), 'config/tags.yaml': 'tags: {}\n' });
    for (let at = 0; at < whole.length - 1024; at += 7) {
      // The padding of a file contains no data and is not verified.
      if (whole[at] === 0) continue;
      const damaged = Buffer.from(whole);
      damaged[at]! ^= 1;
      expect(() => read(damaged), String(at)).toThrow();
    }
    for (let end = 0; end < whole.length - 1024; end += 256) {
      expect(() => read(whole.subarray(0, end)), String(end)).toThrow(/damaged/);
    }
  });

  it('is rejected if its format is unknown, with an error that names the required version', () => {
    const of = (more: object) => () => read(archive({ 'manifest.json': manifest({ made_by: '9.9.9', ...more }) }));
    expect(of({ tagferry_backup: 2 })).toThrow(/tagferry 9\.9\.9 has format 2, which is newer/);
    expect(of({ tagferry_backup: 0 })).toThrow(/format 0, which is older/);
    const state = { buffer_format: 99, values: 1, quarantined: 0, events: 0 };
    expect(of({ state })).toThrow(/format 99, which is newer/);
  });

  it('is rejected if a file name points outside the folder or does not belong in a backup', () => {
    const names = [
      'config/../../x',
      '/etc/passwd',
      'config//x',
      'state/session.json',
      'state/a/b',
      'unit/x.service',
      'x',
    ];
    for (const name of names) {
      expect(() => read(archive({ 'manifest.json': manifest(), [name]: 'x' })), name).toThrow(/not a tagferry archive/);
    }
  });
});

describe('archive header', () => {
  it('encodes long names, and sizes that do not fit in octal digits', () => {
    const name = `config/${'d'.repeat(90)}/${'f'.repeat(90)}.yaml`;
    const header = {
      name,
      size: 40 * 1024 ** 3,
      mode: 0o640,
      atSeconds: 1_700_000_000,
      user: 'root',
      group: 'tagferry',
    };
    expect(readTarHeader(tarHeader(header))).toEqual(header);
    expect(() => tarHeader({ ...header, name: 'x'.repeat(200) })).toThrow(RangeError);
  });
});

describe('unit settings from drop-ins', () => {
  it('are listed with the drop-in and the next step, unless the backup contains them', () => {
    const directory = join(folder, 'etc');
    const units = join(folder, 'tagferry.service.d');
    mkdirSync(units);
    const site = join(units, 'site.conf');
    writeFileSync(
      site,
      `[Service]
# LoadCredential=old:/srv/old
LoadCredential=
LoadCredential=client_secret:/srv/secrets/client
LoadCredential=technical_password:${directory}/credentials/technical_password
LoadCredential=broker
LoadCredentialEncrypted=client_secret:${directory}/credentials/client_secret.cred
LoadCredentialEncrypted=vpn:${directory}/own/vpn.cred
LoadCredentialEncrypted=ops_token:/srv/ops.cred
SetCredentialEncrypted=ingest_token: \\
  k6iUCUh0RJCQyvL8k8q1UyAAAAABAAAADAAAABAAAAC1lFmbWAqWZ8dCCQkAAAAAgAAAAA
ImportCredential=site.*
EnvironmentFile=-/etc/default/tagferry
MemoryMax=192M
`,
    );
    writeFileSync(join(units, 'notes.txt'), 'LoadCredential=x:/srv/x\n');
    const anew = expect.stringMatching(/encrypted for this machine.*systemd-creds encrypt/) as string;
    const byHand = expect.stringMatching(new RegExp(`^${site} .*copy it to the new machine`)) as string;
    expect(unitCredentials(units, directory)).toEqual([
      { file: '/srv/secrets/client', why: byHand },
      { file: '/etc/credstore/broker', why: byHand },
      { file: `${directory}/own/vpn.cred`, why: anew },
      { file: '/srv/ops.cred', why: anew },
      { file: `${site}, credential ingest_token`, why: anew },
      { file: 'credentials site.*', why: byHand },
      { file: '/etc/default/tagferry', why: byHand },
    ]);
    expect(unitCredentials(join(folder, 'none'), directory)).toEqual([]);
  });
});
