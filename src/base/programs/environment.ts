/**
 * Variables that a program inherits. This is an allow list, because the agent's environment contains its secrets, the
 * notify socket, the watchdog and the credentials folder.
 */
const INHERITED = ['PATH', 'HOME', 'USER', 'LOGNAME', 'LANG', 'LANGUAGE', 'TZ'];
const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Variable that marks all processes started by a program, regardless of their group or session. */
export const MARK = 'TAGFERRY_RUN';

/** Returns the environment for a program of a reaction or source, including the mark. */
export function programEnvironment(inherited: NodeJS.ProcessEnv, mark: string): Record<string, string> {
  const environment: Record<string, string> = { PATH: DEFAULT_PATH };
  for (const [name, value] of Object.entries(inherited)) {
    if (value !== undefined && (INHERITED.includes(name) || name.startsWith('LC_'))) environment[name] = value;
  }
  environment[MARK] = mark;
  return environment;
}
