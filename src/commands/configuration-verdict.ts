import { join } from 'node:path';
import { type Configuration, checkConfiguration } from '../config/configuration.ts';
import type { Problem } from '../config/problem.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import { markWords } from '../store/decommission-mark.ts';
import { foreseeStateFolder } from '../store/state-folder.ts';
import { narrowedTypes } from '../webhook/filters.ts';
import { isSecretElsewhere, isServiceFolder, serviceEnvironment } from './service-folder.ts';
import { isServiceView, runInServiceView, wantsServiceView } from './service-view.ts';

/** What `check` prints, and what `setup` and `doctor` go by. */
export interface ConfigurationVerdict {
  directory: string;
  ok: boolean;
  problems: readonly Problem[];
  warnings: readonly Problem[];
  tags: number;
  sources: number;
  reactions: number;
  /** Whose access rights counted: another `user` than that of the service may read less or more. */
  checkedAs: 'service' | 'user';
  /** What this user cannot read: not checked. */
  unread: readonly string[];
}

/** Judges the configuration as whoever runs with it would: the service's folder with the service's eyes, where this user may. */
export async function judgeConfiguration(
  directory: string,
  environment: NodeJS.ProcessEnv,
): Promise<ConfigurationVerdict> {
  if (wantsServiceView(directory, environment)) {
    const seen = await runInServiceView(['check', '--json'], directory);
    const verdict = seen && parsed(seen.stdout);
    if (verdict) return verdict;
  }
  const checked = checkConfiguration({
    directory,
    environment: serviceEnvironment(directory, environment),
    kinds: SOURCE_KINDS,
  });
  const isOwn = isServiceFolder(directory) && !isServiceView(environment);
  const { problems: files, unread } = isOwn ? withoutUnread(checked.problems, directory) : { ...checked, unread: [] };
  const problems = [
    ...files,
    // What a start would change depends on the user who owns the folder.
    ...(isOwn ? [] : stateFolderProblems(checked.stateDir)),
    ...narrowFilters(checked.configuration, directory),
    ...outOfService(checked.stateDir),
  ];
  const errors = problems.filter(({ severity }) => severity === 'error');
  const { configuration } = checked;
  return {
    directory,
    ok: errors.length === 0,
    problems: errors,
    warnings: problems.filter(({ severity }) => severity === 'warning'),
    tags: configuration?.tags.tags.size ?? 0,
    sources: configuration?.tags.sources.size ?? 0,
    reactions: configuration?.reactions.length ?? 0,
    checkedAs: isOwn ? 'user' : 'service',
    unread,
  };
}

/** A list in WEBHOOK_PROPERTIES that leaves out a name that a reaction needs: the reaction may never run. */
function narrowFilters(configuration: Configuration | undefined, directory: string): Problem[] {
  if (!configuration) return [];
  const { settings, reactions } = configuration;
  return narrowedTypes(reactions, settings.webhookEvents, settings.webhookProperties ?? {}).map((type) => ({
    file: join(directory, 'agent.env'),
    line: null,
    column: null,
    text: type,
    reason: `WEBHOOK_PROPERTIES leaves out changes of ${type} that a reaction needs`,
    instead: `add the names that the reactions need, or write ${type}=*`,
    severity: 'warning',
  }));
}

/** What passes `check` starts: a state folder that a start refuses is told beforehand, and what it would change in it. */
function stateFolderProblems(stateDir: string | undefined): Problem[] {
  if (stateDir === undefined) return [];
  const at = { file: stateDir, line: null, column: null, text: '' };
  const { refusal, narrowsFrom } = foreseeStateFolder(stateDir);
  if (refusal) {
    const instead = (refusal.hint ?? '').replace(/^./, (first) => first.toLowerCase());
    return [{ ...at, reason: refusal.message, instead, severity: 'error' }];
  }
  if (narrowsFrom === undefined) return [];
  const reason = `others may write in the state folder (mode ${narrowsFrom}), and a start makes it 0700`;
  return [{ ...at, reason, instead: `write chmod 700 ${stateDir} where that was not meant`, severity: 'warning' }];
}

/** What passes `check` starts: a folder that `decommission` marked does not. */
function outOfService(stateDir: string | undefined): Problem[] {
  const said = stateDir === undefined ? undefined : markWords(stateDir);
  if (stateDir === undefined || !said) return [];
  const { what: reason, next: instead } = said;
  return [{ file: stateDir, line: null, column: null, text: '', reason, instead, severity: 'error' }];
}

/** Separates problems of the files from what only another user, such as that of the service, may read. */
export function withoutUnread(
  problems: readonly Problem[],
  directory: string,
): { problems: Problem[]; unread: string[] } {
  const isUnread = (problem: Problem) => problem.accessDenied === true || isSecretElsewhere(problem, directory);
  const unread = problems.filter(isUnread).map(({ accessDenied, file, text, reason }) => {
    return accessDenied ? text || file : `credential ${reason.split(' ', 1)[0]!.toLowerCase()}`;
  });
  return { problems: problems.filter((problem) => !isUnread(problem)), unread: [...new Set(unread)] };
}

function parsed(text: string): ConfigurationVerdict | undefined {
  try {
    const verdict = JSON.parse(text) as ConfigurationVerdict;
    return Array.isArray(verdict.problems) ? verdict : undefined;
  } catch {
    return undefined;
  }
}
