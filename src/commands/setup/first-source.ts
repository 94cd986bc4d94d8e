/** Questions about the source of the first value, including a scan and a test reading of the actual device. */
import { messageOf } from '../../base/errors.ts';
import { widthOf } from '../../base/table.ts';
import type { Problem } from '../../config/problem.ts';
import type { ScannedValue } from '../../sources/source-kind.ts';
import { readSourceAddress, type SourceAddress, scanAddress, testAlone, withTags } from '../sources/direct-access.ts';
import { scannedLines, testedTable } from '../sources/report-text.ts';
import type { CheckTag } from './answers.ts';
import { problemText } from './answers.ts';
import type { Dialogue } from './dialogue.ts';
import { type FirstSource, type FirstTag, firstTagLines, sourceNameFor } from './first-tag.ts';
import { askChecked, NEEDED, until } from './questions.ts';

const QUESTION =
  'Source of the value: tcp://host:502 or rtu:/dev/ttyUSB0 for Modbus, mqtt://host for a broker (leave empty if programs push values)';

const LISTEN_MS = 10_000;
/** Placeholder value used while only the source is checked. */
const SOME_VALUE = { modbus: { register: 'holding 0', type: 'uint16' }, mqtt: { topic: 'answered/later' } } as const;

type CheckSource = (source: FirstSource) => Problem | undefined;

/** Returns `undefined` if programs push the value. `tagsText`: current text of tags.yaml. */
export async function askFirstSource(
  dialogue: Dialogue,
  tag: FirstTag,
  tagsText: string,
  before: FirstSource | undefined,
  check: CheckTag,
): Promise<FirstSource | undefined> {
  const named = (address: SourceAddress) => ({ ...address, name: sourceNameFor(tagsText, address) });
  const checkSource = (source: FirstSource) => check(tag, source);
  const ask = (known: FirstSource | undefined) =>
    askAddress(dialogue, known, (address) => checkSource({ ...named(address), value: SOME_VALUE[address.kind] }));
  let known = before;
  let address = await ask(known);
  while (address) {
    const source = await askPlace(
      dialogue,
      named(address),
      known?.kind === address.kind ? known : undefined,
      checkSource,
    );
    if (await testFirstSource(tag, source, (text) => dialogue.say(text))) return source;
    if (!dialogue.isTerminal || (await dialogue.keeps())) return source;
    known = source;
    address = await ask(known);
  }
  return undefined;
}

async function askAddress(
  dialogue: Dialogue,
  before: FirstSource | undefined,
  check: (address: SourceAddress) => Problem | undefined,
): Promise<SourceAddress | undefined> {
  let found: SourceAddress | undefined;
  await until(dialogue, async () => {
    const answer = await dialogue.askOptional(QUESTION, String(before?.members[before.kind] ?? ''));
    if (answer === '' || answer === '-') return { answer: '' };
    const read = readSourceAddress(answer);
    const problem = 'reason' in read ? read : check(read);
    if (problem) return problemText(problem);
    found = read as SourceAddress;
    return { answer };
  });
  return found;
}

async function askPlace(
  dialogue: Dialogue,
  address: SourceAddress,
  before: FirstSource | undefined,
  check: CheckSource,
): Promise<FirstSource> {
  if (address.kind === 'mqtt') return askTopic(dialogue, address, before, check);
  const ask = (question: string, fallback: unknown, problem: (answer: string) => Problem | undefined) =>
    askChecked(dialogue, () => dialogue.ask(question, String(fallback)), problem);
  const ofDevice = (given: object) =>
    check({ ...address, members: { ...address.members, ...given }, value: SOME_VALUE.modbus });
  const { unit: knownUnit = 1, baud: knownBaud = 19_200 } = before?.members ?? {};
  const unitOf = (answer: string) => ofDevice({ unit: numberOr(answer) });
  const unit = Number(await ask('Unit number of the Modbus device', knownUnit, unitOf));
  const members: SourceAddress['members'] = { ...address.members, unit };
  if (String(address.members.modbus).startsWith('rtu:')) {
    const baudOf = (answer: string) => ofDevice({ unit, baud: numberOr(answer) });
    members.baud = Number(await ask('Baud rate', knownBaud, baudOf));
  }
  const checkValue = (value: Record<string, unknown>) => check({ ...address, members, value });
  const register = await ask(
    'Register of the value (table and protocol address)',
    before?.value.register ?? 'holding 0',
    (answer) => checkValue({ register: answer }),
  );
  const known = before?.value.register === register ? before.value : undefined;
  // Single-bit registers do not have a data type.
  if (checkValue({ register, type: 'uint16' }) !== undefined) return { ...address, members, value: { register } };
  const type = await ask(
    'Type of the value (int16, uint16, int32, uint32, float32, float64, bool)',
    known?.type ?? 'uint16',
    (answer) => checkValue({ register, type: answer }),
  );
  const order = known?.byte_order === undefined ? {} : { byte_order: known.byte_order };
  return { ...address, members, value: { register, type, ...order } };
}

/** Returns the members of the scanned value or of the previous answer with this topic. */
function knownTopic(
  found: readonly ScannedValue[],
  before: FirstSource | undefined,
  topic: string,
): Record<string, unknown> | undefined {
  return [...found.map((one) => one.members), ...(before ? [before.value] : [])].find((one) => one.topic === topic);
}

async function askTopic(
  dialogue: Dialogue,
  address: SourceAddress,
  before: FirstSource | undefined,
  check: CheckSource,
): Promise<FirstSource> {
  const toScan = `Topics to listen to for ${LISTEN_MS / 1000} s, for example site/# (empty: none)`;
  const found = await scan(dialogue, address, toScan);
  const fallback = String(found[0]?.members.topic ?? before?.value.topic ?? '');
  const topic = await until(dialogue, async () => {
    const answer = await dialogue.ask('Topic of the value, for example site/ft101', fallback);
    if (answer === '') return NEEDED;
    const problem = check({ ...address, value: { topic: answer } });
    return problem ? problemText(problem) : { answer };
  });
  const known = knownTopic(found, before, topic);
  const question = 'JSON pointer to the number in the message, for example /temp (empty: the message is the number)';
  const placeOf = (at: string) => ({ topic, ...(at === '' ? {} : { at }) });
  const at = await askChecked(
    dialogue,
    () => dialogue.askOrRemove(question, String(known?.at ?? '')),
    (answer) => check({ ...address, value: placeOf(answer) }),
  );
  return { ...address, value: placeOf(at) };
}

/** Text that is not a number is returned unchanged, so that `check` rejects it. */
function numberOr(answer: string): number | string {
  return /^\d{1,9}$/.test(answer) ? Number(answer) : answer;
}

/** Scans only the specified topics, because a broker can have many. */
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

/** Reads the value once, shows it with the lines to be written, and returns whether the value could be read. */
export async function testFirstSource(
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
