import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { asPackaged } from '../../../test/process/packaged.ts';
import { type Contender, launch, until } from './contender.ts';
import { httpFeed } from './feeds.ts';

const root = join(import.meta.dirname, '../../..');
const PER_REQUEST = 1000;

/** Built beside the tree's own `dist/`, which others may be using; gives the file to run. */
export function buildTagferry(): string {
  const folder = join(root, '.cache/peers/tagferry');
  mkdirSync(folder, { recursive: true });
  execFileSync(process.execPath, [join(root, 'scripts/build.ts'), join(folder, 'dist')], { stdio: 'inherit' });
  copyFileSync(join(root, 'package.json'), join(folder, 'package.json'));
  return join(folder, 'dist/main.js');
}

/** The daemon as it is installed: built, with its flag, and its default configuration but for what is named below. */
export function tagferry(main: string, values: number): Contender {
  return {
    name: 'tagferry',
    acknowledges: 'request synced',
    values,
    async start(folder, sinkPort, env) {
      const settings = [
        `PLATFORM_URL=http://127.0.0.1:${sinkPort}`,
        ...['CLIENT_ID', 'CLIENT_SECRET', 'TECHNICAL_USERNAME', 'TECHNICAL_PASSWORD'].map((key) => `${key}=bench`),
        'INGEST_LISTEN=127.0.0.1:0',
        'OPS_LISTEN=',
        'WEBHOOK_LISTEN=',
        'LOG_FORMAT=json',
        // The peers know no budget of requests. With the default one the drain is what the platform allows.
        'REQUESTS_PER_MINUTE=0',
        // What waits is folded after twice this: the run need not wait for a minute.
        'POST_INTERVAL=1s',
        `STATE_DIR=${join(folder, 'state')}`,
      ];
      const config = join(folder, 'config');
      mkdirSync(config, { recursive: true });
      writeFileSync(join(config, 'agent.env'), `${settings.join('\n')}\n`, { mode: 0o600 });
      writeFileSync(join(config, 'tags.yaml'), 'tags: {}\n');
      const { flags, variables } = asPackaged();
      const args = [...flags, main, 'run', '--config', config];
      const { child, output } = launch(process.execPath, args, { ...env, ...variables });
      let port: string | undefined;
      await until(
        'tagferry is ready',
        () => {
          port = /"event":"ingest.listening"[^\n]*"port":(\d+)/.exec(output())?.[1];
          return output().includes('"agent.ready"');
        },
        { everyMs: 20, child },
      );
      return {
        child,
        files: join(folder, 'state'),
        quietMs: 6_000,
        feed: (readings, connections) => httpFeed(`http://127.0.0.1:${port}`, readings, connections, PER_REQUEST),
        destinationBack: () => child.kill('SIGHUP'),
      };
    },
  };
}
