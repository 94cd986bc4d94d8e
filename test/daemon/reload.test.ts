import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { ConfigurationError } from '../../src/base/errors.ts';
import { type Configuration, loadConfiguration } from '../../src/config/configuration.ts';
import { Daemon } from '../../src/daemon/daemon.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { SOURCE_KINDS } from '../../src/sources/kinds.ts';
import { AgentProcess } from '../process/agent-process.ts';
import { LogCapture } from '../webhook/parts/listening.ts';

let sandbox: Sandbox;
let files: AgentProcess;
let daemon: Daemon;
let logged: LogCapture;
/** What the next reload reads. */
let read: () => Configuration;

beforeEach(async () => {
  sandbox = new Sandbox();
  await sandbox.start();
  files = new AgentProcess(sandbox.url, { env: { WEBHOOK_LISTEN: '' } });
  logged = new LogCapture();
  const configuration = loadConfiguration({ directory: files.config, environment: {}, kinds: SOURCE_KINDS });
  read = () => configuration;
  daemon = new Daemon({
    version: '0.0.0',
    configuration,
    readConfiguration: async () => read(),
    clock: systemClock,
    log: logged.log,
    environment: {},
    onDecommissioned: () => {},
    onFatal: () => {},
  });
  await daemon.start();
});
afterEach(async () => {
  await daemon.stop();
  await files.dispose();
  await sandbox.stop();
});

const events = () => [...logged.text.matchAll(/"event":"(config\.\w+)"/g)].map((match) => match[1]);

/** A configuration whose tags cannot be read while `isAtFault`. */
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

describe('a reload', () => {
  it('that cannot read the files leaves the old ones in force, and says so', async () => {
    read = () => {
      throw new ConfigurationError(['tags.yaml:1: a problem']);
    };
    await expect(daemon.reload()).rejects.toThrow('problem');
    expect(events()).toEqual(['config.refused']);
    expect(logged.text).toContain('the old one stays in force');
  });

  it('that fails while it is put in force puts the old one back', async () => {
    const configuration = read();
    read = () => ({ ...broken(configuration), settings: { ...configuration.settings, logLevel: 'debug' } });
    await expect(daemon.reload()).rejects.toThrow('a fault of ours');
    expect(events()).toEqual(['config.refused']);
    expect(logged.text).toContain('the old one is in force again');
    expect(logged.log.level).toBe(configuration.settings.logLevel);
    expect((await daemon.status()).tags).toBe(configuration.tags.tags.size);
  });

  it('that can neither go on nor back says that a part of each is in force', async () => {
    const sound = read();
    const turning = broken(sound, () => fault);
    let fault = false;
    read = () => turning;
    await daemon.reload();
    fault = true;
    await expect(daemon.reload()).rejects.toThrow('a fault of ours');
    expect(events()).toEqual(['config.reloaded', 'config.half_applied']);
    expect(logged.text).not.toContain('the old one');
    read = () => sound;
    await daemon.reload();
    expect(events()).toEqual(['config.reloaded', 'config.half_applied', 'config.reloaded']);
  });
});
