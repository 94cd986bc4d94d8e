import { join } from 'node:path';
import { systemClock } from '../../base/clock.ts';
import { codeOf } from '../../base/errors.ts';
import { type Configuration, checkConfiguration } from '../../config/configuration.ts';
import type { Problem } from '../../config/problem.ts';
import { countReactions } from '../../config/reactions.ts';
import { ACTION_KINDS } from '../../reactions/actions.ts';
import { Folders, folderProblem } from '../../sources/csv/folders.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { markDescription } from '../../store/decommission-mark.ts';
import { previewStateFolder } from '../../store/state-folder.ts';
import { narrowedTypes } from '../../webhook/filters.ts';
import { isSecretElsewhere, isServiceFolder, serviceEnvironment } from '../service/service-folder.ts';
import { isServiceView, needsServiceView, runAsService } from '../service/service-view.ts';

/** Result of `check`, also used by `setup` and `restore`. */
export interface ConfigurationVerdict {
  directory: string;
  ok: boolean;
  problems: readonly Problem[];
  warnings: readonly Problem[];
  tags: number;
  sources: number;
  reactions: number;
  /** User whose access rights were used. The access rights of `user` can differ from those of `service`. */
  checkedAs: 'service' | 'user';
  /** Files that were not checked because this user cannot read them. */
  unread: readonly string[];
}

/** Checks the configuration. If root runs it and the folder belongs to the service, checks it as the service. */
export async function verifyConfiguration(
  directory: string,
  environment: NodeJS.ProcessEnv,
): Promise<ConfigurationVerdict> {
  if (needsServiceView(directory, environment)) {
    const seen = await runAsService(['check', '--json'], directory);
    const verdict = seen && parsed(seen.stdout);
    if (verdict) return verdict;
  }
  const checked = checkConfiguration({
    directory,
    environment: serviceEnvironment(directory, environment),
    kinds: SOURCE_KINDS,
    actions: ACTION_KINDS,
  });
  const isOwn = isServiceFolder(directory) && !isServiceView(environment);
  const { problems: files, unread } = isOwn ? withoutUnread(checked.problems, directory) : { ...checked, unread: [] };
  const problems = [
    ...files,
    // The changes made at startup depend on the folder owner.
    ...(isOwn ? [] : stateFolderProblems(checked.stateDir)),
    ...narrowFilters(checked.configuration, directory),
    ...outOfService(checked.stateDir),
    ...(await missingFolders(checked.configuration, directory)),
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
    reactions: countReactions(configuration?.reactions ?? []),
    checkedAs: isOwn ? 'user' : 'service',
    unread,
  };
}

/** Warns about WEBHOOK_PROPERTIES lists that omit a name used by a reaction, because the reaction might never run. */
function narrowFilters(configuration: Configuration | undefined, directory: string): Problem[] {
  if (!configuration) return [];
  const { settings, reactions } = configuration;
  return narrowedTypes(reactions, settings.webhookEvents, settings.webhookProperties ?? {}).map((type) => ({
    file: join(directory, 'agent.env'),
    line: null,
    column: null,
    text: type,
    reason: `WEBHOOK_PROPERTIES excludes changes to ${type} that a reaction requires`,
    instead: `add the names that the reactions require, or use ${type}=*`,
    severity: 'warning',
  }));
}

/** Warns about missing source folders, because files may be written to another path. */
async function missingFolders(configuration: Configuration | undefined, directory: string): Promise<Problem[]> {
  const problems: Problem[] = [];
  for (const { kind, name, spec } of configuration?.tags.sources.values() ?? []) {
    const place = SOURCE_KINDS.find((one) => one.kind === kind)?.placeOf?.(spec);
    if (place === undefined || !('folder' in place)) continue;
    // A share that does not respond must not block the check.
    const folder = new Folders(systemClock).open(place.folder, new AbortController().signal);
    const error = await folder.call('list', '', '').then(
      () => undefined,
      (failure: unknown) => failure,
    );
    folder.close();
    if (codeOf(error) !== 'ENOENT') continue;
    const { problem, hint = '' } = folderProblem(place.folder, error);
    const instead = hint.replace(/^./, (first) => first.toLowerCase()).replace(/\.$/, '');
    const reason = `source "${name}": ${problem}`;
    const at = { file: join(directory, 'tags.yaml'), line: null, column: null, text: '' };
    problems.push({ ...at, reason, instead, severity: 'warning' });
  }
  return problems;
}

/** Returns problems with state folders that the agent would reject or change at startup. */
function stateFolderProblems(stateDir: string | undefined): Problem[] {
  if (stateDir === undefined) return [];
  const at = { file: stateDir, line: null, column: null, text: '' };
  const { refusal, narrowsFrom } = previewStateFolder(stateDir);
  if (refusal) {
    const instead = (refusal.hint ?? '').replace(/^./, (first) => first.toLowerCase());
    return [{ ...at, reason: refusal.message, instead, severity: 'error' }];
  }
  if (narrowsFrom === undefined) return [];
  const reason = `other users can write to the state folder (mode ${narrowsFrom}), and the agent will change its mode to 0700 on the next start`;
  return [{ ...at, reason, instead: `run chmod 700 ${stateDir} if this was not intended`, severity: 'warning' }];
}

/**
 * Returns the problem with a state folder marked by `decommission` or `restore`, which prevents the agent from
 * starting.
 */
function outOfService(stateDir: string | undefined): Problem[] {
  const mark = stateDir === undefined ? undefined : markDescription(stateDir);
  if (stateDir === undefined || !mark) return [];
  const { what: reason, next: instead } = mark;
  return [{ file: stateDir, line: null, column: null, text: '', reason, instead, severity: 'error' }];
}

/** Separates problems in the files from files that only another user, such as the service, can read. */
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
