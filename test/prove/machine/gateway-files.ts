import { chownSync, copyFileSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SANDBOX_CREDENTIALS } from '../../../src/sandbox/sandbox.ts';
import { enable } from './image.ts';

export const TOKEN = 'the-token-of-those-who-push';
/** Address of this machine in the network of qemu. */
export const HOST = '10.0.2.2';

export interface GatewayFiles {
  platformUrl: string;
  /** Address to which reactions report. */
  journalUrl: string;
  /** Port of this machine that is forwarded to the webhook. */
  webhookPort: number;
  tags: readonly string[];
  /** Packages in /root, by number. */
  debs: readonly string[];
  isNormal: boolean;
  /** Address of this machine, as seen by the gateway. */
  host: string;
  /** The gateway's ports. */
  listen: { ingest: number; webhook: number; ops: number };
}

/** Environment that the unit sets, for use without systemd. */
export const UNIT_ENVIRONMENT = {
  CREDENTIALS_DIRECTORY: '/etc/tagferry/credentials',
  TAGFERRY_CONFIG: '/etc/tagferry',
};
export const UNIT_COMMAND = ['/usr/bin/tagferry', 'run'];

/** Files that an operator adds to a gateway with the package, and the modules that observe it. */
export function writeGateway(root: string, files: GatewayFiles): void {
  const host = (url: string) => url.replace('127.0.0.1', files.host);
  const listen = (name: keyof GatewayFiles['listen']) => `0.0.0.0:${files.listen[name]}`;
  const env = {
    PLATFORM_URL: host(files.platformUrl),
    CLIENT_ID: SANDBOX_CREDENTIALS.clientId,
    TECHNICAL_USERNAME: SANDBOX_CREDENTIALS.technicalUsername,
    POST_INTERVAL: '1s',
    COMMIT_INTERVAL: '200ms',
    POST_MAX_VALUES: '500',
    REQUESTS_PER_MINUTE: '0',
    BUFFER_FULL: 'refuse-new',
    BUFFER_MAX_BYTES: '2GiB',
    INGEST_LISTEN: listen('ingest'),
    INGEST_TOKEN: TOKEN,
    OPS_LISTEN: listen('ops'),
    WEBHOOK_LISTEN: listen('webhook'),
    WEBHOOK_URL: `http://127.0.0.1:${files.webhookPort}/webhook`,
    WEBHOOK_POLL: '10s',
  };
  const etc = join(root, 'etc/tagferry');
  // Overwritten in place, so that owner and mode remain as the package set them.
  const text = Object.entries(env).map(([key, value]) => `${key}=${value}\n`);
  writeFileSync(join(etc, 'agent.env'), text.join(''));
  const { gid } = statSync(join(etc, 'agent.env'));
  writeFileSync(join(etc, 'tags.yaml'), `tags:\n${files.tags.join('')}`);
  const reaction = `{ name: tell, on: threshold_reached, max_age: 30d, do: [{ post: "${host(files.journalUrl)}" }] }`;
  writeFileSync(join(etc, 'reactions.yaml'), `reactions:\n  - ${reaction}\n`);
  for (const name of ['tags.yaml', 'reactions.yaml']) chownSync(join(etc, name), 0, gid);
  writeFileSync(join(etc, 'credentials/client_secret'), SANDBOX_CREDENTIALS.clientSecret, { mode: 0o600 });
  writeFileSync(join(etc, 'credentials/technical_password'), SANDBOX_CREDENTIALS.technicalPassword, { mode: 0o600 });
  for (const [i, deb] of files.debs.entries()) copyFileSync(deb, join(root, `root/${i}.deb`));
  addLookers(root, files.isNormal);
  rmSync(join(root, 'etc/systemd/system/multi-user.target.wants/tagferry.service'), { force: true });
  enable(root, 'multi-user.target', 'tagferry.service');
}

/** Makes the agent load the observer, and for the control, the module that changes it. */
export function lookOn(isNormal: boolean): { NODE_OPTIONS: string } {
  const loaded = ['watch.mjs', ...(isNormal ? ['normal-sync.mjs'] : [])].map((name) => `--import=/opt/test/${name}`);
  return { NODE_OPTIONS: loaded.join(' ') };
}

function addLookers(root: string, isNormal: boolean): void {
  const test = join(root, 'opt/test');
  mkdirSync(test, { recursive: true });
  const here = import.meta.dirname;
  copyFileSync(join(here, 'watch.mjs'), join(test, 'watch.mjs'));
  copyFileSync(join(here, '..', 'normal-sync.mjs'), join(test, 'normal-sync.mjs'));
  const variables = Object.entries(lookOn(isNormal)).map(([name, value]) => `Environment="${name}=${value}"\n`);
  const dropIn = join(root, 'etc/systemd/system/tagferry.service.d');
  mkdirSync(dropIn, { recursive: true });
  writeFileSync(join(dropIn, 'look-on.conf'), `[Service]\n${variables.join('')}`);
}
