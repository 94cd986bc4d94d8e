import type { Command } from 'commander';
import { giveBackMemory } from '../agent/memory.ts';
import { storeThreadOptions } from '../agent/pace.ts';
import { StoreThread } from '../agent/store-client.ts';
import { systemClock } from '../clock.ts';
import { codeOf, messageOf, TagferryError } from '../errors.ts';
import { version } from '../installation.ts';

/** `tagferry run`: the daemon, in the foreground, until a signal. */
export function define(program: Command): void {
  program
    .command('run')
    .description('the daemon, in the foreground: what systemd starts')
    .action(async () => {
      // Everything else is loaded while the store thread loads its own.
      const storeThread = new StoreThread();
      storeThread.launch();
      const { configurationDirectory } = await import('../config/configuration.ts');
      await runDaemon(configurationDirectory(program.opts<{ config?: string }>().config, process.env), storeThread);
    });
}

async function runDaemon(directory: string, storeThread: StoreThread): Promise<void> {
  const { loadConfiguration } = await import('../config/configuration.ts');
  const read = () => loadConfiguration({ directory, environment: process.env });
  const configuration = read();
  const { settings, warnings } = configuration;
  storeThread.open(storeThreadOptions(settings));
  const { createLogger } = await import('../logger.ts');
  const { Daemon } = await import('../agent/daemon.ts');
  const log = createLogger({ level: settings.logLevel, format: settings.logFormat });
  for (const warning of warnings) log.warn({ event: 'config.warning', warning }, 'the configuration has a weak place');
  log.info(
    { event: 'agent.starting', version: version(), node: process.versions.node, config: directory },
    'tagferry starts',
  );
  const { promise: over, resolve: end } = Promise.withResolvers<number>();
  const daemon = new Daemon({
    version: version(),
    configuration,
    readConfiguration: read,
    clock: systemClock,
    log,
    environment: process.env,
    storeThread,
    onFatal(error) {
      log.fatal({ event: 'store.dead', error: messageOf(error) }, 'the store thread ended, the service starts anew');
      end(1);
    },
  });
  let stopping = false;
  const stop = () => {
    // Whoever asks twice does not want to wait.
    if (stopping) process.exit(1);
    stopping = true;
    void daemon.stop().then(() => end(0));
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  // The daemon says in its log what is wrong with a configuration; the old one stays in force.
  process.on('SIGHUP', () => {
    void daemon
      .reload()
      .catch(() => {})
      .then(() => giveBackMemory(systemClock));
  });
  try {
    await daemon.start();
    giveBackMemory(systemClock);
  } catch (error) {
    const hint = error instanceof TagferryError ? error.hint : undefined;
    log.fatal(
      { event: 'agent.start_failed', code: codeOf(error), error: messageOf(error), hint },
      'tagferry cannot start',
    );
    if (!stopping) await daemon.stop();
    throw error;
  }
  process.exitCode = await over;
  // Sockets that a peer keeps open do not keep a daemon alive that has done everything.
  process.exit();
}
