/** What a start does not load, and what its short cuts rely on. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Ajv } from 'ajv';
import { describe, expect, it } from 'vitest';
import { REACTIONS_SCHEMA } from '../../src/config/reactions-schema.ts';
import { tagsSchema } from '../../src/config/tags-schema.ts';
import { EVENT_TYPES } from '../../src/contract/events/names.ts';
import { eventSchema } from '../../src/contract/events/schema.ts';
import { statusLine } from '../../src/ops/status-line.ts';
import { SOURCE_KINDS } from '../../src/sources/kinds.ts';
import { ENOUGH, makeFolder } from '../config/folder.ts';

const run = promisify(execFile);
const SRC = join(import.meta.dirname, '../../src');

/** Every module that a program loads. */
async function loadedBy(work: string): Promise<string[]> {
  const program = `
    import { registerHooks } from 'node:module';
    const loaded = [];
    registerHooks({ load: (url, context, next) => (loaded.push(url), next(url, context)) });
    ${work}
    console.log(JSON.stringify(loaded));`;
  const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', program], { maxBuffer: 16e6 });
  return JSON.parse(stdout) as string[];
}

describe('the modules of the daemon', () => {
  it('load neither the own fetch of the runtime, nor MQTT, Modbus, prom-client or the whole of undici before they are needed', async () => {
    const program = `
      import { registerHooks } from 'node:module';
      const loaded = [];
      registerHooks({ load: (url, context, next) => (loaded.push(url), next(url, context)) });
      await import(${JSON.stringify(join(SRC, 'commands/run.ts'))});
      await import(${JSON.stringify(join(SRC, 'daemon/daemon.ts'))});
      console.log(JSON.stringify({ loaded, natives: process.moduleLoadList }));`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', program], { maxBuffer: 16e6 });
    const { loaded, natives } = JSON.parse(stdout) as { loaded: string[]; natives: string[] };
    expect(loaded.some((url) => url.endsWith('/daemon/daemon.ts'))).toBe(true);
    expect(
      loaded.filter((url) =>
        /node_modules\/(@nats-io|mqtt|mqtt-packet|ws|modbus-serial|undici|pino-pretty|prom-client)\/|\/src\/sandbox\//.test(
          url,
        ),
      ),
    ).toEqual([]);
    expect(natives.filter((name) => name.includes('deps/undici'))).toEqual([]);
  });

  it('load no parser that knows places where the files are sound', async () => {
    const tags = Array.from({ length: 20 }, (_, i) => `  T-${i}: { asset: ${i + 1}, values: { flow: {} } }\n`);
    const folder = makeFolder({ 'tags.yaml': `tags:\n${tags.join('')}` });
    const loaded = await loadedBy(`
      const { SOURCE_KINDS: kinds } = await import(${JSON.stringify(join(SRC, 'sources/kinds.ts'))});
      const { startConfiguration } = await import(${JSON.stringify(join(SRC, 'config/last-good.ts'))});
      startConfiguration({ directory: ${JSON.stringify(folder)}, environment: ${JSON.stringify(ENOUGH)}, kinds });`);
    expect(loaded.some((url) => url.includes('/node_modules/js-yaml/'))).toBe(true);
    expect(loaded.filter((url) => url.includes('/node_modules/yaml/'))).toEqual([]);
  });
});

describe('the modules of the store thread', () => {
  it('load no checks of schemas', async () => {
    const loaded = await loadedBy(`await import(${JSON.stringify(join(SRC, 'daemon/store-thread.ts'))});`);
    expect(loaded.some((url) => url.includes('/node_modules/better-sqlite3/'))).toBe(true);
    expect(loaded.filter((url) => url.includes('/node_modules/ajv/'))).toEqual([]);
  });
});

describe('the schemas, which a start compiles unexamined,', () => {
  it.for([
    ['tags.yaml', tagsSchema(SOURCE_KINDS)],
    ['reactions.yaml', REACTIONS_SCHEMA],
    ...EVENT_TYPES.map((type) => [type, eventSchema(type)] as const),
  ] as const)('that of %s is a schema', ([, schema]) => {
    const ajv = new Ajv({ strict: false });
    expect(ajv.validateSchema(schema), JSON.stringify(ajv.errors)).toBe(true);
  });
});

describe('the line that systemctl status shows', () => {
  it('groups thousands', () => {
    expect(statusLine('online', 1204, 0)).toBe('online, 1,204 values/min, backlog 0');
    expect(statusLine('offline', 0.4, 12_345_678)).toBe('offline, 0 values/min, backlog 12,345,678');
    expect(statusLine('offline', 999, 1000)).toBe('offline, 999 values/min, backlog 1,000');
  });
});
