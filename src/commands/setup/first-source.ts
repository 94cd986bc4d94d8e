/** Where the first value comes from: asked, looked at, and read once, so that a value of the real device stands on the screen. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { messageOf } from '../../base/errors.ts';
import { widthOf } from '../../base/table.ts';
import type { ScannedValue } from '../../sources/source-kind.ts';
import { scannedLines, testedTable } from '../source-words.ts';
import { scanAlone, testAlone } from '../sources-alone.ts';
import type { Dialogue } from './dialogue.ts';
import { type FirstSource, type FirstTag, firstTagLines, sourceNameFor } from './first-tag.ts';
import { until } from './questions.ts';
import { readSourceAddress, type SourceAddress } from './source-address.ts';

const QUESTION =
  'Where does its value come from? tcp://host:502 or rtu:/dev/ttyUSB0 (Modbus), mqtt://host (a broker), empty: programs push it';
/** How long a broker is listened to. */
const LISTEN_MS = 10_000;

/** `undefined` where programs push the value. `tagsText`: what tags.yaml holds now. */
export async function askFirstSource(
  dialogue: Dialogue,
  tag: FirstTag,
  tagsText: string,
  before: FirstSource | undefined,
): Promise<FirstSource | undefined> {
  let address = await askAddress(dialogue, before);
  while (address) {
    const source = await askPlace(dialogue, { ...address, name: sourceNameFor(tagsText, address) });
    if (await tryFirstSource(tag, source, (text) => dialogue.say(text))) return source;
    if (!dialogue.isTerminal || !(await dialogue.confirm('Answer again? (no: write it as it is)'))) return source;
    address = await askAddress(dialogue, source);
  }
  return undefined;
}

async function askAddress(dialogue: Dialogue, before: FirstSource | undefined): Promise<SourceAddress | undefined> {
  let found: SourceAddress | undefined;
  await until(dialogue, async () => {
    const answer = await dialogue.askOptional(QUESTION, String(before?.members[before.kind] ?? ''));
    if (answer === '' || answer === '-') return { answer: '' };
    const read = readSourceAddress(answer);
    if ('reason' in read) return `${read.reason}: ${read.instead}`;
    found = read;
    return { answer };
  });
  return found;
}

async function askPlace(dialogue: Dialogue, address: SourceAddress): Promise<FirstSource> {
  if (address.kind === 'mqtt') return askTopic(dialogue, address);
  const unit = Number(
    await until(dialogue, async () => number(await dialogue.ask('Number of the device (Modbus unit)', '1'), 255)),
  );
  const isLine = String(address.members.modbus).startsWith('rtu:');
  const line = isLine
    ? {
        baud: Number(
          await until(dialogue, async () =>
            number(await dialogue.ask('Bits a second of the line', '19200'), 4_000_000),
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
  const register = await dialogue.ask(
    'Register of the value: table and address on the wire',
    String(found[0]?.members.register ?? 'holding 0'),
  );
  const seen = found.find(({ members: one }) => one.register === register)?.members;
  const question = 'What it holds: int16 uint16 int32 uint32 float32 float64 bool';
  const type = await dialogue.ask(question, String(seen?.type ?? (isBit(register) ? 'bool' : 'uint16')));
  const order = seen?.byte_order === undefined ? {} : { byte_order: seen.byte_order };
  return { ...address, members, value: { register, ...(isBit(register) ? {} : { type }), ...order } };
}

async function askTopic(dialogue: Dialogue, address: SourceAddress): Promise<FirstSource> {
  const found = await scan(
    dialogue,
    address,
    `Topics to listen to for ${LISTEN_MS / 1000} s, for example site/# (empty: none)`,
  );
  const topic = await until(dialogue, async () => {
    const answer = await dialogue.ask(
      'Topic of the value, for example site/ft101',
      String(found[0]?.members.topic ?? ''),
    );
    return answer === '' ? 'this is needed' : { answer };
  });
  const seen = found.find(({ members }) => members.topic === topic)?.members.at;
  const question = 'Where the number stands in a JSON message, for example /temp (empty: the message is the number)';
  const at = await dialogue.ask(question, String(seen ?? ''));
  return { ...address, value: { topic, ...(at === '' ? {} : { at }) } };
}

const isBit = (register: string) => /^(coil|discrete)\b/.test(register);

function number(answer: string, max: number): string | { answer: string } {
  return /^\d{1,7}$/.test(answer) && Number(answer) <= max ? { answer } : `write a number from 0 to ${max}`;
}

/** What the device offers, where somebody wants to look; even reading can disturb one, so nothing is read that was not named. */
async function scan(dialogue: Dialogue, source: SourceAddress, question: string): Promise<ScannedValue[]> {
  if (!dialogue.isTerminal) return [];
  const what = await dialogue.ask(question);
  if (what === '') return [];
  const found: ScannedValue[] = [];
  try {
    await inFolder({ sources: { [source.name]: source.members } }, async (folder) => {
      for await (const step of scanAlone(folder, process.env, source.name, [what], LISTEN_MS))
        if ('found' in step) found.push(step.found);
    });
    dialogue.say(scannedLines(source.name, found, false));
  } catch (error) {
    dialogue.say(`  ${messageOf(error)}`);
  }
  return found;
}

/** Reads the value once, and shows it with the lines that would be written. Gives whether it came. */
export async function tryFirstSource(
  tag: FirstTag,
  source: FirstSource,
  say: (text: string) => void,
): Promise<boolean> {
  say(`\n${firstTagLines(tag, source)}`);
  try {
    const values = await inFolder(firstTagLines(tag, source), (folder) =>
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

/** A configuration folder with this tags.yaml alone, for as long as `work` takes. */
async function inFolder<Result>(tags: string | object, work: (folder: string) => Promise<Result>): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-setup-'));
  try {
    // JSON is YAML.
    writeFileSync(join(folder, 'tags.yaml'), typeof tags === 'string' ? tags : JSON.stringify(tags));
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
