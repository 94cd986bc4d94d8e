/**
 * The only variables that a program inherits. A list of what is allowed instead of what is forbidden: the daemon's environment
 * holds its secrets (agent.env's keys), the notify socket, the watchdog and the credentials folder, and tomorrow's additions.
 */
const INHERITED = ['PATH', 'HOME', 'USER', 'LOGNAME', 'LANG', 'LANGUAGE', 'TZ'];
const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** The variable that marks every process that a program started, whatever group or session it moved to. */
export const MARK = 'TAGFERRY_RUN';

/** What a program of a reaction or of a source may see of the daemon's environment, and the mark. */
export function programEnvironment(inherited: NodeJS.ProcessEnv, mark: string): Record<string, string> {
  const environment: Record<string, string> = { PATH: DEFAULT_PATH };
  for (const [name, value] of Object.entries(inherited)) {
    if (value !== undefined && (INHERITED.includes(name) || name.startsWith('LC_'))) environment[name] = value;
  }
  environment[MARK] = mark;
  return environment;
}
