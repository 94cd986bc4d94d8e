import { timeText } from '../base/amounts.ts';

/** Differences between the configuration files and the configuration in use, as shown by `status`. */
export interface ConfigurationReport {
  /** Rejected configuration files: time of the latest rejection, the problems and, if known, the affected parts. */
  refused: { since: string; problems: readonly string[]; parts?: readonly string[] } | null;
  /** Value of CONFIG_VERSION. */
  version: string | null;
  /** Digest of the configuration in use; null if it was not read from files. */
  digest: string | null;
  /**
   * Digest of the files from which the configuration in use was read; null if the agent rejected them at the latest
   * startup.
   */
  files_digest: string | null;
  /** Digest of the files on disk; null until they have been read. */
  disk_digest: string | null;
  /** Time at which the configuration was applied. */
  since: string;
  /** Files that were added, removed or edited but not loaded. */
  changed_files: readonly string[];
  /** Warnings about the configuration in use. */
  warnings: readonly string[];
  /** Changed keys that require a restart. */
  restart_needed: readonly string[];
  /** Unit credentials that changed after startup. */
  changed_credentials: readonly string[];
}

export const RESTART = '`sudo systemctl restart tagferry`';

/** Describes the settings that keep their previous value until a restart. */
export function pendingRestart(report: Pick<ConfigurationReport, 'restart_needed' | 'changed_credentials'>): string {
  const names = report.changed_credentials.map((name) => `systemd credential ${name}`);
  return [...report.restart_needed, ...names].join(', ');
}

/** Describes the identity of the configuration in use. */
export function identityText(
  report: Pick<ConfigurationReport, 'version' | 'digest' | 'files_digest' | 'since'>,
): string {
  const { version, digest, files_digest: files, since } = report;
  const parts = [
    version,
    `files ${files ?? 'not loaded'}`,
    `since ${timeText(since)}`,
    `digest ${digest ?? 'unknown'}`,
  ];
  return parts.filter(Boolean).join(', ');
}
