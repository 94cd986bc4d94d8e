import { describe, expect, it } from 'vitest';
import { serviceSettings } from '../../src/commands/service-view.ts';

describe('the view of the service', () => {
  it('takes from the unit and its drop-ins what decides what is seen, in their order, and no folder that is in use', () => {
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
