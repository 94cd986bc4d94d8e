import type { ObjectLine, ObjectListing } from '../../access/access-table.ts';
import { codeOf, messageOf, TagferryError } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import type { Problem } from '../../config/problem.ts';
import { type KeyName, settingKey } from '../../config/setting-keys.ts';
import { problemText, readObjectNumber } from './answers.ts';
import type { Dialogue } from './dialogue.ts';

/** Maximum number of invalid answers to one question in a pipe. */
const MAX_TRIES = 5;

export const NEEDED = 'an answer is required';

/** Asks until `check` accepts the answer. Accepts an empty answer only if the setting may be empty. Shows warnings. */
export async function askSetting(
  dialogue: Dialogue,
  key: KeyName,
  question: string,
  fallback: string,
  check: (answer: string) => Problem | undefined,
): Promise<string> {
  const { required } = settingKey(key);
  return until(dialogue, async () => {
    const answer = await dialogue.ask(question, fallback);
    if (answer === '') return required ? NEEDED : { answer };
    // "-" removes the fallback.
    if (answer === '-' && !required) return { answer: '' };
    const problem = check(answer);
    if (problem?.severity === 'error') return problemText(problem);
    if (problem) dialogue.say(`  ${problemText(problem)}`);
    return { answer };
  });
}

/** Asks until `check` accepts the secret. An empty answer keeps the known secret. */
export function askSecret(
  dialogue: Dialogue,
  question: string,
  known: string | undefined,
  check: (answer: string) => Problem | undefined,
): Promise<string> {
  const shown =
    known === undefined ? `${question} (not shown)` : `${question} (not shown, press Enter to keep the stored one)`;
  return until(dialogue, async () => {
    const answer = (await dialogue.askSecret(shown)) || known || '';
    const problem = answer === '' ? undefined : check(answer);
    if (problem?.severity === 'error') return problemText(problem);
    return answer === '' ? NEEDED : { answer };
  });
}

/** Asks until `check` accepts the answer. `judge` returns the error that the answer causes. */
export function askChecked(
  dialogue: Dialogue,
  ask: () => Promise<string>,
  check: (answer: string) => Problem | undefined,
): Promise<string> {
  return until(dialogue, async () => {
    const answer = await ask();
    const problem = check(answer);
    return problem ? problemText(problem) : { answer };
  });
}

/**
 * Asks until `ask` returns an answer. A string is the reason why the answer was rejected. In a pipe, the number of
 * attempts is limited.
 */
export async function until(dialogue: Dialogue, ask: () => Promise<string | { answer: string }>): Promise<string> {
  for (let tries = 0; dialogue.isTerminal || tries < MAX_TRIES; tries++) {
    const outcome = await ask();
    if (typeof outcome !== 'string') return outcome.answer;
    dialogue.say(`  ${outcome}`);
  }
  throw new TagferryError('no valid answer. Nothing was written', { code: 'setup.unanswered' });
}

export interface ObjectQuestion {
  kind: 'asset' | 'instrumentation';
  text: string;
  isNeeded: boolean;
  /** Answer used if the user presses Enter. */
  fallback: number | undefined;
  /** Returns the error that an ID causes. */
  check(id: number | undefined): Problem | undefined;
  /** Finds known objects of any kind that match a text. */
  find(text: string): Promise<ObjectListing>;
}

const MAX_OFFERED = 9;

/**
 * Asks for an asset or instrumentation by ID, or by a known tag, serial number or name. Returns `undefined` for an
 * empty answer, if allowed.
 */
export async function askObject(dialogue: Dialogue, question: ObjectQuestion): Promise<number | undefined> {
  const fallback = question.fallback === undefined ? '' : String(question.fallback);
  const text = await until(dialogue, async () => {
    const answer = await dialogue.ask(question.text, fallback);
    if (answer === '' && question.isNeeded) return NEEDED;
    const isEmpty = answer === '' || (answer === '-' && !question.isNeeded);
    const found = isEmpty ? { answer: '' } : await find(dialogue, question, answer);
    const problem = typeof found === 'string' ? undefined : question.check(readObjectNumber(found.answer));
    return problem ? problemText(problem) : found;
  });
  return readObjectNumber(text);
}

async function find(
  dialogue: Dialogue,
  { kind, find: look }: ObjectQuestion,
  answer: string,
): Promise<string | { answer: string }> {
  const isId = readObjectNumber(answer) !== undefined;
  let known: ObjectLine[];
  try {
    known = (await look(answer)).objects.filter((one) => one.kind === kind);
  } catch (error) {
    const isFirstSetup = codeOf(error) === 'inbox.absent';
    if (!isId && !isFirstSetup) return `cannot look up ${kind}s: ${messageOf(error)}. Enter the ID, a positive integer`;
    known = [];
  }
  const exact = known.filter((one) => namesOf(one).some((name) => name.toLowerCase() === answer.toLowerCase()));
  // A number can also be a serial number.
  if (isId && (exact.length === 0 || known.some(({ id }) => String(id) === answer))) return { answer };
  if (known.length === 0) return `no known ${kind} matches "${plain(answer)}". Enter the ID, a positive integer`;
  if (exact.length === 1 && !isId) {
    dialogue.say(`  ${kind} ${exact[0]!.id}: ${descriptionOf(exact[0]!)}`);
    return { answer: String(exact[0]!.id) };
  }
  return choose(dialogue, isId ? exact : [...new Set([...exact, ...known])], isId ? answer : undefined);
}

/** Asks the user to choose one of several objects. `asId`: ID selected by an empty answer. */
async function choose(
  dialogue: Dialogue,
  objects: readonly ObjectLine[],
  asId: string | undefined,
): Promise<string | { answer: string }> {
  const offered = objects.slice(0, MAX_OFFERED);
  dialogue.say(table(offered.map((one, at) => [`  ${at + 1}`, String(one.id), descriptionOf(one)])));
  const rest = objects.length - offered.length;
  if (rest > 0) dialogue.say(`  ${rest} more matches. To see them, enter a longer part of the name.`);
  const empty = asId === undefined ? 'ask again' : `use ${asId} as the ID`;
  const answer = await dialogue.ask(`Number in the list, 1 to ${offered.length} (empty: ${empty})`);
  if (answer === '' && asId !== undefined) return { answer: asId };
  const chosen = /^\d$/.test(answer) ? offered[Number(answer) - 1] : undefined;
  return chosen ? { answer: String(chosen.id) } : 'nothing selected';
}

function namesOf({ serial_number, tag, name }: ObjectLine): string[] {
  return [serial_number, tag, name].filter((one) => one !== null);
}

function descriptionOf(object: ObjectLine): string {
  return [...namesOf(object).map(plain), object.state].join(', ');
}
