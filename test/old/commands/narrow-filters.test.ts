import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { freshFolder } from '../../fresh-folder.ts';
import { runVerb } from './verb-run.ts';

const folder = freshFolder('tagferry-narrow-');

it('check warns if WEBHOOK_PROPERTIES omits a property that a reaction requires', async () => {
  const env = [
    'PLATFORM_URL=http://127.0.0.1:1',
    'CLIENT_ID=key',
    'CLIENT_SECRET=secret-of-the-client',
    'TECHNICAL_USERNAME=gateway@plant.example',
    'TECHNICAL_PASSWORD=password-of-the-gateway',
    `STATE_DIR=${join(folder.path, 'state')}`,
    'WEBHOOK_EVENTS=asset_updated',
    'WEBHOOK_PROPERTIES=asset_updated=tenant',
  ];
  writeFileSync(join(folder.path, 'agent.env'), env.join('\n'), { mode: 0o600 });
  writeFileSync(join(folder.path, 'tags.yaml'), 'tags: {}\n');
  const rule = '{ name: failed, on: asset_updated, if: { asset.status.id: 71 }, do: [{ log: warn }] }';
  writeFileSync(join(folder.path, 'reactions.yaml'), `reactions:\n  - ${rule}\n`);
  const { status, stdout } = await runVerb(['check', '--config', folder.path]);
  expect(stdout).toContain('WEBHOOK_PROPERTIES excludes changes to asset_updated');
  expect(status).toBe(0);
});
