import { timeText } from '../base/amounts.ts';

/** How the files of now stand to what is in force, as `status` shows it. */
export interface ConfigurationReport {
  /** The files are not in force: since when, why, and which parts, where that is known. */
  refused: { since: string; problems: readonly string[]; parts?: readonly string[] } | null;
  /** CONFIG_VERSION. */
  version: string | null;
  /** What the agent uses; null where it was not read from files. */
  digest: string | null;
  /** The files that the configuration in force was read from; null if the last start rejected them. */
  files_digest: string | null;
  /** The files on disk; null until they were read. */
  disk_digest: string | null;
  /** Since when the configuration is in force. */
  since: string;
  /** Files that were added, removed or edited and are not loaded. */
  changed_files: readonly string[];
  /** Changed keys that a running agent does not follow. */
  restart_needed: readonly string[];
  /** Credentials of the unit that were changed after it started. */
  changed_credentials: readonly string[];
}

export const RESTART = '`sudo systemctl restart tagferry`';

/** What keeps its previous value until a restart, in words. */
export function pendingRestart(report: Pick<ConfigurationReport, 'restart_needed' | 'changed_credentials'>): string {
  const names = report.changed_credentials.map((name) => `systemd credential ${name}`);
  return [...report.restart_needed, ...names].join(', ');
}

/** What identifies the configuration in force, in words. */
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
