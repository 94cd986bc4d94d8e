/** Modules that startup does not load, to save time and memory. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Ajv } from 'ajv';
import { describe, expect, it } from 'vitest';
import { reactionsSchema } from '../../../src/config/reactions-schema.ts';
import { tagsSchema } from '../../../src/config/tags-schema.ts';
import { EVENT_TYPES } from '../../../src/contract/events/names.ts';
import { eventSchema } from '../../../src/contract/events/shapes.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { ENOUGH, makeFolder } from '../../unit/config/folder.ts';

const run = promisify(execFile);
const SRC = join(import.meta.dirname, '../../../src');

/** Returns all modules that a program loads. */
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

describe('agent startup', () => {
  it('defers loading Node’s fetch, MQTT, Modbus, prom-client and most of undici', async () => {
    const program = `
      import { registerHooks } from 'node:module';
      const loaded = [];
      registerHooks({ load: (url, context, next) => (loaded.push(url), next(url, context)) });
      await import(${JSON.stringify(join(SRC, 'commands/verbs/run.ts'))});
      await import(${JSON.stringify(join(SRC, 'agent/agent.ts'))});
      console.log(JSON.stringify({ loaded, natives: process.moduleLoadList }));`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', program], { maxBuffer: 16e6 });
    const { loaded, natives } = JSON.parse(stdout) as { loaded: string[]; natives: string[] };
    expect(loaded.some((url) => url.endsWith('/agent/agent.ts'))).toBe(true);
    expect(
      loaded.filter((url) =>
        /node_modules\/(@nats-io|mqtt|mqtt-packet|ws|serialport|undici|pino-pretty|prom-client)\/|\/src\/sandbox\//.test(
          url,
        ),
      ),
    ).toEqual([]);
    expect(natives.filter((name) => name.includes('deps/undici'))).toEqual([]);
  });

  it('does not load the position-tracking YAML parser for valid files', async () => {
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

describe('store thread', () => {
  it('does not load schema validation', async () => {
    const loaded = await loadedBy(`await import(${JSON.stringify(join(SRC, 'agent/store-thread.ts'))});`);
    expect(loaded.some((url) => url.includes('/node_modules/better-sqlite3/'))).toBe(true);
    expect(loaded.filter((url) => url.includes('/node_modules/ajv/'))).toEqual([]);
  });
});

describe('schema compiled without validation at startup', () => {
  it.for([
    ['tags.yaml', tagsSchema(SOURCE_KINDS)],
    ['reactions.yaml', reactionsSchema(ACTION_KINDS)],
    ...EVENT_TYPES.map((type) => [type, eventSchema(type)] as const),
  ] as const)('is a valid JSON schema: %s', ([, schema]) => {
    const ajv = new Ajv({ strict: false });
    expect(ajv.validateSchema(schema), JSON.stringify(ajv.errors)).toBe(true);
  });
});
