import type { Command } from 'commander';
import { systemClock } from '../base/clock.ts';
import { exitStatusOf } from '../base/command-end.ts';
import { ConfigurationError, codeOf, messageOf, TagferryError } from '../base/errors.ts';
import { version } from '../base/installation.ts';
import { giveBackMemory } from '../daemon/memory.ts';
import { storeThreadOptions } from '../daemon/pace.ts';
import { agentStoreThread } from '../daemon/store-worker.ts';
import type { StoreThread } from '../store/store-client.ts';

/** As a configuration that cannot work: the unit is not started again. */
const DECOMMISSIONED = 78;

/** `tagferry run`: the daemon, in the foreground, until a signal. */
export function define(program: Command): void {
  program
    .command('run')
    .description('the daemon, in the foreground: what systemd starts')
    .option('--strict', 'end with 78 where the files are refused, and never go on with the last good ones')
    .action(async (flags: { strict?: boolean }) => {
      // Everything else is loaded while the store thread loads its own.
      const storeThread = agentStoreThread();
      storeThread.launch();
      const { configurationDirectory } = await import('../config/configuration.ts');
      const directory = configurationDirectory(program.opts<{ config?: string }>().config, process.env);
      try {
        await runDaemon(directory, flags.strict === true, storeThread);
      } catch (error) {
        await endFailedStart(error, directory);
      }
    });
}

/** Logs the failure if standard error is the journal, where text without a priority is not an error; otherwise throws it. */
async function endFailedStart(error: unknown, directory: string): Promise<void> {
  const { createLogger, isJournal } = await import('../base/logger.ts');
  if (!isJournal(2, process.env)) throw error;
  const { readSettingsLeniently } = await import('../config/configuration.ts');
  const { logFormat } = readSettingsLeniently({ directory, environment: process.env }).settings;
  const log = createLogger({ level: 'info', format: logFormat ?? 'auto', fd: 2 });
  log.fatal(startFailure(error), 'failed to start');
  process.exit(exitStatusOf(error));
}

function startFailure(error: unknown) {
  const problems = error instanceof ConfigurationError ? { problems: error.problems } : {};
  const hint = error instanceof TagferryError ? error.hint : undefined;
  return { event: 'agent.start_failed', code: codeOf(error), error: messageOf(error), ...problems, hint };
}

async function runDaemon(directory: string, strict: boolean, storeThread: StoreThread): Promise<void> {
  const { SOURCE_KINDS } = await import('../sources/kinds.ts');
  const { keepLastGood, startConfiguration } = await import('../config/last-good.ts');
  const files = { directory, environment: process.env, kinds: SOURCE_KINDS };
  const { configuration, refusal } = startConfiguration(files, strict);
  const { settings, warnings } = configuration;
  const { demandInService } = await import('../store/decommission-mark.ts');
  demandInService(settings.stateDir);
  storeThread.open(storeThreadOptions(settings));
  const { NameLookup } = await import('../base/name-lookup.ts');
  new NameLookup().install();
  const { createLogger, isJournal } = await import('../base/logger.ts');
  const { logConsole } = await import('../base/console-lines.ts');
  const { RecentLines } = await import('../base/recent-lines.ts');
  const { Daemon } = await import('../daemon/daemon.ts');
  const { readConfigurationAside, readIdentityAside } = await import('../daemon/configuration-reading.ts');
  const recentLines = new RecentLines();
  const log = createLogger({ level: settings.logLevel, format: settings.logFormat, recent: recentLines });
  logConsole(log);
  for (const warning of warnings) log.warn({ event: 'config.warning', warning }, 'the configuration has a weak place');
  log.info(
    { event: 'agent.starting', version: version(), node: process.versions.node, config: directory },
    'tagferry starts',
  );
  const { promise: over, resolve: end } = Promise.withResolvers<number>();
  const daemon = new Daemon({
    version: version(),
    configuration,
    ...(refusal ? { refusal } : {}),
    readConfiguration: () => readConfigurationAside(files, systemClock),
    readIdentity: () => readIdentityAside(files, systemClock),
    keepConfiguration: async ({ texts, settings: { stateDir } }) => {
      if (texts) await keepLastGood(texts, stateDir, process.env);
    },
    directory,
    clock: systemClock,
    log,
    recentLines,
    environment: process.env,
    storeThread,
    onFatal(error) {
      log.fatal({ event: 'store.dead', error: messageOf(error) }, 'the store thread ended, the service starts anew');
      end(1);
    },
    onDecommissioned: () => stop(DECOMMISSIONED),
  });
  let stopping = false;
  const stop = (status: number) => {
    // Whoever asks twice does not want to wait.
    if (stopping) process.exit(1);
    stopping = true;
    void daemon.stop().then(() => end(status));
  };
  // Node would open its debugger, and with it the session, to everyone on this machine.
  process.on('SIGUSR1', () => {});
  process.on('SIGTERM', () => stop(0));
  process.on('SIGINT', () => stop(0));
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
    if (!isJournal(2, process.env)) log.fatal(startFailure(error), 'failed to start');
    if (!stopping) await daemon.stop();
    throw error;
  }
  process.exitCode = await over;
  // Sockets that a peer keeps open do not keep a daemon alive that has done everything.
  process.exit();
}
