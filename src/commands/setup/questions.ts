import { TagferryError } from '../../base/errors.ts';
import { type KeyName, settingKey } from '../../config/setting-keys.ts';
import { answerWords, judgeAnswer } from './answers.ts';
import type { Dialogue } from './dialogue.ts';

/** Wrong answers to one question before a script is told to stop. */
const MAX_TRIES = 5;

/** Asks until the answer passes `check` would say of it; an empty one only where the setting may be empty. What is only doubtful is said. */
export async function askSetting(
  dialogue: Dialogue,
  directory: string,
  key: KeyName,
  question: string,
  fallback: string,
): Promise<string> {
  const { required } = settingKey(key);
  return until(dialogue, async () => {
    const answer = await dialogue.ask(question, fallback);
    if (answer === '') return required ? 'this is needed' : { answer };
    // A single "-" takes away what Enter would keep.
    if (answer === '-' && !required) return { answer: '' };
    const problem = judgeAnswer(directory, key, answer);
    if (problem?.severity === 'error') return answerWords(problem);
    if (problem) dialogue.say(`  ${answerWords(problem)}`);
    return { answer };
  });
}

/** Enter keeps what is known. */
export function askSecret(dialogue: Dialogue, question: string, known: string | undefined): Promise<string> {
  const shown =
    known === undefined ? `${question} (not shown)` : `${question} (not shown; Enter keeps the one that is there)`;
  return until(dialogue, async () => {
    const answer = (await dialogue.askSecret(shown)) || known || '';
    return answer === '' ? 'this is needed' : { answer };
  });
}

/** Asks until there is an answer; a text in its place says what was wrong. */
export async function until(dialogue: Dialogue, ask: () => Promise<string | { answer: string }>): Promise<string> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const outcome = await ask();
    if (typeof outcome !== 'string') return outcome.answer;
    dialogue.say(`  ${outcome}`);
  }
  throw new TagferryError('no answer that can be used: nothing was written', { code: 'setup.unanswered' });
}
