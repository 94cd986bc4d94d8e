import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Daemon } from '../../src/agent/daemon.ts';
import { systemClock } from '../../src/clock.ts';
import { type Configuration, loadConfiguration } from '../../src/config/configuration.ts';
import { ConfigurationError } from '../../src/errors.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
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
  const configuration = loadConfiguration({ directory: files.config, environment: {} });
  read = () => configuration;
  daemon = new Daemon({
    version: '0.0.0',
    configuration,
    readConfiguration: () => read(),
    clock: systemClock,
    log: logged.log,
    environment: {},
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

describe('a reload', () => {
  it('that cannot read the files leaves the old ones in force, and says so', async () => {
    read = () => {
      throw new ConfigurationError(['tags.yaml:1: a problem']);
    };
    await expect(daemon.reload()).rejects.toThrow('problem');
    expect(events()).toEqual(['config.refused']);
    expect(logged.text).toContain('the old one stays in force');
  });

  it('that fails while it is put in force does not say that the old one is', async () => {
    const configuration = read();
    read = () => ({
      ...configuration,
      tags: {
        ...configuration.tags,
        get tags(): never {
          throw new Error('a fault of ours');
        },
      },
    });
    await expect(daemon.reload()).rejects.toThrow('a fault of ours');
    expect(events()).toEqual(['config.half_applied']);
    expect(logged.text).not.toContain('the old one stays in force');
    read = () => configuration;
    await daemon.reload();
    expect(events()).toEqual(['config.half_applied', 'config.reloaded']);
  });
});
