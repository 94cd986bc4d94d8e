/** The question for an asset or an instrumentation: its id, or a tag, a serial number or a name that this gateway knows. */
import type { ObjectLine, ObjectListing } from '../../access/known-objects.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { table } from '../../base/table.ts';
import type { Problem } from '../../config/problem.ts';
import { answerWords, readObjectNumber } from './answers.ts';
import type { Dialogue } from './dialogue.ts';
import { NEEDED, until } from './questions.ts';

export interface ObjectQuestion {
  kind: 'asset' | 'instrumentation';
  text: string;
  isNeeded: boolean;
  /** What Enter takes. */
  fallback: number | undefined;
  /** Returns the error that an id causes. */
  judge(id: number | undefined): Problem | undefined;
  /** Known objects of every kind that match a text. */
  find(text: string): Promise<ObjectListing>;
}

const MAX_OFFERED = 9;

/** Asks until the answer is an id. `undefined` for an empty answer to a question that does not need one. */
export async function askObject(dialogue: Dialogue, question: ObjectQuestion): Promise<number | undefined> {
  const fallback = question.fallback === undefined ? '' : String(question.fallback);
  const text = await until(dialogue, async () => {
    const answer = await dialogue.ask(question.text, fallback);
    if (answer === '' && question.isNeeded) return NEEDED;
    const isEmpty = answer === '' || (answer === '-' && !question.isNeeded);
    const found = isEmpty ? { answer: '' } : await find(dialogue, question, answer);
    const problem = typeof found === 'string' ? undefined : question.judge(readObjectNumber(found.answer));
    return problem ? answerWords(problem) : found;
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
    if (!isId && !isFirstSetup)
      return `cannot look up ${kind}s: ${messageOf(error)}. Write the id, a whole number above 0`;
    known = [];
  }
  const exact = known.filter((one) => namesOf(one).some((name) => name.toLowerCase() === answer.toLowerCase()));
  // A serial number may consist of digits.
  if (isId && (exact.length === 0 || known.some(({ id }) => String(id) === answer))) return { answer };
  if (known.length === 0)
    return `this gateway knows no ${kind} "${plain(answer)}". Write the id, a whole number above 0`;
  if (exact.length === 1 && !isId) {
    dialogue.say(`  ${kind} ${exact[0]!.id}: ${wordsOf(exact[0]!)}`);
    return { answer: String(exact[0]!.id) };
  }
  return choose(dialogue, isId ? exact : [...new Set([...exact, ...known])], isId ? answer : undefined);
}

/** Offers objects by number. `asId`: what an empty answer takes. */
async function choose(
  dialogue: Dialogue,
  objects: readonly ObjectLine[],
  asId: string | undefined,
): Promise<string | { answer: string }> {
  const offered = objects.slice(0, MAX_OFFERED);
  dialogue.say(table(offered.map((one, at) => [`  ${at + 1}`, String(one.id), wordsOf(one)])));
  const rest = objects.length - offered.length;
  if (rest > 0) dialogue.say(`  ${rest} more match. Write a longer part of the name to see them.`);
  const empty = asId === undefined ? 'ask again' : `${asId} is the id`;
  const answer = await dialogue.ask(`Line of the list, 1 to ${offered.length} (empty: ${empty})`);
  if (answer === '' && asId !== undefined) return { answer: asId };
  const chosen = /^\d$/.test(answer) ? offered[Number(answer) - 1] : undefined;
  return chosen ? { answer: String(chosen.id) } : 'nothing chosen';
}

function namesOf({ serial_number, tag, name }: ObjectLine): string[] {
  return [serial_number, tag, name].filter((one) => one !== null);
}

function wordsOf(object: ObjectLine): string {
  return [...namesOf(object).map(plain), object.state].join(', ');
}
