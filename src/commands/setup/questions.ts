import { TagferryError } from '../../base/errors.ts';
import { readForm } from '../../config/setting-forms.ts';
import { type KeyName, settingKey } from '../../config/setting-keys.ts';
import { KEY_PATTERN } from '../../contract/values.ts';
import type { Dialogue } from './dialogue.ts';
import type { FirstTag } from './first-tag.ts';

/** Wrong answers to one question before a script is told to stop. */
const MAX_TRIES = 5;

/** Asks until the answer can be read as the setting; an empty one only where the setting may be empty. */
export async function askSetting(
  dialogue: Dialogue,
  key: KeyName,
  question: string,
  fallback: string,
): Promise<string> {
  const { required, form } = settingKey(key);
  return until(dialogue, async () => {
    const answer = await dialogue.ask(question, fallback);
    if (answer === '') return required ? 'this is needed' : { answer };
    const reading = readForm(form, answer);
    return 'reason' in reading ? `"${answer}" ${reading.reason}: ${reading.instead}` : { answer };
  });
}

export function askSecret(dialogue: Dialogue, question: string): Promise<string> {
  return until(dialogue, async () => {
    const answer = await dialogue.askSecret(question);
    return answer === '' ? 'this is needed' : { answer };
  });
}

/** The first measuring point; `undefined` where there shall be none yet. */
export async function askFirstTag(dialogue: Dialogue): Promise<FirstTag | undefined> {
  const name = await dialogue.ask('Name of the first tag, for example FT-101 (empty: later)');
  if (name === '') return undefined;
  const asset = await askNumber(dialogue, 'Its asset number on the platform', true);
  const instrumentation = await askNumber(dialogue, 'Its instrumentation number (empty: none)', false);
  const key = await until(dialogue, async () => {
    const answer = (await dialogue.ask('Key of its value', 'flow')).toLowerCase();
    return KEY_PATTERN.test(answer) ? { answer } : 'a key is letters, digits, ".", "-" and "_"';
  });
  const unit = await dialogue.ask('Unit: its number or its code on the platform (empty: none)');
  return { name, asset: asset!, instrumentation, key, unit };
}

async function askNumber(dialogue: Dialogue, question: string, isNeeded: boolean): Promise<number | undefined> {
  const text = await until(dialogue, async () => {
    const answer = await dialogue.ask(question);
    if (answer === '' && !isNeeded) return { answer };
    return /^[1-9]\d{0,14}$/.test(answer) ? { answer } : 'write a whole number above 0';
  });
  return text === '' ? undefined : Number(text);
}

async function until(dialogue: Dialogue, ask: () => Promise<string | { answer: string }>): Promise<string> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const outcome = await ask();
    if (typeof outcome !== 'string') return outcome.answer;
    dialogue.say(`  ${outcome}`);
  }
  throw new TagferryError('no answer that can be used: nothing was written', { code: 'setup.unanswered' });
}
