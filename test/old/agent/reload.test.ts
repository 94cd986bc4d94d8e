import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Agent } from '../../../src/agent/agent.ts';
import { systemClock } from '../../../src/base/clock.ts';
import { ConfigurationError } from '../../../src/base/errors.ts';
import { type Configuration, loadConfiguration } from '../../../src/config/configuration.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';
import { AgentProcess } from '../../e2e/harness/agent-process.ts';
import { LogCapture } from '../../unit/webhook/parts/listening.ts';

let sandbox: Sandbox;
let files: AgentProcess;
let agent: Agent;
let logged: LogCapture;
/** Returns the configuration for the next reload. */
let read: () => Configuration;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  files = new AgentProcess(sandbox.url, { env: { WEBHOOK_LISTEN: '' } });
  logged = new LogCapture();
  const configuration = load();
  read = () => configuration;
  agent = new Agent({
    version: '0.0.0',
    configuration,
    readConfiguration: async () => read(),
    clock: systemClock,
    log: logged.log,
    environment: {},
    onDecommissioned: () => {},
    onFatal: () => {},
  });
  await agent.start();
});
afterEach(async () => {
  await agent.stop();
  await files.dispose();
  await sandbox.stop();
});

const load = () =>
  loadConfiguration({ directory: files.config, environment: {}, kinds: SOURCE_KINDS, actions: ACTION_KINDS });
const events = () => [...logged.text.matchAll(/"event":"(config\.(?!warning)\w+)"/g)].map((match) => match[1]);

/** A configuration whose tags throw while `isAtFault` returns true. */
function broken(configuration: Configuration, isAtFault = () => true): Configuration {
  const tags = {
    ...configuration.tags,
    get tags() {
      if (isAtFault()) throw new Error('a fault of ours');
      return configuration.tags.tags;
    },
  };
  return { ...configuration, tags };
}

describe('reload', () => {
  it('keeps the previous configuration if the files cannot be read', async () => {
    read = () => {
      throw new ConfigurationError(['tags.yaml:1: a problem']);
    };
    await expect(agent.reload()).rejects.toThrow('problem');
    expect(events()).toEqual(['config.refused']);
    expect(logged.text).toContain('keeping the previous one');
  });

  it('logs warnings about the new configuration, such as removed tags', async () => {
    files.write(sandbox.url, { env: { WEBHOOK_LISTEN: '' }, tags: '' });
    read = load;
    await agent.reload();
    expect(events()).toEqual(['config.reloaded']);
    expect(logged.text).toMatch(/"config.warning","warning":"[^"]*tags.yaml:1[^"]*contains no tags/);
  });

  it('restores the previous configuration if the new configuration cannot be applied', async () => {
    const configuration = read();
    read = () => ({ ...broken(configuration), settings: { ...configuration.settings, logLevel: 'debug' } });
    await expect(agent.reload()).rejects.toThrow('a fault of ours');
    expect(events()).toEqual(['config.refused']);
    expect(logged.text).toContain('restored the previous one');
    expect(logged.log.level).toBe(configuration.settings.logLevel);
    expect((await agent.status()).tags).toBe(configuration.tags.tags.size);
  });

  it('reports a partially applied configuration if the restore also fails', async () => {
    const sound = read();
    const turning = broken(sound, () => fault);
    let fault = false;
    read = () => turning;
    await agent.reload();
    fault = true;
    await expect(agent.reload()).rejects.toThrow('a fault of ours');
    expect(events()).toEqual(['config.reloaded', 'config.half_applied']);
    expect(logged.text).not.toContain('the old one');
    read = () => sound;
    await agent.reload();
    expect(events()).toEqual(['config.reloaded', 'config.half_applied', 'config.reloaded']);
  });
});
