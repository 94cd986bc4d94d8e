import { chownSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { giveToOwner } from '../../../src/commands/service/service-folder.ts';
import { serviceSettings } from '../../../src/commands/service/service-view.ts';

describe('transient unit', () => {
  it('contains the access settings of the unit and its drop-ins in order, without its runtime folders', () => {
    const unit = `# /lib/systemd/system/tagferry.service
[Unit]
User=nobody
[Service]
User = tagferry
# LoadCredential=no:/no
LoadCredential=client_secret:/etc/tagferry/credentials/client_secret
SetCredential=client_secret:\\n
RuntimeDirectory=tagferry
StateDirectory=tagferry
ExecStart=/bin/false
Environment=A=b \\
  C=d

# /etc/systemd/system/tagferry.service.d/x.conf
[Service]
AmbientCapabilities=
LoadCredentialEncrypted=client_secret:/x.cred
[Install]
WantedBy=multi-user.target
`;
    expect(serviceSettings(unit)).toEqual([
      'User=tagferry',
      'LoadCredential=client_secret:/etc/tagferry/credentials/client_secret',
      'SetCredential=client_secret:\\n',
      'Environment=A=b    C=d',
      'AmbientCapabilities=',
      'LoadCredentialEncrypted=client_secret:/x.cred',
    ]);
  });
});

const SERVICE = 65_534;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-owner-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('state folder written by root', () => {
  // Only root can change the owner of a file.
  it.skipIf(process.getuid!() !== 0)('is owned by the service, with all its files but no link targets', () => {
    const state = join(folder, 'state');
    const shadow = join(folder, 'shadow');
    mkdirSync(join(state, 'opcua'), { recursive: true });
    writeFileSync(shadow, '');
    writeFileSync(join(state, 'opcua/own-key.pem'), '');
    symlinkSync(shadow, join(state, 'link'));
    chownSync(state, SERVICE, SERVICE);
    giveToOwner(state);
    const uidOf = (path: string) => statSync(path).uid;
    expect([uidOf(join(state, 'opcua')), uidOf(join(state, 'opcua/own-key.pem'))]).toEqual([SERVICE, SERVICE]);
    expect(uidOf(shadow)).toBe(0);
  });
});
