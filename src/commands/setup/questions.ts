import { TagferryError } from '../../base/errors.ts';
import type { Problem } from '../../config/problem.ts';
import { type KeyName, settingKey } from '../../config/setting-keys.ts';
import { answerWords } from './answers.ts';
import type { Dialogue } from './dialogue.ts';

/** Wrong answers to one question before a script is told to stop. */
const MAX_TRIES = 5;
/** Said of an empty answer. */
export const NEEDED = 'an answer is required';

/** Asks until `check` accepts the answer; an empty one only if the setting may be empty. Warnings are shown. */
export async function askSetting(
  dialogue: Dialogue,
  key: KeyName,
  question: string,
  fallback: string,
  judge: (answer: string) => Problem | undefined,
): Promise<string> {
  const { required } = settingKey(key);
  return until(dialogue, async () => {
    const answer = await dialogue.ask(question, fallback);
    if (answer === '') return required ? NEEDED : { answer };
    // A single "-" takes away what Enter would keep.
    if (answer === '-' && !required) return { answer: '' };
    const problem = judge(answer);
    if (problem?.severity === 'error') return answerWords(problem);
    if (problem) dialogue.say(`  ${answerWords(problem)}`);
    return { answer };
  });
}

/** Asks until `check` accepts the secret. Enter keeps the known one. */
export function askSecret(
  dialogue: Dialogue,
  question: string,
  known: string | undefined,
  judge: (answer: string) => Problem | undefined,
): Promise<string> {
  const shown =
    known === undefined ? `${question} (not shown)` : `${question} (not shown; Enter keeps the one that is there)`;
  return until(dialogue, async () => {
    const answer = (await dialogue.askSecret(shown)) || known || '';
    const problem = answer === '' ? undefined : judge(answer);
    if (problem?.severity === 'error') return answerWords(problem);
    return answer === '' ? NEEDED : { answer };
  });
}

/** Asks until `check` accepts the answer: `judge` returns the error that it causes. */
export function askJudged(
  dialogue: Dialogue,
  ask: () => Promise<string>,
  judge: (answer: string) => Problem | undefined,
): Promise<string> {
  return until(dialogue, async () => {
    const answer = await ask();
    const problem = judge(answer);
    return problem ? answerWords(problem) : { answer };
  });
}

/** Asks until there is an answer; a text in its place says what was wrong. A script gets a bounded number of tries. */
export async function until(dialogue: Dialogue, ask: () => Promise<string | { answer: string }>): Promise<string> {
  for (let tries = 0; dialogue.isTerminal || tries < MAX_TRIES; tries++) {
    const outcome = await ask();
    if (typeof outcome !== 'string') return outcome.answer;
    dialogue.say(`  ${outcome}`);
  }
  throw new TagferryError('no valid answer: nothing was written', { code: 'setup.unanswered' });
}
