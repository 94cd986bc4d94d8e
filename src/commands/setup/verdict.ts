/** Runs `check` on the configuration as it will be once the answers are written. */
import { checkConfiguration } from '../../config/configuration.ts';
import type { Problem } from '../../config/problem.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { withoutUnread } from '../configuration-verdict.ts';
import { isServiceFolder } from '../service-folder.ts';
import { type Answers, type Surroundings, withoutCredentials } from './answers.ts';
import { setEnvLines } from './env-lines.ts';
import { type FirstSource, type FirstTag, tagsAfter } from './first-tag.ts';

/** Returns the errors that `check` will report. */
export function judgeAll({ directory, envText, tagsText }: Surroundings, answers: Answers): Problem[] {
  const secrets = [...answers.secrets].flatMap(([name, value]) => {
    const key = name.toUpperCase();
    return [
      [key, value],
      [`${key}_FILE`, ''],
    ];
  });
  const { problems } = checkConfiguration({
    directory,
    environment: { ...withoutCredentials(process.env), ...Object.fromEntries(secrets) },
    kinds: SOURCE_KINDS,
    coming: new Map([
      ['agent.env', setEnvLines(envText, answers.env)],
      ['tags.yaml', tagsAfter(tagsText, answers.tag, answers.source)],
    ]),
  });
  const seen = isServiceFolder(directory) ? withoutUnread(problems, directory).problems : problems;
  return seen.filter(({ severity }) => severity === 'error');
}

/** Returns the first error that a tag and its source add to the configuration. */
export type JudgeTag = (tag: FirstTag, source?: FirstSource) => Problem | undefined;

export function tagJudge(around: Surroundings, answers: Answers): JudgeTag {
  const known = new Set(
    judgeAll(around, { ...answers, tag: undefined, source: undefined }).map(({ reason }) => reason),
  );
  return (tag, source) => judgeAll(around, { ...answers, tag, source }).find(({ reason }) => !known.has(reason));
}
