/** How the files of now stand to what is in force, as `status` shows it. */
export interface ConfigurationReport {
  /** The files are not in force: since when, why, and which parts, where that is known. */
  refused: { since: string; problems: readonly string[]; parts?: readonly string[] } | null;
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
