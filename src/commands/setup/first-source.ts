/** Where the first value comes from: asked, looked at, and read once, so that a value of the real device stands on the screen. */
import { messageOf } from '../../base/errors.ts';
import { widthOf } from '../../base/table.ts';
import type { Problem } from '../../config/problem.ts';
import type { ScannedValue } from '../../sources/source-kind.ts';
import { scannedLines, testedTable } from '../source-words.ts';
import { scanAddress, testAlone, withTags } from '../sources-alone.ts';
import { answerWords } from './answers.ts';
import type { Dialogue } from './dialogue.ts';
import { type FirstSource, type FirstTag, firstTagLines, sourceNameFor } from './first-tag.ts';
import { askJudged, NEEDED, until } from './questions.ts';
import { readSourceAddress, type SourceAddress } from './source-address.ts';
import type { JudgeTag } from './verdict.ts';

const QUESTION =
  'Where does its value come from? tcp://host:502 or rtu:/dev/ttyUSB0 (Modbus), mqtt://host (a broker), empty: programs push it';
/** How long a broker is listened to. */
const LISTEN_MS = 10_000;
/** Stands for the value while only its source is judged. */
const SOME_VALUE = { modbus: { register: 'holding 0', type: 'uint16' }, mqtt: { topic: 'answered/later' } } as const;

type JudgeSource = (source: FirstSource) => Problem | undefined;

/** `undefined` where programs push the value. `tagsText`: what tags.yaml holds now. */
export async function askFirstSource(
  dialogue: Dialogue,
  tag: FirstTag,
  tagsText: string,
  before: FirstSource | undefined,
  judge: JudgeTag,
): Promise<FirstSource | undefined> {
  const named = (address: SourceAddress) => ({ ...address, name: sourceNameFor(tagsText, address) });
  const judgeSource = (source: FirstSource) => judge(tag, source);
  const ask = (known: FirstSource | undefined) =>
    askAddress(dialogue, known, (address) => judgeSource({ ...named(address), value: SOME_VALUE[address.kind] }));
  let known = before;
  let address = await ask(known);
  while (address) {
    const source = await askPlace(
      dialogue,
      named(address),
      known?.kind === address.kind ? known : undefined,
      judgeSource,
    );
    if (await tryFirstSource(tag, source, (text) => dialogue.say(text))) return source;
    if (!dialogue.isTerminal || (await dialogue.keeps())) return source;
    known = source;
    address = await ask(known);
  }
  return undefined;
}

async function askAddress(
  dialogue: Dialogue,
  before: FirstSource | undefined,
  judge: (address: SourceAddress) => Problem | undefined,
): Promise<SourceAddress | undefined> {
  let found: SourceAddress | undefined;
  await until(dialogue, async () => {
    const answer = await dialogue.askOptional(QUESTION, String(before?.members[before.kind] ?? ''));
    if (answer === '' || answer === '-') return { answer: '' };
    const read = readSourceAddress(answer);
    const problem = 'reason' in read ? read : judge(read);
    if (problem) return answerWords(problem);
    found = read as SourceAddress;
    return { answer };
  });
  return found;
}

async function askPlace(
  dialogue: Dialogue,
  address: SourceAddress,
  before: FirstSource | undefined,
  judge: JudgeSource,
): Promise<FirstSource> {
  if (address.kind === 'mqtt') return askTopic(dialogue, address, before, judge);
  const ofDevice = (members: object) =>
    judge({ ...address, members: { ...address.members, ...members }, value: SOME_VALUE.modbus });
  const unit = Number(
    await askJudged(
      dialogue,
      () => dialogue.ask('Number of the device (Modbus unit)', String(before?.members.unit ?? 1)),
      (answer) => ofDevice({ unit: numberOr(answer) }),
    ),
  );
  const isLine = String(address.members.modbus).startsWith('rtu:');
  const line = isLine
    ? {
        baud: Number(
          await askJudged(
            dialogue,
            () => dialogue.ask('Baud rate of the line', String(before?.members.baud ?? 19_200)),
            (answer) => ofDevice({ unit, baud: numberOr(answer) }),
          ),
        ),
      }
    : {};
  const members = { ...address.members, unit, ...line };
  const found = await scan(
    dialogue,
    { ...address, members },
    'Registers to look at first, for example holding 0-19 (empty: none)',
  );
  const judgeValue = (value: Record<string, unknown>) => judge({ ...address, members, value });
  const register = await askJudged(
    dialogue,
    () =>
      dialogue.ask(
        'Register of the value: table and address on the wire',
        String(found[0]?.members.register ?? before?.value.register ?? 'holding 0'),
      ),
    (answer) => judgeValue({ register: answer }),
  );
  const seen = [...found.map((one) => one.members), ...(before ? [before.value] : [])].find(
    (one) => one.register === register,
  );
  const order = seen?.byte_order === undefined ? {} : { byte_order: seen.byte_order };
  // A register of one bit has no other type.
  const isBit = judgeValue({ register, type: 'uint16' }) !== undefined;
  if (isBit) return { ...address, members, value: { register } };
  const type = await askJudged(
    dialogue,
    () =>
      dialogue.ask('Type of the value: int16 uint16 int32 uint32 float32 float64 bool', String(seen?.type ?? 'uint16')),
    (answer) => judgeValue({ register, type: answer }),
  );
  return { ...address, members, value: { register, type, ...order } };
}

async function askTopic(
  dialogue: Dialogue,
  address: SourceAddress,
  before: FirstSource | undefined,
  judge: JudgeSource,
): Promise<FirstSource> {
  const found = await scan(
    dialogue,
    address,
    `Topics to listen to for ${LISTEN_MS / 1000} s, for example site/# (empty: none)`,
  );
  const topic = await until(dialogue, async () => {
    const answer = await dialogue.ask(
      'Topic of the value, for example site/ft101',
      String(found[0]?.members.topic ?? before?.value.topic ?? ''),
    );
    if (answer === '') return NEEDED;
    const problem = judge({ ...address, value: { topic: answer } });
    return problem ? answerWords(problem) : { answer };
  });
  const seen = [...found.map((one) => one.members), ...(before ? [before.value] : [])].find(
    (one) => one.topic === topic,
  );
  const question = 'JSON pointer to the number in the message, for example /temp (empty: the message is the number)';
  const placeOf = (at: string) => ({ topic, ...(at === '' ? {} : { at }) });
  const at = await askJudged(
    dialogue,
    () => dialogue.askOrRemove(question, String(seen?.at ?? '')),
    (answer) => judge({ ...address, value: placeOf(answer) }),
  );
  return { ...address, value: placeOf(at) };
}

/** A number as one, any other text as it is, for `check` to reject. */
function numberOr(answer: string): number | string {
  return /^\d{1,9}$/.test(answer) ? Number(answer) : answer;
}

/** What the device offers, where somebody wants to look; even reading can disturb one, so nothing is read that was not named. */
async function scan(dialogue: Dialogue, source: SourceAddress, question: string): Promise<ScannedValue[]> {
  while (dialogue.isTerminal) {
    const what = await dialogue.askOrRemove(question);
    if (what === '') break;
    try {
      const found = await scanAddress(source, [what], LISTEN_MS);
      dialogue.say(scannedLines(source.name, found, false));
      return found;
    } catch (error) {
      dialogue.say(`  ${messageOf(error)}`);
    }
  }
  return [];
}

/** Reads the value once, and shows it with the lines that would be written. Gives whether it came. */
export async function tryFirstSource(
  tag: FirstTag,
  source: FirstSource,
  say: (text: string) => void,
): Promise<boolean> {
  say(`\n${firstTagLines(tag, source)}`);
  try {
    const values = await withTags(firstTagLines(tag, source), (folder) =>
      testAlone(folder, process.env, [source.name], LISTEN_MS),
    );
    const width = process.stderr.isTTY ? widthOf(process.stderr) : Number.POSITIVE_INFINITY;
    say(testedTable(values, width, (text) => text));
    return values.length > 0 && values.every(({ problem }) => problem === null);
  } catch (error) {
    say(`  ${messageOf(error)}`);
    return false;
  }
}
