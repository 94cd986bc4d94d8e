import type { Clock } from '../base/clock.ts';
import { ConfigurationError, messageOf } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import type { ReadConfiguration } from '../config/configuration.ts';
import { type ConfigurationIdentity, inForceDigest } from '../config/configuration-digest.ts';
import type { ConfigurationReport } from '../config/configuration-report.ts';
import type { Refusal } from '../config/last-good.ts';
import type { KeyName } from '../config/setting-keys.ts';
import type { Settings } from '../config/settings.ts';
import { ConfigurationDisk } from './configuration-disk.ts';
import { CredentialWatch } from './credential-watch.ts';
import { type ReloadingParts, reloadConfiguration } from './reloading.ts';

export interface FilesOptions {
  clock: Clock;
  log: Logger;
  environment: NodeJS.ProcessEnv;
  /** Why the configuration of the start is not that of the files. */
  refusal?: Refusal;
  /** Keeps what was read for a start with files that are refused. */
  keepConfiguration?(configuration: ReadConfiguration): Promise<void>;
  /** Reads the files for their identity alone, valid or not. */
  readIdentity?(): Promise<ConfigurationIdentity>;
  /** The configuration folder: beside it are the files of the unit's credentials. */
  directory?: string;
}

/**
 * What became of the last reading of the files. In force: those of now are. Refused: those of before are, since the first refusal. A
 * restart forgets all of it and reads them anew.
 */
export class ConfigurationState {
  readonly #options: FilesOptions;
  readonly #credentials: CredentialWatch;
  readonly #disk: ConfigurationDisk | undefined;
  #identity: ConfigurationIdentity | undefined;
  #sinceMs: number;
  #refused: { sinceMs: number; problems: readonly string[]; parts?: readonly string[] } | undefined;
  #restartNeeded: readonly KeyName[] = [];
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: FilesOptions, configuration: ReadConfiguration) {
    const { clock, directory, readIdentity, refusal } = options;
    this.#options = options;
    this.#credentials = new CredentialWatch(options.directory, options.environment);
    this.#identity = configuration.identity;
    this.#sinceMs = clock.wallMs();
    if (directory !== undefined && readIdentity) {
      // After a start with rejected files, no file on disk counts as loaded.
      const loaded = refusal ? [] : (configuration.identity?.files ?? []);
      this.#disk = new ConfigurationDisk(directory, loaded, () => readIdentity().then(({ files }) => files));
    }
    if (refusal) this.#refused = { sinceMs: clock.wallMs(), problems: refusal.problems, parts: refusal.parts };
  }

  /** One reload after the other: half of one and half of another would be in force. */
  inTurn(reload: () => Promise<void>): Promise<void> {
    const turn = this.#turn.then(reload);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /** The state folder takes writes: what works is kept, and a start that goes on without the files of now is said loudly. */
  async started(configuration: ReadConfiguration): Promise<void> {
    const { log, refusal } = this.#options;
    if (refusal === undefined) return this.#keep(configuration);
    const fields = { event: 'config.refused', parts: refusal.parts, problems: refusal.problems };
    log.error(fields, 'the files are refused, the last good ones are in force, and no reaction of a refused file');
  }

  /** Throws where the files are refused. */
  async reload(parts: Omit<ReloadingParts, 'log'>): Promise<void> {
    const { log, clock } = this.#options;
    try {
      const { configuration, needRestart } = await reloadConfiguration({ ...parts, log });
      this.#refused = undefined;
      this.#restartNeeded = needRestart;
      this.#identity = configuration.identity;
      this.#sinceMs = clock.wallMs();
      this.#disk?.loaded(configuration.identity?.files ?? []);
      this.#credentials.reloaded();
      await this.#keep(configuration);
    } catch (error) {
      const problems = error instanceof ConfigurationError ? error.problems : [messageOf(error)];
      this.#refused = { sinceMs: this.#refused?.sinceMs ?? clock.wallMs(), problems };
      throw error;
    }
    const changed = this.#credentials.changed();
    if (changed.length === 0) return;
    const fields = { event: 'config.credentials_changed', credentials: changed };
    log.warn(fields, 'changed systemd credentials require a restart');
  }

  async #keep(configuration: ReadConfiguration): Promise<void> {
    const { log, keepConfiguration } = this.#options;
    await keepConfiguration?.(configuration).catch((error: unknown) => {
      const fields = { event: 'config.not_kept', error: messageOf(error) };
      log.warn(fields, 'the configuration could not be kept for a start with files that are refused');
    });
  }

  /** Looks for files that changed and are not loaded. */
  async look(): Promise<void> {
    await this.#disk?.look();
  }

  /** What the service manager shows behind its line. */
  get statusWords(): string {
    return this.#refused ? ', files refused' : '';
  }

  /** Seconds since 1970; 0 where the files are in force. */
  get refusedSinceSeconds(): number {
    return (this.#refused?.sinceMs ?? 0) / 1000;
  }

  /** For `/healthz`: what a restart does not mend. */
  get notes(): string[] {
    const refused = this.#refusedReport();
    if (refused === null) return [];
    return [
      `files refused since ${refused.since}, running on those of before: ${refused.problems[0] ?? 'see the log'}`,
    ];
  }

  #refusedReport(): ConfigurationReport['refused'] {
    if (!this.#refused) return null;
    const { sinceMs, ...rest } = this.#refused;
    return { since: new Date(sinceMs).toISOString(), ...rest };
  }

  /** `settings`: in force, which a reload may leave different from the files. */
  report(settings: Settings): ConfigurationReport {
    return {
      version: settings.configVersion ?? null,
      digest: this.#identity ? inForceDigest(settings, this.#identity) : null,
      files_digest: this.#disk?.filesDigest ?? null,
      disk_digest: this.#disk?.digest ?? null,
      since: new Date(this.#sinceMs).toISOString(),
      changed_files: this.#disk?.changed ?? [],
      refused: this.#refusedReport(),
      restart_needed: this.#restartNeeded,
      changed_credentials: this.#credentials.changed(),
    };
  }
}
