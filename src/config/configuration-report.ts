/** How the files of now stand to what is in force, as `status` shows it. */
export interface ConfigurationReport {
  /** The files are not in force: since when, why, and which parts, where that is known. */
  refused: { since: string; problems: readonly string[]; parts?: readonly string[] } | null;
  /** Changed keys that a running agent does not follow. */
  restart_needed: readonly string[];
  /** Credentials of the unit that were changed after it started. */
  changed_credentials: readonly string[];
}
