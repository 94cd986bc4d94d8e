import type { Clock } from '../base/clock.ts';
import { ConfigurationError, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { Configuration, ReadConfiguration } from '../config/configuration.ts';
import { type ConfigurationIdentity, inForceDigest } from '../config/configuration-digest.ts';
import type { ConfigurationReport } from '../config/configuration-report.ts';
import type { Refusal } from '../config/last-good.ts';
import { countReactions } from '../config/reactions.ts';
import type { KeyName } from '../config/setting-keys.ts';
import type { Settings } from '../config/settings.ts';
import { ConfigurationFiles, CredentialWatch } from './configuration-files.ts';

export interface FilesOptions {
  clock: Clock;
  log: Logger;
  environment: NodeJS.ProcessEnv;
  /** Reason why the current files were not used at startup. */
  refusal?: Refusal;
  /** Stores the configuration for use if the files are rejected at a later startup. */
  keepConfiguration?(configuration: ReadConfiguration): Promise<void>;
  /** Reads the identity of the files, even if they are invalid. */
  readIdentity?(): Promise<ConfigurationIdentity>;
  /** Configuration folder, next to which the credential files of the unit are stored. */
  directory?: string;
}

export interface Reloading {
  /** Rereads the files and tests changed credentials. Throws `ConfigurationError`. */
  read(): Promise<ReadConfiguration>;
  /** Applies a configuration part by part. Returns the changed keys that require a restart. Idempotent. */
  apply(configuration: Configuration): Promise<KeyName[]>;
  /** Configuration in use. */
  current: Configuration;
}

/**
 * Result of the latest attempt to read the files. Loaded: the current files are in use. Rejected: the previous files
 * stay in use. The result is not stored, because the files are read again on restart.
 */
export class ConfigurationState {
  readonly #options: FilesOptions;
  readonly #credentials: CredentialWatch;
  readonly #files: ConfigurationFiles | undefined;
  #identity: ConfigurationIdentity | undefined;
  #sinceMs: number;
  #rejected: { sinceMs: number; problems: readonly string[]; parts?: readonly string[] } | undefined;
  #restartNeeded: readonly KeyName[] = [];
  #warnings: readonly string[];
  #latestReload: Promise<unknown> = Promise.resolve();

  constructor(options: FilesOptions, configuration: ReadConfiguration) {
    const { clock, directory, readIdentity, refusal } = options;
    this.#options = options;
    this.#credentials = new CredentialWatch(options.directory, options.environment);
    this.#identity = configuration.identity;
    this.#warnings = configuration.warnings ?? [];
    this.#sinceMs = clock.wallMs();
    if (directory !== undefined && readIdentity) {
      // After startup with rejected files, no file on disk counts as loaded.
      const loaded = refusal ? [] : (configuration.identity?.files ?? []);
      this.#files = new ConfigurationFiles(directory, loaded, () => readIdentity().then(({ files }) => files));
    }
    if (refusal) this.#rejected = { sinceMs: clock.wallMs(), problems: refusal.problems, parts: refusal.parts };
  }

  /** Serializes reloads, because concurrent reloads could mix two configurations. */
  inTurn(reload: () => Promise<void>): Promise<void> {
    const turn = this.#latestReload.then(reload);
    this.#latestReload = turn.catch(() => {});
    return turn;
  }

  /**
   * Called once the state folder is writable. Stores a valid configuration, or logs that the current files were
   * rejected.
   */
  async started(configuration: ReadConfiguration): Promise<void> {
    const { log, refusal } = this.#options;
    if (refusal === undefined) return this.#keep(configuration);
    const fields = { event: 'config.refused', parts: refusal.parts, problems: refusal.problems };
    log.error(fields, 'configuration files rejected, using the last valid ones without reactions from a rejected file');
  }

  /**
   * Reloads the configuration and logs the result. If the configuration is invalid, the previous one stays in use. If
   * it cannot be applied completely, it is rolled back. Throws if the new configuration is not in use.
   */
  async reload(reloading: Reloading): Promise<void> {
    const { log, clock } = this.#options;
    try {
      const next = await this.#readAndApply(reloading);
      this.#rejected = undefined;
      this.#identity = next.identity;
      this.#sinceMs = clock.wallMs();
      this.#files?.setLoaded(next.identity?.files ?? []);
      this.#credentials.reloaded();
      await this.#keep(next);
    } catch (error) {
      const problems = error instanceof ConfigurationError ? error.problems : [messageOf(error)];
      this.#rejected = { sinceMs: clock.wallMs(), problems };
      throw error;
    }
    const { changed } = this.#credentials;
    if (changed.length === 0) return;
    const fields = { event: 'config.credentials_changed', credentials: changed };
    log.warn(fields, 'changed systemd credentials require a restart');
  }

  async #readAndApply({ read, apply, current }: Reloading): Promise<ReadConfiguration> {
    const { log } = this.#options;
    let isRead = false;
    try {
      const next = await read();
      isRead = true;
      const keys = await apply(next);
      const counts = { tags: next.tags.tags.size, reactions: countReactions(next.reactions) };
      log.info({ event: 'config.reloaded', ...counts }, 'configuration reloaded');
      this.#warnings = next.warnings ?? [];
      for (const warning of this.#warnings) log.warn({ event: 'config.warning', warning }, 'configuration warning');
      if (keys.length > 0) log.warn({ event: 'config.restart_needed', keys }, 'changed keys require a restart');
      this.#restartNeeded = keys;
      return next;
    } catch (error) {
      const problems = error instanceof ConfigurationError ? { problems: error.problems } : {};
      const fields = { event: 'config.refused', error: messageOf(error), ...problems };
      const isRestored = () => apply(current).then(Boolean, () => false);
      if (!isRead) log.error(fields, 'configuration rejected, keeping the previous one');
      else if (await isRestored()) log.error(fields, 'failed to apply configuration, restored the previous one');
      else {
        log.error(
          { ...fields, event: 'config.half_applied' },
          'failed to apply configuration and to restore the previous one, restart the service',
        );
      }
      throw error;
    }
  }

  async #keep(configuration: ReadConfiguration): Promise<void> {
    const { log, keepConfiguration } = this.#options;
    await keepConfiguration?.(configuration).catch((error: unknown) => {
      const fields = { event: 'config.not_kept', error: messageOf(error) };
      log.warn(fields, 'failed to store a copy of the valid configuration');
    });
  }

  /** Checks for changed files that have not been loaded. Never rejects. */
  async checkFiles(): Promise<void> {
    await this.#files?.check();
  }

  /** Text appended to the systemd status line. */
  get statusSuffix(): string {
    return this.#rejected ? ', configuration rejected' : '';
  }

  /** Time of the latest rejection, in seconds since 1970; 0 if the files are in use. */
  get refusedSinceSeconds(): number {
    return (this.#rejected?.sinceMs ?? 0) / 1000;
  }

  /** Problems for `/healthz` that a restart does not fix. */
  get notes(): string[] {
    const rejected = this.#rejectedReport();
    if (rejected === null) return [];
    return [
      `configuration files rejected at ${rejected.since}, using the previous ones: ${rejected.problems[0] ?? 'see the log'}`,
    ];
  }

  #rejectedReport(): ConfigurationReport['refused'] {
    if (!this.#rejected) return null;
    const { sinceMs, ...rest } = this.#rejected;
    return { since: new Date(sinceMs).toISOString(), ...rest };
  }

  /** `settings` are the settings in use, which may differ from the files after a reload. */
  report(settings: Settings): ConfigurationReport {
    return {
      version: settings.configVersion ?? null,
      digest: this.#identity ? inForceDigest(settings, this.#identity) : null,
      files_digest: this.#files?.loadedDigest ?? null,
      disk_digest: this.#files?.diskDigest ?? null,
      since: new Date(this.#sinceMs).toISOString(),
      changed_files: this.#files?.changed ?? [],
      refused: this.#rejectedReport(),
      warnings: this.#warnings,
      restart_needed: this.#restartNeeded,
      changed_credentials: this.#credentials.changed,
    };
  }
}
